"""Python's garbage collector, where hundreds of episodes are alive at once.

By its own rules it walks all that there is, modules, models and episodes, every few rounds, and
nothing else runs meanwhile: a fifth to a third of the time that Python takes between two replies.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_COLLECT_EVERY = 20_000
"""Objects made between two runs of the collector; Python's own choice is 700."""
_is_spared = False


def spare_heap() -> None:
    """Have the collector run less often, and never over what there is now."""
    global _is_spared
    _is_spared = True
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY, 20, 50)


@contextmanager
def spared_heap() -> Iterator[None]:
    """Spare the heap for a while; within another such while, or after `spare_heap`, do nothing."""
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
