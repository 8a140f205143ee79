"""REINFORCE with a leave-one-out baseline (RLOO, arXiv:2402.14740)."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.config import RLOOConfig
from agentgym_rl.training.algorithms.advantages import leave_one_out
from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens
from agentgym_rl.training.algorithms.group_returns import (
    episode_returns,
    round_returns,
    spread_over_rounds,
    spread_over_tokens,
)
from agentgym_rl.training.algorithms.online import Estimate, OnlineAlgorithm


class RLOO(OnlineAlgorithm[RLOOConfig]):
    """What an episode (or a round and the later ones) earned beyond the mean of the others."""

    config_class = RLOOConfig

    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        discount = self._credit.discount
        if self.config.level == "round":
            returns_GK = round_returns(group, discount=discount)
            return spread_over_rounds(leave_one_out(returns_GK), group)
        return spread_over_tokens(leave_one_out(episode_returns(group, discount=discount)), group)
