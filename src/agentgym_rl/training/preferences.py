"""Preference pairs: two episodes of one task, of which one is better.

From the stored episodes of a run, by reward; or from a file, one pair a line: {"task":
"babyai/400", "chosen": [{"role": "user", "content": "..."}, {"role": "assistant", ...}, ...],
"rejected": [...]}, both with the messages of a conversations file and the same first one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgym_rl.config import DPOConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.conversations import (
    from_episode,
    parse_conversation,
    read_rows,
    to_sample,
)
from agentgym_rl.types import Episode, Sample

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two attempts at a task as training sequences."""

    chosen: Sample
    rejected: Sample
    origin: str
    """What it was made of, for people: "pairs.jsonl, line 3", "babyai/400"."""


@dataclass(frozen=True, slots=True)
class PairSet:
    """The pairs to learn from."""

    pairs: list[Pair]
    num_left_out: int
    """Pairs with an episode that is too long."""


def load_pairs(config: DPOConfig, policy: Policy, *, max_tokens: int) -> PairSet:
    """Return the pairs that a recipe names; those beyond the context are left out and counted."""
    path, limit = Path(config.data), min(max_tokens, policy.max_context)
    found = stored_pairs(path, config, policy) if path.is_dir() else read_pairs(path, policy)
    pairs: list[Pair] = []
    num_found = 0
    for pair in found:
        num_found += 1
        length = max(len(pair.chosen.token_ids), len(pair.rejected.token_ids))
        if length > limit:
            logger.warning("%s: pair left out: %d tokens > %d", pair.origin, length, limit)
        else:
            pairs.append(pair)
    if not pairs:
        raise ConfigError(
            f"none of {num_found} pairs of {config.data} can be used: pairs need two episodes of a "
            f"task whose rewards differ by algorithm.min_margin={config.min_margin} or more, of "
            f"at most {limit} tokens each"
        )
    return PairSet(pairs, num_found - len(pairs))


def read_pairs(path: Path, policy: Policy) -> Iterator[Pair]:
    """Yield the pairs of a file; a bad one is an error that names file and line."""
    for origin, row in read_rows(path):
        try:
            if not isinstance(row, dict):
                raise TypeError(f"a pair is an object, got {type(row).__name__}")
            sides = [parse_conversation({"messages": row[k]}) for k in ("chosen", "rejected")]
            if sides[0].messages[0] != sides[1].messages[0]:
                raise ValueError("`chosen` and `rejected` must begin with the same message")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{origin}: {type(error).__name__}: {error}") from error
        chosen, rejected = (to_sample(side, policy.renderer) for side in sides)
        yield Pair(chosen, rejected, origin)


def stored_pairs(folder: Path, config: DPOConfig, policy: Policy) -> Iterator[Pair]:
    """Yield pairs of a run's training episodes; those of evaluations are not learned from."""
    by_task: dict[str, list[Episode]] = {}
    for episode in _training_episodes(folder):
        by_task.setdefault(episode.task.id, []).append(episode)
    num_rendered = 0
    for task, episodes in by_task.items():
        for better, worse in pair_up(
            episodes, min_margin=config.min_margin, max_pairs=config.pairs_per_task
        ):
            samples = [exact_sample(episode, policy.renderer) for episode in (better, worse)]
            num_rendered += samples[0] is not better.samples[0]
            yield Pair(samples[0], samples[1], task)
    if num_rendered:
        logger.warning(
            "%s: %d pairs were sampled with another tokenizer, and are rendered from their text",
            folder,
            num_rendered,
        )


def pair_up(
    episodes: Sequence[Episode], *, min_margin: float, max_pairs: int
) -> list[tuple[Episode, Episode]]:
    """Return the best with the worst, the second best with the second worst, and so on.

    Ends where rewards differ by less than `min_margin`. Failed episodes have no reward and are in
    no pair.
    """
    ranked = sorted(
        ((episode.reward, episode) for episode in episodes if episode.reward is not None),
        key=lambda item: -item[0],
    )
    pairs = []
    for place in range(min(max_pairs, len(ranked) // 2)):
        (high, better), (low, worse) = ranked[place], ranked[-1 - place]
        if high - low < min_margin:
            break
        pairs.append((better, worse))
    return pairs


def exact_sample(episode: Episode, renderer: ChatRenderer) -> Sample:
    """Return the tokens as they were sampled, or, by another tokenizer's model, rendered anew."""
    sample = episode.samples[0]
    prompt = sample.segments[0]
    stored = list(sample.token_ids[prompt.start : prompt.end])
    if stored == list(renderer.prompt(episode.messages[0].content)):
        return sample
    return to_sample(from_episode(episode), renderer)


def _training_episodes(folder: Path) -> Iterator[Episode]:
    parts = sorted(RunFolder(folder).episodes.glob("train-*.parquet"))
    if not parts:
        raise ConfigError(
            f"algorithm.data={folder} has no episodes/train-*.parquet; it takes the folder of a "
            "run that collected episodes, or a file of pairs in JSON lines"
        )
    for part in parts:
        for row, episode in enumerate(read_episodes(part), start=1):
            if episode.reward is not None and not math.isfinite(episode.reward):
                raise ConfigError(f"{part}, row {row}: the reward is {episode.reward}")
            if len(episode.samples) > 1:
                raise ConfigError(
                    f"{part}, row {row}: an episode in {len(episode.samples)} samples, because "
                    "its context was edited, cannot be compared as one"
                )
            yield episode
