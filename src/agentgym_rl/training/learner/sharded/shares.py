"""Who learns from which samples: shares of nearly equal tokens, and equally many passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_rl.training.learner.packing import split_by_tokens


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank computes."""

    places: tuple[int, ...]
    """Which items, in order."""
    num_fillers: int
    """Passes of weight 0 after those: a rank with fewer passes than another would stop both."""


def make_shares(lengths: Sequence[int], *, num_shares: int, max_tokens: int) -> list[Share]:
    """Return the shares of the ranks; a rank may get no item at all.

    Items go, the longest first, to the rank with the fewest tokens so far. `max_tokens` limits a
    pass, as in `split_by_tokens`.
    """
    loads, places = [0] * num_shares, [list[int]() for _ in range(num_shares)]
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        rank = loads.index(min(loads))
        loads[rank] += lengths[place]
        places[rank].append(place)
    ordered = [sorted(own) for own in places]
    passes = [
        len(split_by_tokens(own, lambda place: lengths[place], max_tokens=max_tokens))
        for own in ordered
    ]
    return [Share(tuple(own), max(passes) - num) for own, num in zip(ordered, passes, strict=True)]
