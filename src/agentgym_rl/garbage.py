"""Python's garbage collector, run rarely where hundreds of episodes are alive at once.

By its own rules the collector walks every object (modules, models, episodes) every few rounds, and
nothing else runs meanwhile: a fifth to a third of the time that Python takes between two replies.

Objects that are alive when rare collections begin are left out of every later walk. Later objects
that refer to themselves (simulators do) are found by the collector's older generations, which run
rarely, or by `collect_garbage`, which whoever works in steps calls between two of them. Do not
begin rare collections again and again: each time every live object is marked
long-lived again, so neither of these would ever run.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

_THRESHOLDS = (20_000, 10, 10)
"""Objects made before the youngest generation is collected (Python's own choice is 700), and
collections of one generation before the next older one is collected, too."""
_is_rare = False
_has_settled = False
"""Whether `collect_garbage` has been called since collections are rare."""


def collect_rarely() -> None:
    """Let the collector run less often, and never over the objects that there are now."""
    global _is_rare, _has_settled
    _is_rare, _has_settled = True, False
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect rarely for a while; within another such while, or after `collect_rarely`, do nothing.

    The outermost collects all garbage at its end.
    """
    global _is_rare
    if _is_rare:
        yield
        return
    thresholds = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
        _is_rare = False
        gc.collect()


def collect_garbage() -> float:
    """Free all garbage, and return how long it took, in seconds.

    While collections are rare this takes milliseconds: only newer objects are walked. The first
    call leaves its survivors out of later walks: a first step imports, compiles, fills caches.
    """
    global _has_settled
    started = time.monotonic()
    gc.collect()
    if _is_rare and not _has_settled:
        _has_settled = True
        gc.freeze()
    return time.monotonic() - started
