"""Who learns from which samples: shares of nearly equal tokens, and equally many passes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_rl.models.prefix_tree import PrefixTree, as_numbers
from agentgym_rl.training.learner.packing import Packing


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank computes."""

    passes: tuple[tuple[int, ...], ...]
    """Which items, in order, and which of them together."""
    num_fillers: int
    """Passes of weight 0 after those: a rank with fewer passes than another would stop both."""

    @property
    def places(self) -> tuple[int, ...]:
        """The items, in order."""
        return tuple(itertools.chain.from_iterable(self.passes))


def make_shares(
    sequences: Sequence[Sequence[int]], *, num_shares: int, packing: Packing
) -> list[Share]:
    """Return the shares of the ranks, of token ids; a rank may get no item at all."""
    divide = _neighbours if packing.shares_prefix else _by_length
    passes = [
        tuple(map(tuple, packing.split(own, lambda place: sequences[place])))
        for own in divide(sequences, num_shares)
    ]
    most = max(map(len, passes))
    return [Share(own, most - len(own)) for own in passes]


def _by_length(sequences: Sequence[Sequence[int]], num_shares: int) -> list[list[int]]:
    """Give items, the longest first, to the rank with the fewest tokens so far."""
    loads, places = [0] * num_shares, [list[int]() for _ in range(num_shares)]
    for place in sorted(range(len(sequences)), key=lambda place: -len(sequences[place])):
        rank = loads.index(min(loads))
        loads[rank] += len(sequences[place])
        places[rank].append(place)
    return list(map(sorted, places))


def _neighbours(sequences: Sequence[Sequence[int]], num_shares: int) -> list[list[int]]:
    """Give each rank items that follow one another: those of a group share their prompt.

    An item counts as the tokens that it has beside those before it.
    """
    tree, ends = PrefixTree(), [0]
    for ids in sequences:
        tree.add(as_numbers(ids))
        ends.append(tree.num_tokens)
    places = [list[int]() for _ in range(num_shares)]
    for place, (start, end) in enumerate(itertools.pairwise(ends)):
        middle = (start + end) * num_shares // (2 * ends[-1])
        places[min(middle, num_shares - 1)].append(place)
    return places
