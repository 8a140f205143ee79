"""Group-relative policy optimisation (GRPO, arXiv:2402.03300)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentgym_rl.config import GRPOConfig
from agentgym_rl.training.algorithms.advantages import group_relative
from agentgym_rl.training.algorithms.base import Algorithm, TokenBatch, TokenLoss, TrainingSample
from agentgym_rl.training.algorithms.losses import clip_fraction, clipped_policy_loss
from agentgym_rl.types import Group


class GRPO(Algorithm):
    """Every action token of an episode has the episode's advantage over its group."""

    def __init__(self, config: GRPOConfig) -> None:
        self._config = config

    def advantages(self, groups: Sequence[Group]) -> list[list[TrainingSample]]:
        result = []
        for group in groups:
            rewards_G = torch.tensor(
                [episode.reward for episode in group.episodes], dtype=torch.float64
            )
            advantages_G = group_relative(rewards_G, normalize_std=self._config.normalize_std)
            result.append(
                [
                    TrainingSample(sample, (advantage,) * sample.num_action_tokens)
                    for episode, advantage in zip(
                        group.episodes, advantages_G.tolist(), strict=True
                    )
                    for sample in episode.samples
                ]
            )
        return result

    def loss(self, batch: TokenBatch) -> TokenLoss:
        config = self._config
        inputs = (batch.logprobs_A, batch.old_logprobs_A, batch.advantages_A)
        loss_A = clipped_policy_loss(*inputs, clip_low=config.clip_low, clip_high=config.clip_high)
        if config.entropy_coef:
            loss_A = loss_A - config.entropy_coef * batch.entropies_A
        clipped_A = clip_fraction(*inputs, clip_low=config.clip_low, clip_high=config.clip_high)
        return TokenLoss(loss_A, {"train/clip_fraction": clipped_A})
