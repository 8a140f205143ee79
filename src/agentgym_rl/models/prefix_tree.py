"""Sequences that begin alike as a tree, in which every common beginning exists once.

The episodes of a group share their prompt, and forks of an episode share more. A node of the tree,
a stretch, is a run of tokens that the same sequences have at the same place:

    a b c d e        a b c -+- d e          stretches: "a b c", "d e", "x", which are packed
    a b c x                 +- x            one after another as a b c d e x

What a token sees are its stretch up to itself and all stretches on the way to it, so its hidden
state is that of each of the sequences. Only whole numbers are here; attention is in
tree_attention.py.

Shape legend: T tokens of the tree, S tokens of a sequence, A action tokens of all sequences,
U distinct ones of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agentgym_rl.types import Sample

Numbers = NDArray[np.int64]

LEAST_SHARED = 16
"""Sequences share a stretch from this many common tokens on. Shorter ones would save little, and
each costs a call of attention over few tokens."""


@dataclass(slots=True, eq=False)
class _Stretch:
    ids: Numbers
    start: int
    """Its first token's place in the sequences."""
    parent: _Stretch | None
    children: dict[int, list[_Stretch]] = field(default_factory=dict)
    """By their first token; several may begin with less than `LEAST_SHARED` common tokens."""

    @property
    def end(self) -> int:
        return self.start + len(self.ids)


@dataclass(frozen=True, slots=True)
class TreePass:
    """A tree of samples as one packed row, parents before children."""

    ids_T: Numbers
    positions_T: Numbers
    paths: tuple[tuple[int, ...], ...]
    """The stretches that each one's tokens see, by number and from the first: itself last."""
    lengths: tuple[int, ...]
    """Tokens of each stretch."""
    starts: tuple[int, ...]
    """Tokens before each stretch in its sequences."""
    actions_U: Numbers
    """Where the distinct action tokens are."""
    predicted_U: Numbers
    """Where each of them is predicted: at the token before it, in its stretch or the one before."""
    which_A: Numbers
    """Which of them each action token of the samples is, samples one after another."""


class PrefixTree:
    """Grows by sequences; counts what computing them takes."""

    def __init__(self) -> None:
        self._root = _Stretch(np.empty(0, dtype=np.int64), 0, None)
        self._ends: list[_Stretch] = []
        """The last stretch of each sequence."""
        self.num_tokens = 0
        self.num_keys = 0
        """Tokens that a stretch sees, its own included, summed over stretches."""

    def cost_of(self, ids_S: Numbers) -> tuple[int, int]:
        """Return how many tokens and keys a sequence would add."""
        stretch, depth = self._find(ids_S)
        is_split, has_more = depth < stretch.end, depth < len(ids_S)
        return len(ids_S) - depth, depth * is_split + len(ids_S) * has_more

    def add(self, ids_S: Numbers) -> None:
        """Add a sequence, which is not empty."""
        num_tokens, num_keys = self.cost_of(ids_S)
        stretch, depth = self._find(ids_S)
        if depth < stretch.end:
            stretch = _split(stretch, depth)
        if depth < len(ids_S):
            stretch = _attach(_Stretch(ids_S[depth:], depth, stretch))
        self._ends.append(stretch)
        self.num_tokens += num_tokens
        self.num_keys += num_keys

    def packed(self, masks: Sequence[Sequence[int]]) -> TreePass:
        """Return the tree as one row; the masks say which tokens of each sequence are actions."""
        order = list(_below(self._root))
        number_of = {id(stretch): number for number, stretch in enumerate(order)}
        paths = [tuple(number_of[id(one)] for one in _path(stretch)) for stretch in order]
        lengths = [len(stretch.ids) for stretch in order]
        firsts = np.cumsum([0, *lengths])
        rows = [np.arange(first, first + n) for first, n in zip(firsts, lengths, strict=False)]
        actions, predicted = list[Numbers](), list[Numbers]()
        for end, mask in zip(self._ends, masks, strict=True):
            places_S = np.concatenate([rows[number] for number in paths[number_of[id(end)]]])
            own = np.flatnonzero(np.array(mask))
            actions.append(places_S[own])
            predicted.append(places_S[own - 1])
        distinct_U, first_U, which_A = np.unique(
            np.concatenate(actions), return_index=True, return_inverse=True
        )
        return TreePass(
            ids_T=np.concatenate([stretch.ids for stretch in order]),
            positions_T=np.concatenate([np.arange(one.start, one.end) for one in order]),
            paths=tuple(paths),
            lengths=tuple(lengths),
            starts=tuple(stretch.start for stretch in order),
            actions_U=distinct_U,
            predicted_U=np.concatenate(predicted)[first_U],
            which_A=which_A,
        )

    def _find(self, ids_S: Numbers) -> tuple[_Stretch, int]:
        """Return the stretch in which a sequence leaves the tree, and how many tokens it shares.

        The sequence leaves it at the stretch's end, or before, where it has to be split.
        """
        stretch, depth = self._root, 0
        while depth < len(ids_S):
            rest = ids_S[depth:]
            found = [
                (_num_common(one.ids, rest), one) for one in stretch.children.get(int(rest[0]), ())
            ]
            num, child = max(found, key=lambda pair: pair[0], default=(0, stretch))
            if not num or (num < len(child.ids) and num < LEAST_SHARED):
                break
            stretch, depth = child, depth + num
            if depth < child.end:
                break
        return stretch, depth


def pack_tree(samples: Sequence[Sample]) -> TreePass:
    """Return the samples as a tree in one row; those without tokens have no part in it."""
    tree, samples = PrefixTree(), [sample for sample in samples if sample.token_ids]
    for sample in samples:
        tree.add(as_numbers(sample.token_ids))
    return tree.packed([sample.loss_mask for sample in samples])


def as_numbers(ids: Sequence[int]) -> Numbers:
    return np.array(ids, dtype=np.int64)


def _split(stretch: _Stretch, depth: int) -> _Stretch:
    """Cut a stretch in two; return the first part. The last one stays who it is."""
    assert stretch.parent is not None, "the root has no tokens"
    num = depth - stretch.start
    siblings = stretch.parent.children[int(stretch.ids[0])]
    upper = _Stretch(stretch.ids[:num], stretch.start, stretch.parent)
    siblings[siblings.index(stretch)] = upper
    stretch.ids, stretch.start, stretch.parent = stretch.ids[num:], depth, upper
    _attach(stretch)
    return upper


def _attach(stretch: _Stretch) -> _Stretch:
    assert stretch.parent is not None, "a new stretch has one"
    stretch.parent.children.setdefault(int(stretch.ids[0]), []).append(stretch)
    return stretch


def _num_common(one: Numbers, other: Numbers) -> int:
    """Return how many tokens two runs have in common at their beginning."""
    num = min(len(one), len(other))
    differ = one[:num] != other[:num]
    first = int(differ.argmax())
    return first if differ[first] else num


def _below(stretch: _Stretch) -> Iterator[_Stretch]:
    """Yield all stretches after this one, each before those that continue it."""
    waiting = [child for children in stretch.children.values() for child in children][::-1]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += [child for children in found.children.values() for child in children][::-1]


def _path(stretch: _Stretch) -> list[_Stretch]:
    """Return the stretches from the first one to this one."""
    found = [stretch]
    while (parent := found[-1].parent) is not None and parent.parent is not None:
        found.append(parent)
    return found[::-1]
