"""Random draws that are the same on every machine and for every version of Python.

Only `random()` of a generator seeded with a string is promised to stay the same; `shuffle`,
`choice` and `sample` are not. Everything here is built on the former.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of draws that only the seed decides."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random() < probability

    def between(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`, both included."""
        return low + int(self._random() * (high - low + 1))

    def choice(self, values: Sequence[T]) -> T:
        """Return one of the values, which must not be empty."""
        return values[self.between(0, len(values) - 1)]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """Return the values in random order."""
        draw = self._random
        keys = [draw() for _ in values]
        return [values[i] for i in sorted(range(len(values)), key=keys.__getitem__)]
