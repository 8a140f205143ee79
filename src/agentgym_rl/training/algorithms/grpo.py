"""Group-relative policy optimisation (GRPO, arXiv:2402.03300; Dr.GRPO, arXiv:2503.20783)."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.config import GRPOConfig
from agentgym_rl.training.algorithms.advantages import group_relative, rounds_group_relative
from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens
from agentgym_rl.training.algorithms.group_returns import (
    round_returns,
    spread_over_rounds,
    spread_over_tokens,
    without_penalties,
)
from agentgym_rl.training.algorithms.online import Estimate, OnlineAlgorithm


class GRPO(OnlineAlgorithm[GRPOConfig]):
    """What an episode (or a round and the later ones) earned, relative to its group."""

    config_class = GRPOConfig

    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        discount, normalize_std = self._credit.discount, self.config.normalize_std
        returns_GK = round_returns(group, discount=discount)
        plain = without_penalties(group)
        earned_GK = round_returns(plain, discount=discount) if plain else None
        if self.config.level == "round":
            relative_GK = rounds_group_relative(
                returns_GK, normalize_std=normalize_std, earned_GK=earned_GK
            )
            return spread_over_rounds(relative_GK, group)
        relative_G = group_relative(
            returns_GK[:, 0],
            normalize_std=normalize_std,
            earned_G=None if earned_GK is None else earned_GK[:, 0],
        )
        return spread_over_tokens(relative_G, group)
