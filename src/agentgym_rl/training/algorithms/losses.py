"""Losses of action tokens as pure functions; how they are averaged is the learner's affair.

Shape legend: A action tokens of a batch, all samples one after another.
"""

from __future__ import annotations

import torch
from torch import Tensor


def clipped_policy_loss(
    logprobs_A: Tensor,
    old_logprobs_A: Tensor,
    advantages_A: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return the clipped surrogate of PPO for each token (arXiv:1707.06347), to be minimised."""
    ratios_A = (logprobs_A - old_logprobs_A).exp()
    clipped_A = ratios_A.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratios_A * advantages_A, clipped_A * advantages_A)


def clip_fraction(
    logprobs_A: Tensor,
    old_logprobs_A: Tensor,
    advantages_A: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return 1 for each token whose gradient the clipping removes."""
    ratios_A = (logprobs_A - old_logprobs_A).exp()
    too_high_A = (ratios_A > 1 + clip_high) & (advantages_A > 0)
    too_low_A = (ratios_A < 1 - clip_low) & (advantages_A < 0)
    return (too_high_A | too_low_A).float()


def k3_divergence(logprobs_A: Tensor, old_logprobs_A: Tensor) -> Tensor:
    """Return for each token an unbiased, non-negative estimate of KL(old || new)
    (the k3 estimator of J. Schulman, "Approximating KL divergence", 2020)."""
    log_ratios_A = logprobs_A - old_logprobs_A
    return log_ratios_A.exp() - 1 - log_ratios_A
