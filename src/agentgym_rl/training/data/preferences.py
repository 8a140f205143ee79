"""Preference pairs: two episodes of one task, of which one is better.

From the stored episodes of a run, by reward; or from a file, one pair per line: {"task":
"babyai/400", "chosen": [{"role": "user", "content": "..."}, {"role": "assistant", ...}, ...],
"rejected": [...]}, both with the messages of a conversations file and the same first one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from agentgym_rl.config import DPOConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.json_rows import read_rows
from agentgym_rl.training.data.conversation_files import parse_conversation
from agentgym_rl.training.data.conversations import Conversation, from_episode, to_sample
from agentgym_rl.types import Episode, Sample

logger = logging.getLogger(__name__)

_Tokens: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""What is compared of an episode: its tokens, and which of them the agent said."""
_SOURCES = "the folder of a run that collected episodes, or a file of pairs in JSON lines"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two episodes of a task as training sequences."""

    chosen: Sample
    rejected: Sample
    origin: str
    """What it was made of, for people: "pairs.jsonl, line 3", "babyai/400"."""


@dataclass(frozen=True, slots=True)
class PairSet:
    """The pairs to learn from."""

    pairs: list[Pair]
    num_left_out: int
    """Pairs that are too long, whose two episodes are equal, or that are repeated."""


def load_pairs(config: DPOConfig, policy: Policy, *, max_tokens: int) -> PairSet:
    """Return the pairs that a recipe names.

    Those that are too long or teach nothing are left out, each with a warning, and counted.
    """
    path, limit = Path(config.data), min(max_tokens, policy.max_context)
    if not path.exists():
        raise ConfigError(f"algorithm.data={config.data} does not exist; it takes {_SOURCES}")
    found = stored_pairs(path, config, policy) if path.is_dir() else read_pairs(path, policy)
    pairs: dict[tuple[_Tokens, _Tokens], Pair] = {}
    num_found, num_long = 0, 0
    for pair in found:
        num_found += 1
        tokens = (_tokens(pair.chosen), _tokens(pair.rejected))
        length = max(len(pair.chosen.token_ids), len(pair.rejected.token_ids))
        if length > limit:
            num_long += 1
            reason = f"{length} tokens are more than {limit}"
        elif tokens[0] == tokens[1]:
            reason = "its two episodes are equal"
        elif tokens in pairs:
            reason = f"it repeats the pair of {pairs[tokens].origin}"
        else:
            pairs[tokens] = pair
            continue
        logger.warning("%s: pair left out: %s", pair.origin, reason)
    if not pairs:
        if not num_found:
            raise ConfigError(_why_no_pairs(path, config))
        raise ConfigError(
            f"none of {num_found} pairs of {config.data} can be used: {num_long} are longer than "
            f"{limit} tokens (rollout.max_tokens, or the model's context), {num_found - num_long} "
            "have two equal episodes"
        )
    return PairSet(list(pairs.values()), num_found - len(pairs))


def read_pairs(path: Path, policy: Policy) -> Iterator[Pair]:
    """Yield the pairs of a file; a bad one is an error that names file and line."""
    for origin, row in read_rows(path, what="pairs"):
        try:
            if not isinstance(row, dict):
                raise ValueError(f"a pair is an object, got {type(row).__name__}")
            chosen, rejected = (_side(row, key) for key in ("chosen", "rejected"))
            if chosen.opening != rejected.opening:
                raise ValueError("`chosen` and `rejected` must begin with the same message")
        except ValueError as error:
            raise ConfigError(f"{origin}: {error}") from error
        yield Pair(to_sample(chosen, policy.renderer), to_sample(rejected, policy.renderer), origin)


def stored_pairs(folder: Path, config: DPOConfig, policy: Policy) -> Iterator[Pair]:
    """Yield pairs of a run's training episodes; evaluations are not learned from."""
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
    """Return the tokens as sampled or, for a model with another tokenizer, rendered again."""
    sample = episode.samples[0]
    prompt = sample.segments[0]
    stored = list(sample.token_ids[prompt.start : prompt.end])
    if stored == list(renderer.prompt(episode.messages[0].content)):
        return sample
    return to_sample(from_episode(episode), renderer)


def _training_episodes(folder: Path) -> Iterator[Episode]:
    """Yield the episodes that have a reward."""
    parts = sorted(RunFolder(folder).episodes.glob("train-*.parquet"))
    if not parts:
        raise ConfigError(
            f"algorithm.data={folder} has no episodes/train-*.parquet; it takes {_SOURCES}"
        )
    for part in parts:
        for row, episode in enumerate(read_episodes(part), start=1):
            if episode.reward is not None:
                complaint = _complaint(episode, episode.reward)
                if complaint:
                    raise ConfigError(f"{part}, row {row}: {complaint}")
                yield episode


def _complaint(episode: Episode, reward: float) -> str:
    """Return what keeps a stored episode from being compared, or nothing."""
    if not math.isfinite(reward):
        return f"the reward is {reward}"
    if len(episode.samples) != 1:
        return (
            f"an episode of {len(episode.samples)} samples cannot be compared, only one of a "
            "single sample; an agent that edits its context makes several"
        )
    (sample,) = episode.samples
    aligned = {len(sample.token_ids), len(sample.loss_mask), len(sample.logprobs)}
    if len(aligned) > 1 or not sample.segments or not sample.num_action_tokens:
        return (
            f"the sample is damaged: {len(sample.token_ids)} tokens, {len(sample.loss_mask)} marks "
            f"of which {sample.num_action_tokens} are of actions, {len(sample.segments)} segments"
        )
    return "" if episode.messages else "the episode has no messages"


def _why_no_pairs(path: Path, config: DPOConfig) -> str:
    """Return what is missing where nothing at all could be paired."""
    if not path.is_dir():
        return f"{path} is empty; every line is a pair with `chosen` and `rejected`"
    return (
        f"the episodes of {path} make no pair: no task has two whose rewards differ by "
        f"algorithm.min_margin={config.min_margin} or more; lower it, or collect more episodes per "
        "task (algorithm.group_size of that run)"
    )


def _side(row: dict[str, object], key: str) -> Conversation:
    if key not in row:
        raise ValueError(f"a pair has `chosen` and `rejected`, but `{key}` is missing")
    try:
        return parse_conversation({"messages": row[key]})
    except ValueError as error:
        raise ValueError(f"`{key}`: {error}") from error


def _tokens(sample: Sample) -> _Tokens:
    return sample.token_ids, sample.loss_mask
