"""Passes: the samples of an update or of a scoring, packed up to a number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from agentgym_rl.types import Sample


class HasSample(Protocol):
    """Something about one sample."""

    @property
    def sample(self) -> Sample: ...


_Item = TypeVar("_Item", bound=HasSample)


def split_by_tokens(items: Sequence[_Item], *, max_tokens: int) -> list[list[_Item]]:
    """Return the items in order, in passes of at most `max_tokens` (or of one sample)."""
    passes: list[list[_Item]] = []
    room = 0
    for item in items:
        length = len(item.sample.token_ids)
        if not passes or length > room:
            passes.append([])
            room = max_tokens
        passes[-1].append(item)
        room -= length
    return passes
