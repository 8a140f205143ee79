"""Which cases of a large matrix `make test` runs; `make test-all` runs all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def spread_over(cases: Iterable[Any], number: int) -> list[Any]:
    """Mark all cases as long but `number` of them, which are spread evenly over their list."""
    listed = list(cases)
    kept = {place * len(listed) // number for place in range(number)}
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if place in kept else pytest.mark.long,
        )
        for place, case in enumerate(listed)
    ]
