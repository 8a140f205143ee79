"""Losses of action tokens as pure functions; how they are averaged is in aggregation.py.

Shape legend: A action tokens of a batch, all samples one after another; S samples.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sequence_log_ratios(log_ratios_A: Tensor, samples_A: Tensor) -> Tensor:
    """Return for each token the mean log-ratio of its sample (GSPO, arXiv:2507.18071)."""
    num_samples = int(samples_A.max()) + 1
    sums_S = log_ratios_A.new_zeros(num_samples).index_add(0, samples_A, log_ratios_A)
    return (sums_S / samples_A.bincount(minlength=num_samples).clamp(min=1))[samples_A]


def clipped_policy_loss(
    log_ratios_A: Tensor,
    advantages_A: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return the clipped surrogate of PPO for each token (arXiv:1707.06347), to be minimised."""
    ratios_A = log_ratios_A.exp()
    clipped_A = ratios_A.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratios_A * advantages_A, clipped_A * advantages_A)


def clip_fraction(
    log_ratios_A: Tensor,
    advantages_A: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return 1 for each token whose gradient the clipped surrogate removes."""
    ratios_A = log_ratios_A.exp()
    too_high_A = (ratios_A > 1 + clip_high) & (advantages_A > 0)
    too_low_A = (ratios_A < 1 - clip_low) & (advantages_A < 0)
    return (too_high_A | too_low_A).float()


def weighted_logprob_loss(
    logprobs_A: Tensor,
    log_ratios_A: Tensor,
    advantages_A: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Return the loss of CISPO for each token (arXiv:2506.13585), to be minimised.

    The clipped ratio is a constant weight, so that every token keeps its gradient.
    """
    weights_A = log_ratios_A.detach().exp().clamp(1 - clip_low, 1 + clip_high)
    return -weights_A * advantages_A * logprobs_A


def importance_weights(old_logprobs_A: Tensor, engine_logprobs_A: Tensor, *, cap: float) -> Tensor:
    """Return the ratio of a token's probability under the learner before the update to its
    probability under the engine, at most `cap` (truncated importance sampling).

    For tokens of the same weights this corrects differences in arithmetic. For tokens of older
    weights it is also the behaviour correction of decoupled PPO (arXiv:2110.00641), whose proximal
    policy is the learner before the update.
    """
    return (old_logprobs_A - engine_logprobs_A).exp().clamp(max=cap)


def value_loss(values_A: Tensor, old_values_A: Tensor, returns_A: Tensor, *, clip: float) -> Tensor:
    """Return half the squared error of each value, to be minimised.

    With `clip` above 0, a value that has moved further than `clip` from the old one is clipped
    where this makes the error larger (as PPO is usually implemented).
    """
    errors_A = (values_A - returns_A).square()
    if clip:
        near_A = old_values_A + (values_A - old_values_A).clamp(-clip, clip)
        errors_A = torch.maximum(errors_A, (near_A - returns_A).square())
    return errors_A / 2
