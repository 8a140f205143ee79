"""Runs of one seed are equal to the last bit, with any number of threads, idle and beside a load.

Each in a fresh interpreter, since `make test` and the tests' own commands have one thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from training_runs import RECIPE, is_the_same_run, metrics_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # three runs

# As wide as the quickstart's model: narrower ones are computed by one thread anyway.
OVERRIDES = (
    "model.tiny={ vocab_size = 320, hidden_size = 128 }",
    "training.steps=2",
    "training.tasks_per_step=2",
    "checkpoint.every=1",
    "warm_start.steps=3",
    "eval.tasks=2",
    "eval.every=0",
)
PROGRAM = "from agentgym_rl.cli.main import main; main()"
KILLED = rf"from commands import Kill, arm; arm(Kill(r'open .*/metrics\.jsonl', 5)); {PROGRAM}"
"""At the second line of the run's own metrics, after the three of the warm start."""


def run(program: str, num_threads: int | None, *words: object) -> int:
    """Return how `agentgym train` ended; None leaves the number of threads to the machine."""
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    environment.pop("OMP_NUM_THREADS", None)
    if num_threads is not None:
        environment["OMP_NUM_THREADS"] = str(num_threads)
    line = [sys.executable, "-c", program, "train", *map(str, words)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
    return done.returncode


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """A process on every core that never waits."""
    spin = [sys.executable, "-c", "while True: pass"]
    load = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in load:
            process.kill()
            process.wait()


@pytest.mark.long  # test_training_run.py has it always, on one thread
def test_a_run_killed_and_resumed_is_the_run_that_never_stopped(tmp_path: Path):
    check_resumption(None, contextlib.nullcontext(), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("num_threads", [1, 2, None])
def test_a_load_on_all_cores_changes_nothing(num_threads: int | None, tmp_path: Path):
    check_resumption(num_threads, busy_cores(), tmp_path)


def check_resumption(
    num_threads: int | None, load: contextlib.AbstractContextManager[None], tmp_path: Path
) -> None:
    recipe, whole, killed = tmp_path / "small.toml", tmp_path / "whole", tmp_path / "killed"
    recipe.write_text(RECIPE)
    assert run(PROGRAM, num_threads, recipe, *OVERRIDES, "--run-dir", whole) == 0
    with load:
        words = (recipe, *OVERRIDES, "--run-dir", killed)
        assert run(KILLED, num_threads, *words) == -signal.SIGKILL
        assert len(metrics_of(killed)) == 1
        assert run(PROGRAM, num_threads, "--run-dir", killed, "--resume") == 0
    assert is_the_same_run(killed, whole)
