"""What the episodes of each training step were like, out of the index."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.types import StopReason
from agentgym_rl.ui.index import EpisodeIndex

Values = list[float | None]

_FAILURES = ", ".join(f"'{reason}'" for reason in StopReason if reason.is_failure)
_TRUNCATIONS = ", ".join(f"'{reason}'" for reason in StopReason if reason.is_truncation)
_COLUMNS = {
    "success_rate": "avg(success::INT) FILTER (completed)",
    "reward_mean": "avg(reward) FILTER (completed)",
    "reward_of_successes": "avg(reward) FILTER (completed AND success)",
    "reward_of_failures": "avg(reward) FILTER (completed AND NOT success)",
    "tokens_mean": "avg(num_sampled_tokens) FILTER (completed)",
    "tokens_p90": "quantile_cont(num_sampled_tokens, 0.9) FILTER (completed)",
    "rounds_mean": "avg(num_rounds) FILTER (completed)",
    "rounds_p90": "quantile_cont(num_rounds, 0.9) FILTER (completed)",
    "invalid_rate": "sum(num_invalid) / nullif(sum(num_rounds), 0)",
    "repeat_rate": "sum(num_repeats) / nullif(sum(num_rounds), 0)",
    "truncated_rate": f"avg((stop_reason IN ({_TRUNCATIONS}))::INT) FILTER (completed)",
    "num_groups": 'count(DISTINCT "group")',
    "failed_rate": "avg((NOT completed)::INT)",
    "generation_s": "sum(generation_s)",
    "environment_s": "sum(environment_s)",
    "seconds": "sum(seconds)",
}


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """Columns aligned to `steps`; means are over the completed episodes of a step."""

    steps: list[int]
    columns: dict[str, Values]

    def __getitem__(self, name: str) -> Values:
        return self.columns[name]


def step_statistics(index: EpisodeIndex, *, phase: str) -> StepStatistics:
    """Return the statistics of every step of a phase."""
    columns = ", ".join(f"{sql} AS {name}" for name, sql in _COLUMNS.items())
    rows = index.ask(
        f"""
        WITH own AS (
            SELECT *, stop_reason NOT IN ({_FAILURES}) AS completed FROM episodes WHERE phase = ?
        ), grouped AS (
            SELECT step, "group", count(DISTINCT reward) AS num_rewards, count(*) AS size
            FROM own WHERE completed GROUP BY ALL
        ), spread AS (
            SELECT step, avg((num_rewards < 2)::INT) AS flat_groups
            FROM grouped WHERE size > 1 GROUP BY step
        )
        SELECT step, {columns}, any_value(flat_groups) AS flat_groups
        FROM own LEFT JOIN spread USING (step) GROUP BY step ORDER BY step
        """,
        [phase],
    )
    names = [*_COLUMNS, "flat_groups"]
    return StepStatistics(
        [_whole(row["step"]) for row in rows],
        {name: [_number(row[name]) for row in rows] for name in names},
    )


def main_phase(index: EpisodeIndex) -> str:
    """Return the phase to look at: training, or another where nothing was trained."""
    rows = index.ask("SELECT phase FROM episodes GROUP BY phase ORDER BY phase = 'train' DESC")
    return str(rows[0]["phase"]) if rows else "train"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _whole(value: object) -> int:
    assert isinstance(value, int), "a column of the index"
    return value
