"""Scoring: what an algorithm needs to know about a step's episodes before the first update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from agentgym_rl.models.loading import Policy
from agentgym_rl.training.algorithms.base import ScoredEpisode, ScoredSample, Scores
from agentgym_rl.training.learner.packing import Packing
from agentgym_rl.types import Episode, Group, Sample, SegmentKind

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
    groups: Sequence[Group], scorers: Scorers, *, packing: Packing
) -> list[list[ScoredEpisode]]:
    """Return the episodes of each group with the scores of their samples."""
    samples = [s for group in groups for episode in group.episodes for s in episode.samples]
    return regrouped(groups, score_samples(samples, scorers, packing=packing))


def regrouped(
    groups: Sequence[Group], samples: Sequence[ScoredSample]
) -> list[list[ScoredEpisode]]:
    """Return the episodes of each group with their scored samples, which are in this order."""
    scored = iter(samples)
    return [
        [
            ScoredEpisode(episode, tuple(next(scored) for _ in episode.samples))
            for episode in group.episodes
        ]
        for group in groups
    ]


@torch.no_grad()
def score_samples(
    samples: Sequence[Sample], scorers: Scorers, *, packing: Packing
) -> list[ScoredSample]:
    """Return the samples with their scores, in order."""
    passes = packing.split(samples, lambda sample: sample.token_ids)
    return list(chain.from_iterable(_score(part, scorers) for part in passes))


def bootstrap_groups(
    groups: Sequence[Sequence[ScoredEpisode]],
    policy: Policy,
    final_values: Callable[[Sequence[Sequence[int]]], list[float]],
) -> list[list[ScoredEpisode]]:
    """Return the episodes with the value of the state in which a limit on length ended them, or 0.

    The state is what the next reply would have been sampled from: all tokens so far, and the last
    observation as the policy would have seen it. If this leaves no room in the model's context, no
    reply could follow with any limit, so the value is 0.
    """
    ends = [_ids_after(item.episode, policy) for group in groups for item in group]
    values = iter(final_values([ids for ids in ends if ids]))
    of_episode = iter([next(values) if ids else 0.0 for ids in ends])
    return [[replace(item, final_value=next(of_episode)) for item in group] for group in groups]


def _ids_after(episode: Episode, policy: Policy) -> tuple[int, ...]:
    """Return all tokens up to where a limit cut the episode, the last observation included.

    None where no limit did, or no reply could follow.
    """
    if not episode.stop_reason.is_truncation or not episode.rounds:
        return ()
    if episode.samples[-1].segments[-1].kind is not SegmentKind.ACTION:
        return ()  # a plan or a summary filled the context: nothing answers it
    ids = list(episode.samples[-1].token_ids)
    ids += policy.renderer.turn(episode.rounds[-1].observation, reply_ids=ids, is_result=True)
    return tuple(ids) if len(ids) < policy.max_context else ()


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
