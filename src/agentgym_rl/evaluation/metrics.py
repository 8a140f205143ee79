"""Statistics of an evaluation."""

from __future__ import annotations

import math


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
