"""The returns of a group as tensors, and the way back to tokens.

Shape legend: G episodes of one group, K rounds of the longest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens
from agentgym_rl.training.algorithms.online import Estimate
from agentgym_rl.training.algorithms.returns import returns_to_go, round_rewards


def episode_returns(group: Sequence[EpisodeTokens], *, discount: float) -> Tensor:
    """Return what each episode earned (G), seen from its start."""
    return round_returns(group, discount=discount)[:, 0]


def round_returns(group: Sequence[EpisodeTokens], *, discount: float) -> Tensor:
    """Return what each round and the later ones earned (G, K); 0 where an episode is over."""
    return pad_sequence(returns_by_episode(group, discount=discount), batch_first=True)


def without_penalties(group: Sequence[EpisodeTokens]) -> list[EpisodeTokens] | None:
    """Return the episodes with what they earned; None where no penalty was taken from it."""
    earned = [replace(item, rewards_A=item.earned_A) for item in group if item.earned_A is not None]
    return earned or None


def returns_by_episode(group: Sequence[EpisodeTokens], *, discount: float) -> list[Tensor]:
    """Return what each round and the later ones earned, for each episode (K)."""
    return [
        returns_to_go(round_rewards(item.rewards_A, item.rounds_A), discount=discount)
        for item in group
    ]


def spread_over_tokens(advantages_G: Tensor, group: Sequence[EpisodeTokens]) -> list[Estimate]:
    """Give every action token of an episode the advantage of the episode."""
    return [
        Estimate(advantage.repeat(item.num_tokens))
        for advantage, item in zip(advantages_G, group, strict=True)
    ]


def spread_over_rounds(advantages_GK: Tensor, group: Sequence[EpisodeTokens]) -> list[Estimate]:
    """Give every action token the advantage of its round."""
    return [
        Estimate(advantages_K[item.rounds_A])
        for advantages_K, item in zip(advantages_GK, group, strict=True)
    ]
