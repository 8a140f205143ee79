"""Which episodes a finding is about: the first few that its filter brings up, and flat groups."""

from __future__ import annotations

from agentgym_rl.types import StopReason
from agentgym_rl.ui.episode_lists import list_episodes
from agentgym_rl.ui.filters import EpisodePage
from agentgym_rl.ui.findings import FLAT_GROUPS, CurveFinding
from agentgym_rl.ui.index import EpisodeIndex

_MAX_SHOWN = 3
_FAILURES = ", ".join(f"'{reason}'" for reason in StopReason if reason.is_failure)
_SHOWN = (
    "episode", "step", "group", "env", "task_index", "goal", "last_action", "reward", "success",
    "num_rounds", "num_tokens", "num_invalid", "num_repeats", "error",
)  # fmt: skip


def offenders(index: EpisodeIndex, finding: CurveFinding, phase: str) -> list[dict[str, object]]:
    """Return a few episodes that show what a finding says; none where it names no filter."""
    if not finding.look:
        return []
    first, last = finding.steps
    wanted = {"run": "", "phase": phase, "step_min": first, "step_max": last, "limit": _MAX_SHOWN}
    page = EpisodePage.model_validate(wanted | dict(finding.look))
    rows = list_episodes(index, page)["rows"]
    assert isinstance(rows, list), "a page"
    return [{name: row.get(name) for name in _SHOWN} for row in rows]


def flat_groups(index: EpisodeIndex, finding: CurveFinding, phase: str) -> list[dict[str, object]]:
    """Return the newest groups whose episodes all have the same reward, for a finding on them."""
    if finding.title not in FLAT_GROUPS:
        return []
    return index.ask(
        f"""
        SELECT step, "group", first(env) AS env, first(task_index) AS task_index,
               first(goal) AS goal, first(reward) AS reward, count(*) AS size
        FROM episodes WHERE phase = ? AND step BETWEEN ? AND ? AND stop_reason NOT IN ({_FAILURES})
        GROUP BY step, "group" HAVING count(DISTINCT reward) < 2 AND count(*) > 1
        ORDER BY step DESC, "group" LIMIT {_MAX_SHOWN}
        """,
        [phase, *finding.steps],
    )
