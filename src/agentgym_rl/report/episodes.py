"""Ten episodes of a run for a page: half of them failures, of different tasks, with their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from agentgym_rl.report.words import line, shown
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.decoders import Decoders
from agentgym_rl.ui.episode_lists import list_episodes
from agentgym_rl.ui.episode_view import read_episode, reading, view
from agentgym_rl.ui.filters import EpisodePage, Outcome
from agentgym_rl.ui.index import EpisodeIndex

NUM_EPISODES = 10
_MAX_CANDIDATES = 500
_MAX_CHARS = 2000
"""Of one text."""
_MAX_ROUNDS = 60


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a reply, or an observation."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ShownRound:
    """A round as the page shows it."""

    number: int
    parts: tuple[Part, ...]
    observation: str
    is_valid: bool
    reward: float


@dataclass(frozen=True, slots=True)
class ShownEpisode:
    """An episode as the page shows it."""

    name: str
    """The id of the UI, such as "eval-000024:3"."""
    task: str
    phase: str
    step: int
    is_success: bool
    outcome: str
    """Why it ended, in words."""
    reward: str
    first: str
    """What the agent was shown first."""
    rounds: tuple[ShownRound, ...]
    rounds_left_out: int


def sample_episodes(folder: Path, index: EpisodeIndex, decoders: Decoders) -> list[ShownEpisode]:
    """Return episodes of the last evaluation, or of the last steps where none was stored.

    Raises nothing: an episode that cannot be read is left out.
    """
    phases = [str(row["phase"]) for row in index.ask("SELECT DISTINCT phase FROM episodes")]
    phase = "eval" if "eval" in phases else next(iter(sorted(phases)), "train")
    failures = _different_tasks(_rows(index, phase, "failure"))
    successes = _different_tasks(_rows(index, phase, "success"))
    half = NUM_EPISODES // 2
    num_failures = max(half, NUM_EPISODES - len(successes))
    num_successes = NUM_EPISODES - min(num_failures, len(failures))
    found = []
    for row in [*failures[:num_failures], *successes[:num_successes]]:
        try:
            with reading(str(row["episode"])):
                record = view(read_episode(folder, str(row["episode"]), decoders))
                found.append(_shown(row, record))
        except ApiError:
            continue
    return found


def _rows(index: EpisodeIndex, phase: str, outcome: Outcome) -> list[dict[str, object]]:
    page = EpisodePage(run=".", phase=phase, outcome=outcome, limit=_MAX_CANDIDATES)
    rows = list_episodes(index, page)["rows"]
    assert isinstance(rows, list), "a page"
    return rows


def _different_tasks(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Return one row of each task, categories in turn, of the last step first."""
    by_category: dict[object, dict[object, dict[str, object]]] = {}
    for row in rows:
        tasks = by_category.setdefault((row["env"], row["category"]), {})
        tasks.setdefault((row["env"], row["task_index"]), row)
    turns = zip_longest(*(list(tasks.values()) for tasks in by_category.values()))
    return [row for turn in turns for row in turn if row is not None]


def _shown(row: Mapping[str, object], record: Mapping[str, object]) -> ShownEpisode:
    rounds, messages = record["rounds"], record["messages"]
    if not isinstance(rounds, list) or not isinstance(messages, list):
        raise TypeError("rounds and messages are lists")
    first: list[str] = []
    for message in messages:
        if message.get("role") == "assistant":
            break
        first.append(str(message.get("content")))
    reward = row["reward"]
    names = (row["env"], row["task_index"], row["category"] or row["level"])
    return ShownEpisode(
        name=line(row["episode"]),
        task=line(" ".join(str(name) for name in names if name not in (None, ""))),
        phase=line(row["phase"]),
        step=int(str(row["step"] or 0)),
        is_success=bool(row["success"]),
        outcome=line(row["stop_reason"]).replace("_", " "),
        reward=f"{reward:.3g}" if isinstance(reward, int | float) else "none",
        first=shown("\n\n".join(first), max_chars=_MAX_CHARS),
        rounds=tuple(_round(number, item) for number, item in enumerate(rounds[:_MAX_ROUNDS], 1)),
        rounds_left_out=max(0, len(rounds) - _MAX_ROUNDS),
    )


def _round(number: int, item: Mapping[str, object]) -> ShownRound:
    parts, reward = item["parts"], item["reward"]
    if not isinstance(parts, list):
        raise TypeError("parts are a list")
    return ShownRound(
        number,
        tuple(
            Part(line(part["kind"]), shown(str(part["text"]).strip(), max_chars=_MAX_CHARS))
            for part in parts
        ),
        shown(str(item["observation"] or "").strip(), max_chars=_MAX_CHARS),
        bool(item["valid_action"]),
        float(reward) if isinstance(reward, int | float) else 0.0,
    )
