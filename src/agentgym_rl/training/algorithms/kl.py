"""Estimates of the divergence of two policies from the log-probabilities of sampled tokens.

For tokens drawn from the policy, with r = log policy - log reference (J. Schulman, "Approximating
KL divergence", 2020): k1 = r is unbiased, but its gradient has mean zero; k2 = r^2 / 2 has low
variance and the gradient of KL(policy || reference); k3 = exp(-r) - 1 + r is unbiased, never
negative, and has the gradient of KL(reference || policy).

Shape legend: A action tokens.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]

MAX_LOG_RATIO = 20.0
"""Ratios grow exponentially: one beyond this would dominate a batch, or be infinite."""


def divergence(logprobs_A: Tensor, ref_logprobs_A: Tensor, *, estimator: Estimator) -> Tensor:
    """Return for each token an estimate of KL(policy || reference)."""
    log_ratios_A = logprobs_A - ref_logprobs_A
    if estimator == "k1":
        return log_ratios_A
    if estimator == "k2":
        return log_ratios_A.square() / 2
    return (-log_ratios_A).clamp(max=MAX_LOG_RATIO).exp() - 1 + log_ratios_A


def drift(logprobs_A: Tensor, old_logprobs_A: Tensor) -> Tensor:
    """Return for each token drawn from the old policy an estimate (k3) of KL(old || new)."""
    log_ratios_A = logprobs_A - old_logprobs_A
    return log_ratios_A.clamp(max=MAX_LOG_RATIO).exp() - 1 - log_ratios_A
