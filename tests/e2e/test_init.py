"""What `agentgym init` writes works right away: its tests, the checker, two steps of training."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import agentgym

pytestmark = [pytest.mark.slow, pytest.mark.long]

SMALL = (
    "training.steps=2",
    "training.tasks_per_step=2",
    "algorithm.group_size=2",
    "warm_start.steps=1",
    "warm_start.num_demos=4",
    "eval.tasks=0",
)


def made(kind: str, folder: Path) -> Path:
    """Return a package as `agentgym init` writes it."""
    done = agentgym("init", kind, "deep_sea", folder=folder)
    assert done.status == 0, done.output
    assert (
        f"deep_sea/src/deep_sea/{kind}.py" in done.stdout and "next    cd deep_sea" in done.stdout
    )
    return folder / "deep_sea"


def passes_its_tests(package: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=package, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return True


def trains(package: Path) -> bool:
    done = agentgym("train", "recipe.toml", *SMALL, "--run-dir", "runs/two", folder=package)
    assert done.status == 0, done.output
    assert "next    agentgym ui runs" in done.stdout
    assert len((package / "runs" / "two" / "metrics.jsonl").read_text().splitlines()) == 2
    return True


def test_a_new_environment_is_checked_tested_and_trained_on(tmp_path: Path):
    package = made("env", tmp_path)
    checked = agentgym("check", "deep_sea.env:DeepSea", "--tasks", 3, folder=package)
    assert checked.status == 0 and "the contract holds" in checked.stdout, checked.output
    assert passes_its_tests(package) and trains(package)
    shown = agentgym("runs", folder=package)
    assert "finished" in shown.stdout and "recipe.toml" in shown.stdout and "2/2" in shown.stdout
    reported = agentgym("report", "runs/two", folder=package)
    assert reported.status == 0, reported.output
    assert "treasure" in (package / "runs" / "two" / "report.html").read_text()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["agent", "algorithm"])
def test_a_new_agent_or_algorithm_is_trained_with(kind: str, tmp_path: Path):
    assert trains(made(kind, tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["agent", "algorithm"])
def test_a_new_agent_or_algorithm_passes_its_own_tests(kind: str, tmp_path: Path):
    assert passes_its_tests(made(kind, tmp_path))
