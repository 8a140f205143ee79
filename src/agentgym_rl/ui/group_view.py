"""The episodes of one task side by side, and where they part."""

from __future__ import annotations

from collections.abc import Callable

from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.episode_lists import list_episodes
from agentgym_rl.ui.episode_view import Record, reading, view
from agentgym_rl.ui.filters import EpisodePage
from agentgym_rl.ui.index import EpisodeIndex

_MAX_EPISODES = 64
_MAX_CHARS = 32_000_000
"""Of all their texts."""
_WAIT_S = 2.0
"""For the part that holds the group, while the index is being read."""


def group_view(
    index: EpisodeIndex, wanted: EpisodePage, read: Callable[[str], Record]
) -> dict[str, object]:
    """Return the group that a filter names by phase, step and group; `read` gives an episode."""
    part = f"{wanted.phase}-{wanted.step_min:06d}.parquet"
    index.refresh(first=part, budget_s=_WAIT_S)
    page = wanted.model_copy(update={"limit": _MAX_EPISODES, "sort": "step"})
    found = list_episodes(index, page)
    rows = found["rows"]
    assert isinstance(rows, list), "a page"
    if not rows:
        raise ApiError(
            404, f"there is no group {wanted.group} at step {wanted.step_min} of {wanted.phase!r}"
        )
    episodes: list[dict[str, object]] = []
    num_chars = 0
    for row in rows:
        if num_chars > _MAX_CHARS:
            break
        with reading(str(row["episode"])):
            shown = view(read(str(row["episode"])))
        shown.pop("messages")
        num_chars += len(str(shown["rounds"]))
        episodes.append(row | shown)
    left_out = f"{len(rows) - len(episodes)} episodes are left out: the group is too large to show"
    task = {name: rows[0][name] for name in ("env", "split", "task_index", "category", "level")}
    return {
        "task": task,
        "episodes": episodes,
        "common_rounds": common_rounds(episodes),
        "problem": left_out if len(episodes) < len(rows) else found["problem"],
    }


def common_rounds(episodes: list[dict[str, object]]) -> int:
    """Return how many rounds, from the first, are the same in action and answer for all."""
    seen: list[list[tuple[object, object]]] = []
    for episode in episodes:
        rounds = episode["rounds"]
        assert isinstance(rounds, list), "as `view` gives them"
        seen.append([(item["action"], item["observation"]) for item in rounds])
    count = 0
    for same in zip(*seen, strict=False):
        if len(set(same)) > 1:
            break
        count += 1
    return count
