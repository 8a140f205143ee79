"""Advantage estimators as pure functions.

Shape legend: G episodes of one group.
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_relative(rewards_G: Tensor, *, normalize_std: bool) -> Tensor:
    """Return each reward minus the mean of its group (GRPO, arXiv:2402.03300).

    With `normalize_std` it is divided by the group's standard deviation (unbiased); a group whose
    rewards are all equal gets zeros either way.
    """
    if len(rewards_G) < 2:
        raise ValueError(
            f"group-relative advantages need at least 2 episodes, got {len(rewards_G)}"
        )
    centered_G = rewards_G - rewards_G.mean()
    if not normalize_std:
        return centered_G
    std = rewards_G.std()
    return torch.zeros_like(rewards_G) if std < 1e-8 else centered_G / std
