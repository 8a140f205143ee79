"""Group-relative policy optimisation (GRPO, arXiv:2402.03300; Dr.GRPO, arXiv:2503.20783)."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.config import GRPOConfig
from agentgym_rl.training.algorithms.advantages import group_relative, rounds_group_relative
from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens
from agentgym_rl.training.algorithms.group_returns import (
    episode_returns,
    round_returns,
    spread_over_rounds,
    spread_over_tokens,
)
from agentgym_rl.training.algorithms.online import Estimate, OnlineAlgorithm, SharedSettings


class GRPO(OnlineAlgorithm):
    """What an episode (or a round and the later ones) earned, relative to its group."""

    def __init__(self, config: GRPOConfig, shared: SharedSettings) -> None:
        super().__init__(shared)
        self._config = config

    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        discount, normalize_std = self._credit.discount, self._config.normalize_std
        if self._config.level == "round":
            returns_GK = round_returns(group, discount=discount)
            relative_GK = rounds_group_relative(returns_GK, normalize_std=normalize_std)
            return spread_over_rounds(relative_GK, group)
        returns_G = episode_returns(group, discount=discount)
        return spread_over_tokens(group_relative(returns_G, normalize_std=normalize_std), group)
