"""Python's garbage collector, where hundreds of episodes are alive at once.

By its own rules it walks all that there is, modules, models and episodes, every few rounds, and
nothing else runs meanwhile: a fifth to a third of the time that Python takes between two replies.

What is alive when the heap is spared is left out of every later walk. What is made after that and
refers to itself (simulators do) is found by the collector's older generations, which run rarely, or
by `collect_garbage`, which whoever works in steps calls between two of them. To spare the heap
again and again would let neither ever happen: each time all objects count as long-lived anew.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (20_000, 10, 10)
"""Objects made before the youngest generation is collected (Python's own choice is 700), and
collections of one generation before the next older one is collected, too."""
_is_spared = False
_has_settled = False
"""Whether `collect_garbage` has been called since the heap is spared."""


def spare_heap() -> None:
    """Have the collector run less often, and never over what there is now."""
    global _is_spared, _has_settled
    _is_spared, _has_settled = True, False
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def spared_heap() -> Iterator[None]:
    """Spare the heap for a while; within another such while, or after `spare_heap`, do nothing.

    The outermost collects all garbage at its end.
    """
    global _is_spared
    if _is_spared:
        yield
        return
    thresholds = gc.get_threshold()
    spare_heap()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        _is_spared = False
        gc.collect()


def collect_garbage() -> float:
    """Free what has become garbage, and return how long it took, in seconds.

    While the heap is spared this takes milliseconds: only what was made since is walked. The first
    call spares what it leaves, too: a first step imports, compiles and fills caches.
    """
    global _has_settled
    started = time.monotonic()
    gc.collect()
    if _is_spared and not _has_settled:
        _has_settled = True
        gc.freeze()
    return time.monotonic() - started
