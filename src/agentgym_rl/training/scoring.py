"""Scoring: what an algorithm wants to know of a step's episodes before the first update."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.critic import Critic
from agentgym_rl.training.algorithms.base import ScoredEpisode, ScoredSample, Scores
from agentgym_rl.training.passes import split_by_tokens
from agentgym_rl.types import Episode, Group, Sample, StopReason

logger = logging.getLogger(__name__)

PerToken = Callable[[Sequence[Sample]], Tensor]
"""From packed samples to one number for each action token."""


@dataclass(frozen=True, slots=True)
class Scorers:
    """Who computes what; None: not asked for."""

    policy: PerToken | None = None
    reference: PerToken | None = None
    values: PerToken | None = None


@torch.no_grad()
def score_groups(
    groups: Sequence[Group], scorers: Scorers, *, max_tokens: int
) -> list[list[ScoredEpisode]]:
    """Return the episodes of each group with the scores of their samples.

    Samples are packed into passes of at most `max_tokens` tokens.
    """
    items = [
        ScoredSample(sample)
        for group in groups
        for episode in group.episodes
        for sample in episode.samples
    ]
    passes = split_by_tokens(items, max_tokens=max_tokens)
    scored = chain.from_iterable(_score([i.sample for i in items], scorers) for items in passes)
    return [
        [
            ScoredEpisode(episode, tuple(next(scored) for _ in episode.samples))
            for episode in group.episodes
        ]
        for group in groups
    ]


@torch.no_grad()
def final_value(
    episode: Episode, critic: Critic, renderer: ChatRenderer, *, max_context: int
) -> float:
    """Return the value of where the horizon cut an episode, 0 for one that ended otherwise.

    The state is what the next reply would have been sampled from: all tokens so far, and the last
    observation as the policy would have seen it.
    """
    if episode.stop_reason is not StopReason.MAX_ROUNDS or not episode.samples:
        return 0.0
    ids = list(episode.samples[-1].token_ids)
    ids += renderer.turn(episode.rounds[-1].observation, reply_ids=ids)
    if len(ids) > max_context:
        logger.warning(
            "an episode of %s is not bootstrapped: its last observation ends at token %d, beyond "
            "the model's %d",
            episode.task.id,
            len(ids),
            max_context,
        )
        return 0.0
    return float(critic.final_values([ids])[0])


def _score(samples: list[Sample], scorers: Scorers) -> list[ScoredSample]:
    """Return the scores of one pass."""

    def score(scorer: PerToken | None) -> list[tuple[float, ...] | None]:
        if scorer is None:
            return [None] * len(samples)
        parts = scorer(samples).cpu().split([sample.num_action_tokens for sample in samples])
        return [tuple(part.tolist()) for part in parts]

    columns = (score(scorers.policy), score(scorers.reference), score(scorers.values))
    return [
        ScoredSample(sample, Scores(*own))
        for sample, own in zip(samples, zip(*columns, strict=True), strict=True)
    ]
