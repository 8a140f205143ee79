"""Diagnosis and time: a run's steps as charts, with what they say in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from agentgym_rl.ui.findings import Curves, findings
from agentgym_rl.ui.index import EpisodeIndex
from agentgym_rl.ui.offenders import flat_groups, offenders
from agentgym_rl.ui.series import MetricSeries, Row
from agentgym_rl.ui.step_statistics import StepStatistics, Values, main_phase, step_statistics

Unit = Literal["number", "share", "tokens", "seconds"]

_ENTROPY = "train/entropy"


@dataclass(frozen=True, slots=True)
class _Chart:
    title: str
    text: str
    unit: Unit
    columns: tuple[tuple[str, str], ...]
    """The name of each curve and its column."""


_CHARTS = (
    _Chart(
        "Reward and success",
        "A reward that rises without success is partial credit, or a hole in the reward.",
        "number",
        (
            ("reward", "reward_mean"),
            ("of successes", "reward_of_successes"),
            ("of failures", "reward_of_failures"),
            ("success rate", "success_rate"),
        ),
    ),
    _Chart(
        "Groups without spread",
        "Groups whose episodes all have the same reward teach nothing.",
        "share",
        (("groups", "flat_groups"),),
    ),
    _Chart(
        "Sampled tokens per episode",
        "Replies that grow while success does not are idle talk; shrinking ones may be giving up.",
        "tokens",
        (("mean", "tokens_mean"), ("90th percentile", "tokens_p90")),
    ),
    _Chart(
        "Rounds per episode",
        "Near the horizon, episodes are truncated before they end.",
        "number",
        (("mean", "rounds_mean"), ("90th percentile", "rounds_p90"), ("horizon", "max_rounds")),
    ),
    _Chart(
        "Wasted rounds",
        "Rounds without a valid action, and replies that repeat an earlier one word for word.",
        "share",
        (("invalid", "invalid_rate"), ("repeated", "repeat_rate")),
    ),
    _Chart(
        "How episodes end early",
        "Truncated by a limit, or failed for reasons that are not the agent's.",
        "share",
        (("truncated", "truncated_rate"), ("failed", "failed_rate")),
    ),
)
_METRICS = {
    "entropy": _ENTROPY,
    "logprob_diff": "train/logprob_diff",
    "updates_skipped": "train/updates_skipped",
    "kl": "train/kl",
    "max_rounds": "rollout/max_rounds",
}
_TIME_PARTS = (
    ("generation", None),
    ("environment", None),
    ("waiting", None),
    ("rollout", None),
    ("score", "time/score_s"),
    ("update", None),
    ("publish", "time/publish_s"),
    ("store", "time/store_s"),
    ("eval", "time/eval_s"),
    ("other", None),
    ("checkpoint", "time/checkpoint_s"),
)


def diagnosis(index: EpisodeIndex, series: MetricSeries) -> dict[str, object]:
    """Return charts over the steps of the run, and findings."""
    state = index.refresh()
    phase = main_phase(index)
    statistics = step_statistics(index, phase=phase)
    rows = {int(row["step"] or 0): row for row in series.rows()}
    steps = statistics.steps or sorted(rows)
    columns = _aligned(statistics, rows, steps)
    charts = [_chart_json(chart, columns) for chart in _CHARTS]
    charts.append(_entropy_chart(rows, steps))
    found = findings(Curves(steps, columns))
    return {
        "steps": steps,
        "charts": [chart for chart in charts if chart["series"]],
        "findings": [
            asdict(finding)
            | {"episodes": offenders(index, finding, phase)}
            | {"groups": flat_groups(index, finding, phase)}
            for finding in found
        ],
        "phase": phase,
        "index": asdict(state),
        "problem": state.problem or series.problem,
    }


def _aligned(
    statistics: StepStatistics, rows: dict[int, Row], steps: list[int]
) -> dict[str, Values]:
    """Return the columns of episodes and of metrics, by the names that charts and rules use."""
    metrics = {
        name: [rows.get(step, {}).get(metric) for step in steps]
        for name, metric in _METRICS.items()
    }
    # A step that learned nothing reports an entropy of 0, which no policy that samples has.
    metrics["entropy"] = [entropy or None for entropy in metrics["entropy"]]
    if statistics.steps:
        return statistics.columns | metrics | {"flat_groups": _flat_groups(statistics, rows)}
    # A run without stored episodes still has its metrics.
    names = {
        "success_rate": "rollout/success_rate",
        "reward_mean": "rollout/reward_mean",
        "rounds_mean": "rollout/rounds_mean",
        "invalid_rate": "rollout/invalid_action_rate",
        "truncated_rate": "rollout/truncated_rate",
    }
    return metrics | {
        own: [rows.get(step, {}).get(name) for step in steps] for own, name in names.items()
    }


def _chart_json(chart: _Chart, columns: dict[str, Values]) -> dict[str, object]:
    series = [
        {"name": name, "values": columns[column]}
        for name, column in chart.columns
        if any(value is not None for value in columns.get(column, ()))
    ]
    return {"title": chart.title, "text": chart.text, "unit": chart.unit, "series": series}


def _flat_groups(statistics: StepStatistics, rows: dict[int, Row]) -> Values:
    """Return the share of groups without spread, as training counted them where it did.

    A discount tells groups apart that have the same rewards.
    """
    columns = zip(
        statistics.steps, statistics["flat_groups"], statistics["num_groups"], strict=True
    )
    shares: Values = []
    for step, share, number in columns:
        counted = rows.get(step, {}).get("rollout/groups_without_spread")
        shares.append(share if counted is None or not number else counted / number)
    return shares


def _entropy_chart(rows: dict[int, Row], steps: list[int]) -> dict[str, object]:
    names = sorted({name for row in rows.values() for name in row if name.startswith(_ENTROPY)})
    series = [
        {
            "name": name.removeprefix(_ENTROPY).strip("_") or "all tokens",
            "values": [rows.get(step, {}).get(name) or None for step in steps],
        }
        for name in names
    ]
    return {
        "title": "Entropy per token",
        "text": "By kind of token, in nats. Near zero the policy has stopped exploring.",
        "unit": "number",
        "series": series,
    }


def time_of_steps(index: EpisodeIndex, series: MetricSeries) -> dict[str, object]:
    """Return where the seconds of each step went: parts that add up to the total.

    Episodes run side by side, so the seconds of a rollout are shared out in proportion to what
    episodes spent on generation, on the environment and on neither.
    """
    state, rows = index.refresh(), series.rows()
    statistics = step_statistics(index, phase="train")
    at = {step: place for place, step in enumerate(statistics.steps)}
    columns: dict[str, Values] = {name: [] for name, _ in _TIME_PARTS}
    totals: Values = []
    for row in rows:
        place = at.get(int(row["step"] or 0))
        known = {name: row.get(metric) if metric else None for name, metric in _TIME_PARTS}
        known |= _rollout_parts(row, statistics, place)
        update = row.get("time/update_s")
        known["update"] = None if update is None else max(0.0, update - (known["score"] or 0.0))
        step_s, checkpoint_s = row.get("time/step_s"), known["checkpoint"] or 0.0
        counted = sum(value or 0.0 for name, value in known.items() if name != "checkpoint")
        known["other"] = None if step_s is None else max(0.0, step_s - counted)
        totals.append(None if step_s is None else max(step_s, counted) + checkpoint_s)
        for name, values in columns.items():
            values.append(known[name])
    return {
        "steps": [int(row["step"] or 0) for row in rows],
        "parts": [
            {"name": name, "seconds": values} for name, values in columns.items() if any(values)
        ],
        "total": totals,
        "index": asdict(state),
        "problem": state.problem or series.problem,
    }


def _rollout_parts(
    row: Row, statistics: StepStatistics, place: int | None
) -> dict[str, float | None]:
    """Return the rollout's seconds in parts, or whole where the episodes do not tell."""
    rollout = row.get("time/rollout_s")
    whole = {"generation": None, "environment": None, "waiting": None, "rollout": rollout}
    if rollout is None or place is None:
        return whole
    generation, seconds = statistics["generation_s"][place], statistics["seconds"][place]
    if generation is None or not seconds:
        return whole
    environment = statistics["environment_s"][place] or 0.0
    scale = rollout / max(seconds, generation + environment)
    return {
        "generation": generation * scale,
        "environment": environment * scale,
        "waiting": max(0.0, rollout - (generation + environment) * scale),
        "rollout": None,
    }
