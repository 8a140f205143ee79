"""From rewards to returns, as pure functions of one episode.

Only action tokens are here: what lies between two replies is skipped, so it neither discounts nor
carries anything. A round is one step of the decision process; its tokens are not discounted among
one another.

Shape legend: A action tokens of an episode, K its rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def round_rewards(rewards_A: Tensor, rounds_A: Tensor) -> Tensor:
    """Return the reward of each round (K); `rounds_A` numbers the rounds from 0 without gaps."""
    num_rounds = int(rounds_A[-1]) + 1 if len(rounds_A) else 0
    return rewards_A.new_zeros(num_rounds).index_add(0, rounds_A, rewards_A)


def returns_to_go(rewards_K: Tensor, *, discount: float) -> Tensor:
    """Return what each round and the later ones earn, a later round discounted."""
    return _sum_backwards(rewards_K, [discount] * len(rewards_K))


def token_returns(rewards_A: Tensor, rounds_A: Tensor, *, discount: float) -> Tensor:
    """Return what each token and the later ones earn, discounted from round to round."""
    return _sum_backwards(rewards_A, _border_factors(rounds_A, discount))


def generalized_advantages(
    rewards_A: Tensor,
    values_A: Tensor,
    rounds_A: Tensor,
    *,
    discount: float,
    lambda_: float,
    final_value: float = 0.0,
) -> Tensor:
    """Return generalised advantage estimates (GAE, arXiv:1506.02438) of one episode.

    `values_A` are of the states before each token; the next state of the last token of a round is
    that before the first token of the next round. `final_value` is of the state after the last
    round: 0 unless a limit cut the episode there. Lambda acts from token to token.
    """
    factors = _border_factors(rounds_A, discount)
    values = values_A.tolist()
    next_values = [*values[1:], final_value]
    deltas = [
        reward + factor * later - value
        for reward, factor, later, value in zip(
            rewards_A.tolist(), factors, next_values, values, strict=True
        )
    ]
    return _sum_backwards(rewards_A.new_tensor(deltas), [factor * lambda_ for factor in factors])


def _border_factors(rounds_A: Tensor, factor: float) -> list[float]:
    """Return `factor` for the last token of each round and 1 for the others."""
    rounds = rounds_A.tolist()
    is_last = [own != later for own, later in zip(rounds, [*rounds[1:], -1], strict=True)]
    return [factor if last else 1.0 for last in is_last]


def _sum_backwards(terms: Tensor, decays: Sequence[float]) -> Tensor:
    """Return s with s[t] = terms[t] + decays[t] * s[t + 1], and 0 after the end."""
    total, sums = 0.0, list[float]()
    for term, decay in zip(reversed(terms.tolist()), reversed(decays), strict=True):
        total = term + decay * total
        sums.append(total)
    return torch.tensor(sums[::-1], dtype=terms.dtype)
