"""Episodes that other programs recorded, as a run folder that the web UI and `rescore` read.

    AgentGym-RL's rollout logs   <folder>/step<N>/<rank>.json, lists of
                                 {"item_id": 7, "conversations": [{"role", "content"}], "reward": 1}
    AgentGym's conversations     a list, or lines, of {"item_id": "babyai_400", "conversations":
                                 [{"from": "human", "loss": null, "value": "..."}]}; those of
                                 evaluations have "reward" and "success" as well
    ours                         lines of {"task": "babyai/400", "messages": [{"role", "content"}]}

What such files do not hold (tokens, log-probabilities, seconds, rewards of single rounds) stays
unknown; the reward of an episode is on its last round.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.runs.json_rows import read_rows
from agentgym_rl.types import Episode, Message, Round, StopReason, Task

_ROLES = {"human": "user", "gpt": "assistant"}
_STEP = re.compile(r"step[-_]?(\d+)")
_ACTION = re.compile(r"Action:\s*", re.IGNORECASE)
_FULL_SCORES = (1.0, 100.0)
"""What counts as success where a file does not say: SciWorld's scores go up to 100."""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What was imported."""

    num_steps: int
    num_episodes: int
    reward_mean: float | None
    success_rate: float


def import_episodes(source: Path, run: RunFolder, *, env: str = "") -> ImportSummary:
    """Write the episodes of a file, or of a folder of rollout logs, as a new run.

    `env` is the environment where the files do not name it. Raises ConfigError for what is no such
    file, with file and line.
    """
    steps = {
        step: [
            _episode(origin, row, env)
            for file in files
            for origin, row in read_rows(file, what="episodes")
        ]
        for step, files in _files(source).items()
    }
    steps = {step: episodes for step, episodes in steps.items() if episodes}
    if not steps:
        raise ConfigError(f"{source} holds no episodes")
    every = [episode for episodes in steps.values() for episode in episodes]
    run.create_for_stored(_config(source, every[0].task.env))
    for step, episodes in sorted(steps.items()):
        write_episodes(run.episodes, grouped(episodes), phase="train", step=step)
        run.append_metrics(step_metrics(step, episodes))
    rewards = [episode.reward for episode in every if episode.reward is not None]
    return ImportSummary(
        len(steps),
        len(every),
        fmean(rewards) if rewards else None,
        fmean(episode.success for episode in every),
    )


def step_metrics(step: int, episodes: Sequence[Episode]) -> Metrics:
    """Return the line of a step, as far as its episodes know it."""
    completed = [episode for episode in episodes if not episode.is_failed]
    rewards = [episode.reward for episode in completed if episode.reward is not None]
    metrics: Metrics = {"step": step, "rollout/episodes": float(len(episodes))}
    if completed:
        metrics["rollout/success_rate"] = fmean(episode.success for episode in completed)
        metrics["rollout/rounds_mean"] = fmean(len(episode.rounds) for episode in completed)
    if rewards:
        metrics["rollout/reward_mean"] = fmean(rewards)
    return metrics


def grouped(episodes: Sequence[Episode]) -> list[list[Episode]]:
    """Return the episodes of each task together, numbered, in the order of first occurrence."""
    groups: defaultdict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        group = groups[episode.task.id]
        group.append(replace(episode, sample_index=len(group)))
    return list(groups.values())


def _files(source: Path) -> dict[int, list[Path]]:
    """Return the files of each step; a single file is step 0."""
    if source.is_file():
        return {0: [source]}
    if not source.is_dir():
        raise ConfigError(f"there is no file or folder {str(source)!r}")
    steps: defaultdict[int, list[Path]] = defaultdict(list)
    for file in sorted([*source.rglob("*.json"), *source.rglob("*.jsonl")]):
        found = _STEP.fullmatch(file.parent.name)
        if found:
            steps[int(found[1])].append(file)
    if not steps:
        raise ConfigError(f"{source} has no folders step<N> with JSON files, as rollout logs have")
    return dict(steps)


def _episode(origin: str, row: object, env: str) -> Episode:
    try:
        if not isinstance(row, dict):
            raise ValueError("an episode is an object")
        said = _messages(row.get("conversations") or row.get("messages"))
        reward = _reward(row.get("reward"))
        success = row.get("success")
        is_success = success if isinstance(success, bool) else reward in _FULL_SCORES
        task = _task(row.get("item_id", row.get("task")), env)
    except ValueError as error:
        raise ConfigError(f"{origin}: {error}") from error
    return Episode(
        task=task,
        sample_index=0,
        stop_reason=StopReason.SUCCESS if is_success else StopReason.TERMINATED,
        reward=reward,
        success=is_success,
        rounds=_rounds(said, reward or 0.0),
        messages=tuple(message for message, _ in said),
        samples=(),
        seconds=0.0,
    )


def _task(name: object, env: str) -> Task:
    """Return the task of 7, "babyai_400", "babyai/400" or "babyai/400/seed"."""
    if isinstance(name, int) and not isinstance(name, bool):
        return Task(env or "unknown", "train", name)
    if not isinstance(name, str | None):
        raise ValueError(f"the name of a task is text or a number, got {name!r}")
    found = re.fullmatch(r"(.+?)[_/](\d{1,18})(?:/\d+)?", name or "")
    if found is None:
        return Task(env or "unknown", "train", 0, level=name or "")
    return Task(env or found[1].partition("_")[0], "train", int(found[2]))


def _reward(value: object) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return None if value is None else float(value)
    raise ValueError(f"`reward` is a number, got {value!r}")


def _messages(items: object) -> list[tuple[Message, bool]]:
    """Return the messages, each with whether it is a reply that counts as a round."""
    if not isinstance(items, list) or not items:
        raise ValueError("`conversations` must be a list with at least one message")
    said: list[tuple[Message, bool]] = []
    for index, item in enumerate(items):
        role, content = _said(index, item)
        is_reply = role == "assistant" and item.get("loss") is not False
        said.append((Message(role, content), is_reply))
    # AgentGym's prompts begin with a pair of instructions and their acknowledgement.
    first = next((place for place, (_, is_reply) in enumerate(said) if is_reply), None)
    if first is not None and first + 1 < len(said) and _is_acknowledgement(said[first][0]):
        said[first] = (said[first][0], False)
    return said


def _said(index: int, item: object) -> tuple[str, str]:
    if not isinstance(item, Mapping):
        raise ValueError(f"message {index} is an object")
    role, content = item.get("role", item.get("from")), item.get("content", item.get("value"))
    if not isinstance(role, str) or not isinstance(content, str):
        raise ValueError(f"message {index} needs a role and a content, both text")
    return _ROLES.get(role, role), content.encode("utf-8", "replace").decode()


def _is_acknowledgement(message: Message) -> bool:
    return message.content.lstrip().upper().startswith("OK") and not _ACTION.search(message.content)


def _rounds(said: Sequence[tuple[Message, bool]], reward: float) -> tuple[Round, ...]:
    rounds: list[Round] = []
    for place, (message, is_reply) in enumerate(said):
        if is_reply:
            answer = said[place + 1][0] if place + 1 < len(said) else None
            observation = (
                answer.content if answer is not None and answer.role != "assistant" else ""
            )
            parts = _ACTION.split(message.content)
            rounds.append(Round(message.content, parts[-1].strip(), observation, 0.0, True))
    if rounds:
        rounds[-1] = replace(rounds[-1], reward=reward)
    return tuple(rounds)


def _config(source: Path, env: str) -> str:
    """Return a recipe that says where the episodes are from; it cannot be trained."""
    return f"# imported from {json.dumps(source.name)}\n[env]\nname = {json.dumps(env)}\n"
