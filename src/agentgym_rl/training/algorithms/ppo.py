"""Proximal policy optimisation (PPO, arXiv:1707.06347) with a critic and GAE (arXiv:1506.02438)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from agentgym_rl.config import PPOConfig
from agentgym_rl.training.algorithms.base import CriticNeeds, SharedSettings, TokenBatch, TokenLoss
from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens
from agentgym_rl.training.algorithms.losses import value_loss
from agentgym_rl.training.algorithms.online import Estimate, OnlineAlgorithm
from agentgym_rl.training.algorithms.returns import generalized_advantages

_VALUE_WEIGHT = 0.5
"""Of the critic's loss beside the policy's; it matters where they share layers."""


class PPO(OnlineAlgorithm[PPOConfig]):
    """What a token led to, relative to what the critic expected before it."""

    config_class = PPOConfig
    whitens = True

    def __init__(self, config: PPOConfig, shared: SharedSettings) -> None:
        super().__init__(config, shared)
        bootstraps = shared.credit.truncated == "bootstrap"
        critic = CriticNeeds(config.critic, lr=config.critic_lr, bootstraps=bootstraps)
        self.needs = replace(self.needs, critic=critic)

    def updates_policy(self, step: int) -> bool:
        return step > self.config.critic_warmup_steps

    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        return [self._estimate(item) for item in group]

    def _estimate(self, item: EpisodeTokens) -> Estimate:
        assert item.values_A is not None, "the learner gives them where `needs` has a critic"
        advantages_A = generalized_advantages(
            item.rewards_A,
            item.values_A,
            item.rounds_A,
            discount=self._credit.discount,
            lambda_=self.config.gae_lambda,
            final_value=item.final_value,
        )
        return Estimate(advantages_A, returns_A=advantages_A + item.values_A)

    def report(
        self, episodes: Sequence[EpisodeTokens], estimates: Sequence[Estimate]
    ) -> dict[str, float]:
        values_N = torch.cat([item.values_A for item in episodes if item.values_A is not None])
        errors_N = torch.cat([estimate.advantages_A for estimate in estimates])
        variance = float((values_N + errors_N).var(unbiased=False))
        explained = 1 - float(errors_N.var(unbiased=False)) / variance if variance > 0 else 0.0
        return super().report(episodes, estimates) | {
            "train/value_mean": float(values_N.mean()),
            "train/explained_variance": explained,
        }

    def loss(self, batch: TokenBatch) -> TokenLoss:
        policy = super().loss(batch)
        values_A, old_A, returns_A = batch.values_A, batch.old_values_A, batch.returns_A
        assert values_A is not None and old_A is not None and returns_A is not None, "a critic"
        critic_A = value_loss(values_A, old_A, returns_A, clip=self.config.value_clip)
        return replace(
            policy,
            metrics=policy.metrics | {"train/value_loss": critic_A},
            critic_A=_VALUE_WEIGHT * critic_A,
        )
