"""Packing: the samples of an update or of a scoring in forward passes of limited size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from agentgym_rl.config import TrainingConfig
from agentgym_rl.models.prefix_tree import PrefixTree, as_numbers

_Item = TypeVar("_Item")

MAX_KEYS_PER_TOKEN = 8
"""Where beginnings are shared, a pass keeps the keys that each stretch sees, a shared one several
times. Their number is limited to this many for each of the tokens of a full pass."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How large a pass may be, and whether it computes common beginnings once."""

    max_tokens: int
    """Of those that are computed."""
    shares_prefix: bool = False

    def split(
        self, items: Sequence[_Item], ids: Callable[[_Item], Sequence[int]]
    ) -> list[list[_Item]]:
        """Return the items in order, in passes of at most `max_tokens` tokens (or of one item)."""
        if self.shares_prefix:
            return self._split_trees(items, ids)
        return split_by_tokens(items, lambda item: len(ids(item)), max_tokens=self.max_tokens)

    def _split_trees(
        self, items: Sequence[_Item], ids: Callable[[_Item], Sequence[int]]
    ) -> list[list[_Item]]:
        passes: list[list[_Item]] = []
        tree = PrefixTree()
        for item in items:
            ids_S = as_numbers(ids(item))
            num_tokens, num_keys = tree.cost_of(ids_S)
            is_full = (
                tree.num_tokens + num_tokens > self.max_tokens
                or tree.num_keys + num_keys > self.max_tokens * MAX_KEYS_PER_TOKEN
            )
            if not passes or is_full:
                passes.append([])
                tree = PrefixTree()
            passes[-1].append(item)
            if len(ids_S):
                tree.add(ids_S)
        return passes


def packing_of(config: TrainingConfig) -> Packing:
    """Return how a learner packs passes."""
    return Packing(config.tokens_per_batch, config.share_prefix)


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
