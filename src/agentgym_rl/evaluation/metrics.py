"""Statistics of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_NUM_DRAWS = 1000


def wilson_interval(successes: int, total: int, *, z: float = 1.959964) -> tuple[float, float]:
    """Return the Wilson score interval of a rate (E. B. Wilson 1927); z 1.96 gives 95%."""
    if total == 0:
        return 0.0, 1.0
    rate = successes / total
    spread = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    center, scale = rate + z * z / (2 * total), 1 + z * z / total
    # Rounding must put neither end beyond 0, 1 or the rate, which at 0 and 1 is itself an end.
    low, high = (center - spread) / scale, (center + spread) / scale
    return max(0.0, min(rate, low)), min(1.0, max(rate, high))


def pass_at_k(samples: int, successes: int, k: int) -> float:
    """Return the chance that one of `k` samples of a task succeeds, from `samples` that were taken.

    The unbiased estimate 1 - C(n - c, k) / C(n, k) of Chen et al. 2021 (arXiv:2107.03374), where
    the chance over all draws of k from the n is taken instead of one draw.
    """
    if not 0 < k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples of a task, got {samples}")
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def bootstrap_interval(
    sums: Sequence[float], counts: Sequence[float] | None = None
) -> tuple[float, float]:
    """Return the 95% interval of sum(sums) / sum(counts), by drawing tasks anew (Efron 1979).

    There is one sum and one count per task; without counts it is the mean over tasks. Tasks are
    drawn whole, because samples of the same task are alike. Percentiles of a fixed number of
    seeded draws: the same numbers give the same interval. Fewer than two tasks say nothing of
    others, which gives (0, 1). Draws from tasks that all failed, or all succeeded, do not differ:
    there it is Wilson's interval, with a task as one trial.
    """
    if len(sums) < 2:
        return 0.0, 1.0
    totals = np.asarray(sums, dtype=np.float64)
    weights = np.ones_like(totals) if counts is None else np.asarray(counts, dtype=np.float64)
    mean = float(totals.sum() / weights.sum())
    if mean in (0.0, 1.0):
        return wilson_interval(round(mean * len(totals)), len(totals))
    return _percentiles(totals, weights, mean)


def mean_interval(sums: Sequence[float], counts: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95% interval of sum(sums) / sum(counts) of any numbers, by drawing tasks anew.

    None with fewer than two tasks, which say nothing of others.
    """
    if len(sums) < 2:
        return None
    totals, weights = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    return _percentiles(totals, weights, float(totals.sum() / weights.sum()))


def _percentiles(
    totals: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], mean: float
) -> tuple[float, float]:
    draws = np.random.default_rng(0).integers(len(totals), size=(_NUM_DRAWS, len(totals)))
    means = totals[draws].sum(axis=1) / weights[draws].sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return min(float(low), mean), max(float(high), mean)
