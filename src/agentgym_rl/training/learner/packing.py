"""Packing: the samples of an update or of a scoring in forward passes of limited size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


def split_by_tokens(
    items: Sequence[_Item], length: Callable[[_Item], int], *, max_tokens: int
) -> list[list[_Item]]:
    """Return the items in order, in passes of at most `max_tokens` tokens (or of one item)."""
    passes: list[list[_Item]] = []
    room = 0
    for item in items:
        num_tokens = length(item)
        if not passes or num_tokens > room:
            passes.append([])
            room = max_tokens
        passes[-1].append(item)
        room -= num_tokens
    return passes
