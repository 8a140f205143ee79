"""REINFORCE++ (arXiv:2501.03262): returns to go, normalised over the whole batch."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.config import ReinforcePPConfig
from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens
from agentgym_rl.training.algorithms.online import Estimate, OnlineAlgorithm
from agentgym_rl.training.algorithms.returns import token_returns


class ReinforcePP(OnlineAlgorithm[ReinforcePPConfig]):
    """What each token and the later ones earned; groups play no part."""

    config_class = ReinforcePPConfig
    whitens = True

    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        return [
            Estimate(token_returns(item.rewards_A, item.rounds_A, discount=self._credit.discount))
            for item in group
        ]
