"""Stored episodes under another reward, without running them again.

    def shorter_is_better(episode: Episode) -> float:
        return float(episode.success) - 0.01 * len(episode.rounds)

A reward function gets an episode and returns its reward, which goes to the last round, or one
number for each round. Success stays what the environment said. Failed episodes have no reward and
are not asked about. Advantages were made of the old reward, so they are left out.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from agentgym_rl.errors import RunError
from agentgym_rl.runs.episodes import read_groups, write_episodes
from agentgym_rl.runs.folder import RunFolder, step_of
from agentgym_rl.types import Episode, Sample

RewardFunction = Callable[[Episode], float | Sequence[float]]


@dataclass(frozen=True, slots=True)
class RescoreSummary:
    """What changed, over episodes that have a reward."""

    num_episodes: int
    num_changed: int
    mean_before: float
    mean_after: float


def rescore_run(run: RunFolder, reward: RewardFunction, out: RunFolder) -> RescoreSummary:
    """Write the run's episodes with new rewards as another run, metrics and recipe included."""
    parts = sorted(run.episodes.glob("*.parquet"))
    if not parts:
        raise RunError(f"{run.path} has no stored episodes")
    out.create_for_stored(run.config_file.read_text(encoding="utf-8") if run.exists else "")
    try:
        return _rescore_parts(run, parts, reward, out)
    except BaseException:  # a part of a run would pass for the whole of it
        shutil.rmtree(out.episodes, ignore_errors=True)
        out.metrics_file.unlink(missing_ok=True)
        out.config_file.unlink()
        raise


def _rescore_parts(
    run: RunFolder, parts: Sequence[Path], reward: RewardFunction, out: RunFolder
) -> RescoreSummary:
    pairs: list[tuple[float, float]] = []
    means: dict[int, float] = {}
    for part in parts:
        groups = read_groups(part)
        scored = [[rescored(episode, reward) for episode in group] for group in groups]
        phase, step = part.stem.rpartition("-")[0], step_of(part.stem)
        write_episodes(out.episodes, scored, phase=phase, step=step)
        own = [
            (old.reward, new.reward)
            for before, after in zip(groups, scored, strict=True)
            for old, new in zip(before, after, strict=True)
            if old.reward is not None and new.reward is not None
        ]
        pairs += own
        if phase == "train" and own:
            means[step] = fmean(new for _, new in own)
    for line in run.read_metrics():
        known = {"rollout/reward_mean": means[int(line["step"])]} if line["step"] in means else {}
        out.append_metrics(line | known)
    return RescoreSummary(
        len(pairs),
        sum(not math.isclose(old, new, abs_tol=1e-9) for old, new in pairs),
        fmean(old for old, _ in pairs) if pairs else 0.0,
        fmean(new for _, new in pairs) if pairs else 0.0,
    )


def rescored(episode: Episode, reward: RewardFunction) -> Episode:
    """Return the episode with the rewards that a function gives it.

    Rewards count in the last attempt alone, on the last token of the round's reply.
    """
    if episode.is_failed or not episode.rounds:
        return episode
    try:
        rewards = _rewards(episode, reward(episode))
    except Exception as error:  # whatever a function of the user's own raises
        raise RunError(
            f"the reward function failed for {episode.task.id}: {type(error).__name__}: {error}"
        ) from error
    last = episode.rounds[-1].attempt
    rewards = [
        value if round_.attempt == last else 0.0
        for value, round_ in zip(rewards, episode.rounds, strict=True)
    ]
    return replace(
        episode,
        reward=math.fsum(rewards),
        rounds=tuple(
            replace(round_, reward=value)
            for round_, value in zip(episode.rounds, rewards, strict=True)
        ),
        samples=tuple(_with_rewards(sample, rewards) for sample in episode.samples),
    )


def _rewards(episode: Episode, given: float | Sequence[float]) -> list[float]:
    """Return one number a round, checked."""
    num = len(episode.rounds)
    if isinstance(given, int | float):
        values = [*[0.0] * (num - 1), float(given)]
    else:
        values = [float(value) for value in given]
    if len(values) != num or not all(map(math.isfinite, values)):
        raise ValueError(
            f"the reward of {episode.task.id} must be a number, or one for each of its {num} "
            f"rounds, and finite; got {given!r}"
        )
    return values


def _with_rewards(sample: Sample, rewards: Sequence[float]) -> Sample:
    """Return the sample with each round's reward on the last token that was sampled in it."""
    tokens = [0.0] * len(sample.token_ids)
    ends: dict[int, int] = {}
    for segment in sample.segments:
        if segment.kind.is_reply and sample.loss_mask[segment.end - 1]:
            ends[segment.round_index] = segment.end - 1
    for round_index, place in ends.items():
        if round_index < len(rewards):
            tokens[place] = rewards[round_index]
    return replace(sample, rewards=tuple(tokens))
