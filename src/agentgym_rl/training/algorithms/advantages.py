"""Comparing returns, as pure functions: within a group, in equal states, over a batch.

Shape legend: G episodes of one group, K rounds of the longest of them, N any entries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

_NO_SPREAD = 1e-8
"""A standard deviation below this is rounding, and nothing is divided by it."""


def group_relative(
    returns_G: Tensor, *, normalize_std: bool, earned_G: Tensor | None = None
) -> Tensor:
    """Return each return minus the mean of its group (GRPO, arXiv:2402.03300).

    With `normalize_std` it is divided by the group's standard deviation (unbiased); a group whose
    returns are all equal gets zeros either way. With penalties, `earned_G` are the returns without
    them: their deviation is the divisor, and if they are all equal nothing is divided, since a
    small penalty would otherwise weigh as much as a solved task.
    """
    _needs_two(returns_G, "group-relative advantages")
    centered_G = returns_G - returns_G.mean()
    return _scaled(centered_G, returns_G, earned_G) if normalize_std else centered_G


def leave_one_out(returns_G: Tensor) -> Tensor:
    """Return each return minus the mean of the others in its group (RLOO, arXiv:2402.14740).

    Takes (G, K) too, and then compares round by round; an episode that is over earns 0.
    """
    _needs_two(returns_G, "leave-one-out advantages")
    return returns_G - (returns_G.sum(dim=0) - returns_G) / (len(returns_G) - 1)


def rounds_group_relative(
    returns_GK: Tensor, *, normalize_std: bool, earned_GK: Tensor | None = None
) -> Tensor:
    """Return each round's return to go minus the group's mean for that round.

    An episode that is over earns 0 in later rounds and stays in their means: a mean over running
    episodes would weigh rounds by how many episodes the policy lets end. With `normalize_std` all
    rounds are divided by one number, the deviation of the whole returns (without penalties,
    `earned_GK`, as in `group_relative`).
    """
    _needs_two(returns_GK, "group-relative advantages")
    centered_GK = returns_GK - returns_GK.mean(dim=0)
    if not normalize_std:
        return centered_GK
    whole_G = None if earned_GK is None else earned_GK[:, 0]
    return _scaled(centered_GK, returns_GK[:, 0], whole_G)


def relative_in_equal_states(
    returns_N: Tensor,
    states: Sequence[Hashable],
    *,
    normalize_std: bool,
    earned_N: Tensor | None = None,
) -> Tensor:
    """Return each return minus the mean for the same state (GiGPO, arXiv:2505.10978).

    A state that occurs once gets 0: there is nothing to compare. `earned_N` are the returns without
    penalties, as in `group_relative`.
    """
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, state in enumerate(states):
        places[state].append(place)
    result_N = torch.zeros_like(returns_N)
    for same in places.values():
        if len(same) > 1:
            result_N[same] = group_relative(
                returns_N[same],
                normalize_std=normalize_std,
                earned_G=None if earned_N is None else earned_N[same],
            )
    return result_N


def whiten(values_N: Tensor) -> Tensor:
    """Return the values with mean 0 and (unbiased) standard deviation 1; zeros without spread."""
    if len(values_N) < 2:
        return torch.zeros_like(values_N)
    return _divide(values_N - values_N.mean(), values_N.std())


def _scaled(centered: Tensor, returns: Tensor, earned: Tensor | None) -> Tensor:
    """Return what is centered divided by the deviation of what was earned."""
    if earned is None:
        return _divide(centered, returns.std())
    std = earned.std()
    return centered if std < _NO_SPREAD else centered / std


def _divide(centered: Tensor, std: Tensor) -> Tensor:
    return torch.zeros_like(centered) if std < _NO_SPREAD else centered / std


def _needs_two(returns: Tensor, what: str) -> None:
    if len(returns) < 2:
        raise ValueError(f"{what} need at least 2 episodes, got {len(returns)}")
