"""Sparing the heap: only for a while, and only once at a time."""

from __future__ import annotations

import gc
import weakref

import pytest

from agentgym_rl.heap import spared_heap


def test_it_lasts_as_long_as_the_outermost():
    thresholds = gc.get_threshold()
    with spared_heap():
        assert gc.get_freeze_count() and gc.get_threshold()[0] > thresholds[0]
        with spared_heap():
            pass
        assert gc.get_freeze_count() and gc.get_threshold()[0] > thresholds[0]
    assert not gc.get_freeze_count() and gc.get_threshold() == thresholds


def test_a_failure_ends_it():
    thresholds = gc.get_threshold()
    with pytest.raises(KeyError), spared_heap():
        raise KeyError
    assert not gc.get_freeze_count() and gc.get_threshold() == thresholds


def test_what_it_spared_is_found_when_it_has_become_garbage():
    class Node:
        def __init__(self) -> None:
            self.itself = self

    node = Node()
    alive = weakref.ref(node)
    with spared_heap():
        del node
        gc.collect()
        assert alive() is not None
    gc.collect()
    assert alive() is None
