"""`agentgym bench train` measures what is there, and says what is missing."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-c", "from agentgym_rl.cli.main import main; main()"]
SMALL = "--model test --device cpu --dtype float32 --length 64 --sequences 2 --updates 1 --warm 0"


def test_a_small_model_on_the_cpu():
    words = ["bench", "train", *SMALL.split(), "--ways", "plain", "checkpointing"]
    wide = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, env=wide, timeout=240)
    assert done.returncode == 0, done.stderr
    for cell in ("2 x 64 tokens", "plain", "checkpointing", "TRL", "tokens/s", "MFU"):
        assert cell in done.stdout
    if importlib.util.find_spec("trl") is None:
        assert "not installed" in done.stdout


def test_an_unknown_model_is_refused():
    done = subprocess.run(
        [*PROGRAM, "bench", "train", "--model", "nowhere"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "nowhere: not a folder" in done.stderr
