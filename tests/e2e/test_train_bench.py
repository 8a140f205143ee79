"""`agentgym bench train` measures what is there, and says what is missing."""

from __future__ import annotations

import importlib.util

import pytest

from commands import Command

pytestmark = pytest.mark.slow

SMALL = "--model test --device cpu --dtype float32 --length 64 --sequences 2 --updates 1 --warm 0"


@pytest.mark.long
def test_a_small_model_on_the_cpu():
    words = ("bench", "train", *SMALL.split(), "--ways", "plain", "checkpointing")
    done = Command(*words, columns=200).wait()
    assert done.status == 0, done.stderr
    for cell in ("2 x 64 tokens", "plain", "checkpointing", "TRL", "tokens/s", "MFU"):
        assert cell in done.stdout
    if importlib.util.find_spec("trl") is None:
        assert "not installed" in done.stdout


def test_an_unknown_model_is_refused():
    done = Command("bench", "train", "--model", "nowhere").wait()
    assert done.status == 2
    assert "nowhere: not a folder" in done.stderr


def test_a_number_that_makes_no_sense_is_refused():
    done = Command("bench", "train", "--action-share", "7").wait()
    assert done.status == 2
    assert "argument --action-share: a number above 0 and below 1, got '7'" in done.stderr
