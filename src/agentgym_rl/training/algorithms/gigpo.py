"""Group-in-group policy optimisation (GiGPO, arXiv:2505.10978)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentgym_rl.config import GiGPOConfig
from agentgym_rl.training.algorithms.advantages import group_relative, relative_in_equal_states
from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens
from agentgym_rl.training.algorithms.group_returns import (
    episode_returns,
    returns_by_episode,
    without_penalties,
)
from agentgym_rl.training.algorithms.online import Estimate, OnlineAlgorithm


class GiGPO(OnlineAlgorithm[GiGPOConfig]):
    """The advantage of an episode over its group, plus the advantage of each action over the
    group's actions in the same state, where a state is the text that the agent saw last."""

    config_class = GiGPOConfig

    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        normalize_std = self.config.normalize_std
        # As published, whole episodes are compared without discount and steps with it.
        plain = without_penalties(group)
        whole_G = group_relative(
            episode_returns(group, discount=1.0),
            normalize_std=normalize_std,
            earned_G=episode_returns(plain, discount=1.0) if plain else None,
        )
        discount = self._credit.discount
        returns = returns_by_episode(group, discount=discount)
        step_N = relative_in_equal_states(
            torch.cat(returns),
            [state for item in group for state in item.states],
            normalize_std=normalize_std,
            earned_N=torch.cat(returns_by_episode(plain, discount=discount)) if plain else None,
        )
        steps = step_N.split([len(part) for part in returns])
        return [
            Estimate((whole + step_K)[item.rounds_A])
            for whole, step_K, item in zip(whole_G, steps, group, strict=True)
        ]
