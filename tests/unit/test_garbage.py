"""Rare garbage collections: only for a while, only once at a time, and without a leak."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from agentgym_rl import garbage
from agentgym_rl.garbage import collect_garbage, rare_collections


@pytest.fixture(autouse=True)
def usual_collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python's own rules, as in a process that has just begun: the tests' collects rarely."""
    thresholds = gc.get_threshold()
    monkeypatch.setattr(garbage, "_is_rare", False)
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    yield
    gc.freeze()
    gc.set_threshold(*thresholds)


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_it_lasts_as_long_as_the_outermost():
    thresholds = gc.get_threshold()
    with rare_collections():
        assert gc.get_freeze_count() and gc.get_threshold()[0] > thresholds[0]
        with rare_collections():
            pass
        assert gc.get_freeze_count() and gc.get_threshold()[0] > thresholds[0]
    assert not gc.get_freeze_count() and gc.get_threshold() == thresholds


def test_a_failure_ends_it():
    thresholds = gc.get_threshold()
    with pytest.raises(KeyError), rare_collections():
        raise KeyError
    assert not gc.get_freeze_count() and gc.get_threshold() == thresholds


def test_what_it_spared_is_collected_at_its_end_when_it_has_become_garbage():
    node = Node()
    alive = weakref.ref(node)
    with rare_collections():
        del node
        gc.collect()
        assert alive() is not None
    assert alive() is None


def test_what_became_garbage_since_is_collected_in_its_midst_and_at_its_end():
    gc.disable()  # Python's own collector would find it, too, if later
    try:
        with rare_collections():
            node = Node()
            alive = weakref.ref(node)
            gc.collect()  # it is in the oldest generation now
            del node
            assert alive() is not None
            assert collect_garbage() >= 0
            assert alive() is None
            node = Node()
            alive = weakref.ref(node)
            del node
        assert alive() is None
    finally:
        gc.enable()


def test_what_the_first_step_leaves_is_rare_too():
    with rare_collections():
        before, kept = gc.get_freeze_count(), [[number] for number in range(1000)]
        collect_garbage()
        settled = gc.get_freeze_count()
        assert settled >= before + 1000
        kept += [[number] for number in range(1000)]
        collect_garbage()
        assert gc.get_freeze_count() <= settled
    assert len(kept) == 2000


_LONG_LIVED_CYCLES = """
import collections, gc
from agentgym_rl.garbage import collect_rarely

class Node:
    def __init__(self):
        self.itself = self

gc.collect()
collect_rarely()
most, alive = 0, collections.deque(maxlen=100_000)  # each is in the oldest generation when it dies
for number in range(4_000_000):
    alive.append(Node())
    if number % 500_000 == 0:
        most = max(most, len(gc.get_objects()))
print(gc.get_stats()[2]["collections"] > 1, most)
"""


def test_a_process_that_spares_its_heap_for_good_collects_its_oldest_generation():
    done = subprocess.run(
        [sys.executable, "-c", _LONG_LIVED_CYCLES], capture_output=True, text=True, check=True
    )
    has_collected, most = done.stdout.split()
    assert has_collected == "True"
    assert int(most) < 3_000_000
