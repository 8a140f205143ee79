"""Packing: the samples of an update or of a scoring in forward passes of limited size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class HasLength(Protocol):
    """Something about one sequence."""

    @property
    def length(self) -> int:
        """Tokens of the whole sequence."""
        ...


_Item = TypeVar("_Item", bound=HasLength)


def split_by_tokens(items: Sequence[_Item], *, max_tokens: int) -> list[list[_Item]]:
    """Return the items in order, in passes of at most `max_tokens` (or of one sample)."""
    passes: list[list[_Item]] = []
    room = 0
    for item in items:
        if not passes or item.length > room:
            passes.append([])
            room = max_tokens
        passes[-1].append(item)
        room -= item.length
    return passes
