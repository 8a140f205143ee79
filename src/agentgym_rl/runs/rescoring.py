"""Stored episodes under another reward, without running them again.

What a reward function gets and returns is in rewards.py; named parts have weight 1 here. Failed
episodes have no reward and are not asked about. Advantages and the metrics of parts were made of
the old reward, so they are left out.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import shutil
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from agentgym_rl.errors import RunError
from agentgym_rl.rewards import RewardFunction, Rewarding, with_rewards
from agentgym_rl.runs.episodes import read_groups, write_episodes
from agentgym_rl.runs.folder import RunFolder, step_of
from agentgym_rl.runs.record import record_stored
from agentgym_rl.types import Episode


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
        summary = _rescore_parts(run, parts, reward, out)
    except BaseException:  # a part of a run would pass for the whole of it
        shutil.rmtree(out.episodes, ignore_errors=True)
        out.metrics_file.unlink(missing_ok=True)
        out.config_file.unlink()
        with suppress(OSError):  # not empty: it was there before
            out.path.rmdir()
        raise
    record_stored(out)
    return summary


def _rescore_parts(
    run: RunFolder, parts: Sequence[Path], reward: RewardFunction, out: RunFolder
) -> RescoreSummary:
    pairs: list[tuple[float, float]] = []
    means: dict[int, float] = {}
    for part in parts:
        groups = read_groups(part, with_pictures=True)
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
        kept = {name: line[name] for name in line if not name.startswith("rollout/reward/")}
        out.append_metrics(kept | known)
    return RescoreSummary(
        len(pairs),
        sum(not math.isclose(old, new, abs_tol=1e-9) for old, new in pairs),
        fmean(old for old, _ in pairs) if pairs else 0.0,
        fmean(new for _, new in pairs) if pairs else 0.0,
    )


def rescored(episode: Episode, reward: RewardFunction) -> Episode:
    """Return the episode with the rewards that a function gives it (`rewards.with_rewards`)."""
    if episode.is_failed or not episode.rounds:
        return episode
    try:
        given = reward(episode)
        if inspect.isawaitable(given):
            given = asyncio.run(_awaited(given))
        return with_rewards(episode, given)
    except Exception as error:  # whatever a function of the user's own raises
        raise RunError(
            f"the reward function failed for {episode.task.id}: {type(error).__name__}: {error}"
        ) from error


async def _awaited(given: Awaitable[Rewarding]) -> Rewarding:
    return await given
