"""An episode as estimators see it: rewards, rounds and values of its action tokens only.

"Action tokens" are all that the policy sampled: thoughts, plans, reflections and summaries too.
Samples of an episode follow one another in time, and no token is sampled in two, so together they
are the episode, however its context was edited.

Shape legend: A action tokens of an episode, all its samples one after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from agentgym_rl.training.algorithms.base import ScoredEpisode, ScoredSample
from agentgym_rl.training.algorithms.kl import Estimator, divergence
from agentgym_rl.types import Episode, Sample

State = tuple[int, str | None]
"""The try, and what the agent saw last; None at the beginning, which a group shares. Tries differ
in what can still be earned, so they are separate states."""


@dataclass(frozen=True, slots=True)
class KLPenalty:
    """What is taken from the reward of each token for leaving the reference."""

    coef: float
    estimator: Estimator


@dataclass(frozen=True, slots=True)
class EpisodeTokens:
    """What an estimator knows of an episode."""

    rewards_A: Tensor
    """float64; the reward of a round is on its last action token."""
    rounds_A: Tensor
    """The round of each token, from 0 without gaps."""
    states: tuple[State, ...]
    """Where the agent stood before each round."""
    values_A: Tensor | None = None
    final_value: float = 0.0
    earned_A: Tensor | None = None
    """The rewards before the penalty; None without a penalty."""

    @property
    def num_tokens(self) -> int:
        return len(self.rewards_A)


def episode_tokens(scored: ScoredEpisode, *, penalty: KLPenalty | None = None) -> EpisodeTokens:
    """Return the action tokens of an episode, with `penalty` taken from their rewards."""
    rewards = [
        reward for item in scored.samples for reward in actions_of(item.sample, item.sample.rewards)
    ]
    _check_rewards(scored.episode, rewards)
    rewards_A = torch.tensor(rewards, dtype=torch.float64)
    earned_A = None
    if penalty is not None:
        earned_A = rewards_A
        rewards_A = rewards_A - penalty.coef * _divergences(scored, penalty.estimator)
    rounds = [round_ for item in scored.samples for round_ in rounds_of_actions(item.sample)]
    values = [value for item in scored.samples for value in item.scores.values or ()]
    return EpisodeTokens(
        rewards_A=rewards_A,
        rounds_A=_numbered(rounds),
        states=tuple(_state(scored.episode, index) for index in dict.fromkeys(rounds)),
        values_A=torch.tensor(values, dtype=torch.float64) if values else None,
        final_value=scored.final_value,
        earned_A=earned_A,
    )


def _state(episode: Episode, round_index: int) -> State:
    """Return where the agent stood before a round, which a full context may have kept it from."""
    before = episode.rounds[round_index - 1] if round_index else None
    own = episode.rounds[round_index] if round_index < len(episode.rounds) else before
    try_index = own.try_index if own is not None else 0
    if before is None or before.try_index != try_index:
        return try_index, None
    return try_index, before.observation


def actions_of(sample: Sample, entries: tuple[float, ...]) -> list[float]:
    """Return the entries at action tokens."""
    return [entry for entry, mask in zip(entries, sample.loss_mask, strict=True) if mask]


def rounds_of_actions(sample: Sample) -> Iterator[int]:
    """Yield the round of each action token.

    Segments know it; without segments, every run of action tokens is a round.
    """
    if sample.segments:
        for segment in sample.segments:
            yield from [segment.round_index] * sum(sample.loss_mask[segment.start : segment.end])
        return
    round_index, was_action = -1, False
    for mask in sample.loss_mask:
        round_index += mask and not was_action
        was_action = bool(mask)
        if mask:
            yield round_index


def _check_rewards(episode: Episode, rewards: list[float]) -> None:
    """A reward off the action tokens would be lost silently, so it is an error."""
    total = math.fsum(rewards)
    if episode.reward is None or not math.isclose(total, episode.reward, abs_tol=1e-6):
        raise ValueError(
            f"the action tokens of an episode of {episode.task.id} carry rewards of {total}, the "
            f"episode one of {episode.reward}: rewards belong on the last action token of a round"
        )


def _numbered(rounds: list[int]) -> Tensor:
    """Return the rounds counted from 0 without gaps."""
    rounds_A = torch.tensor(rounds, dtype=torch.long)
    return torch.unique_consecutive(rounds_A, return_inverse=True)[1]


def _divergences(scored: ScoredEpisode, estimator: Estimator) -> Tensor:
    def stack(parts: Iterator[tuple[float, ...]]) -> Tensor:
        return torch.tensor([entry for part in parts for entry in part], dtype=torch.float64)

    old_A = stack(old_logprobs(item) for item in scored.samples)
    ref_A = stack(item.scores.ref_logprobs or () for item in scored.samples)
    return divergence(old_A, ref_A, estimator=estimator)


def old_logprobs(item: ScoredSample) -> tuple[float, ...]:
    """Return the log-probabilities before the first update: the learner's, else the engine's."""
    if item.scores.logprobs is not None:
        return item.scores.logprobs
    return tuple(actions_of(item.sample, item.sample.logprobs))
