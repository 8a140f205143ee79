"""What the online algorithms share: everything but the estimator of advantages.

Shape legend: A action tokens of an episode, N action tokens of a step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from agentgym_rl.config import OnlineConfig
from agentgym_rl.training.algorithms.advantages import whiten
from agentgym_rl.training.algorithms.aggregation import Aggregation
from agentgym_rl.training.algorithms.base import (
    Algorithm,
    Batch,
    Needs,
    ScoredEpisode,
    SharedSettings,
    TokenBatch,
    TokenLoss,
    TrainingSample,
)
from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens, KLPenalty, episode_tokens
from agentgym_rl.training.algorithms.policy_loss import PolicyLoss

_Config = TypeVar("_Config", bound=OnlineConfig)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an estimator says of one episode, one entry per action token."""

    advantages_A: Tensor
    returns_A: Tensor | None = None
    """What the critic should say, where there is one."""


class OnlineAlgorithm(Algorithm, Generic[_Config]):
    """Estimates advantages group by group; an algorithm is its estimator."""

    whitens = False
    """Whether advantages get mean 0 and deviation 1 over the step."""

    def __init__(self, config: _Config, shared: SharedSettings) -> None:
        self.config = config
        self._credit, self._kl = shared.credit, shared.kl
        self._policy_loss = PolicyLoss(shared.policy_loss, shared.kl)
        self.aggregation = Aggregation(shared.policy_loss.aggregation, shared.max_tokens)
        self.needs = Needs(
            policy=shared.policy_loss.importance_cap > 0, reference=shared.kl.coef > 0
        )

    def prepare(self, history: Sequence[Mapping[str, float]]) -> None:
        entropies = (line["train/entropy"] for line in reversed(history))
        # A step that had nothing to learn from reports 0.
        self._policy_loss.prepare(next((entropy for entropy in entropies if entropy), None))

    @abstractmethod
    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        """Return an estimate for each episode of a group."""

    def advantages(self, groups: Sequence[Sequence[ScoredEpisode]]) -> Batch:
        in_reward = self._kl.coef > 0 and self._kl.place == "reward"
        penalty = KLPenalty(self._kl.coef, self._kl.estimator) if in_reward else None
        tokens = [[episode_tokens(item, penalty=penalty) for item in group] for group in groups]
        estimates = [self.estimate(group) for group in tokens]
        flat = [estimate for group in estimates for estimate in group]
        metrics = self.report([item for group in tokens for item in group], flat)
        if self._credit.normalize_per_env:
            flat = _whitened(flat, [item.episode.task.env for group in groups for item in group])
        elif self.whitens:
            flat = _whitened(flat, [""] * len(flat))
        finished, num_masked = iter(flat), 0
        samples: list[list[TrainingSample]] = []
        for group in groups:
            samples.append([])
            for item in group:
                estimate = next(finished)
                if self._credit.truncated == "mask" and item.episode.stop_reason.is_truncation:
                    num_masked += 1
                else:
                    samples[-1] += _training_samples(item, estimate)
        metrics["train/episodes_masked"] = float(num_masked)
        metrics["train/entropy_coef"] = self._policy_loss.entropy_coef
        return Batch(samples, metrics)

    def report(
        self, episodes: Sequence[EpisodeTokens], estimates: Sequence[Estimate]
    ) -> dict[str, float]:
        """Return metrics of a step's estimates, before they are normalised."""
        advantages_N = torch.cat([estimate.advantages_A for estimate in estimates])
        return {"train/advantage_std": float(advantages_N.std(unbiased=False))}

    def loss(self, batch: TokenBatch) -> TokenLoss:
        return self._policy_loss(batch)


def _whitened(estimates: Sequence[Estimate], parts: Sequence[str]) -> list[Estimate]:
    """Return the estimates with advantages of mean 0 and deviation 1 over the tokens of each part.

    `parts` says for each estimate which part of the step it belongs to.
    """
    whitened: dict[int, Estimate] = {}
    for part in dict.fromkeys(parts):
        places = [place for place, other in enumerate(parts) if other == part]
        advantages = [estimates[place].advantages_A for place in places]
        split = whiten(torch.cat(advantages)).split([len(item) for item in advantages])
        for place, advantages_A in zip(places, split, strict=True):
            whitened[place] = replace(estimates[place], advantages_A=advantages_A)
    return [whitened[place] for place in range(len(estimates))]


def _training_samples(scored: ScoredEpisode, estimate: Estimate) -> list[TrainingSample]:
    """Return the episode's samples, each with its part of the estimate."""
    lengths = [item.sample.num_action_tokens for item in scored.samples]
    advantages = estimate.advantages_A.split(lengths)
    returns = estimate.returns_A.split(lengths) if estimate.returns_A is not None else None
    return [
        TrainingSample(
            item.sample,
            tuple(advantages[place].tolist()),
            item.scores,
            returns=tuple(returns[place].tolist()) if returns is not None else None,
            num_tokens_elsewhere=sum(lengths) - lengths[place],
        )
        for place, item in enumerate(scored.samples)
    ]
