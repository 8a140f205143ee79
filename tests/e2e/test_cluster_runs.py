"""Whole runs whose engines are processes: the same numbers; engines and a controller are killed."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path

import pytest

import agentgym_rl as ag
from agentgym_rl.runs.folder import read_json_lines
from agentgym_rl.types import Episode
from commands import Command
from engine_pools import kill_engine
from training_runs import RECIPE, metrics_of
from waiting import wait_for

pytestmark = pytest.mark.slow

SETTINGS = {
    "warm_start.steps": 4,
    "warm_start.num_demos": 8,
    "training.steps": 3,
    "eval.tasks": 2,
    "rollout.max_restarts": 4,
}
CLUSTER = {"cluster.type": "local", "cluster.engines": 2}
OF_ENGINES = ("rollout/published_bytes", "rollout/servers_replaced", "cluster/")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    forkserver.ensure_running()
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


class Killer(ag.Callback):
    """Kills an engine at the first episodes of some steps."""

    def __init__(self, *numbers: int) -> None:
        self._numbers, self._num_episodes = numbers, 0
        self.num_killed = 0

    def on_episode(self, episode: Episode) -> None:
        self._num_episodes += 1
        if self._num_episodes in self._numbers:
            self.num_killed += kill_engine(f"engine-{self.num_killed % 2}") is not None


def engines_left() -> list[str]:
    return [child.name for child in multiprocessing.active_children() if "engine" in child.name]


def check_killed_run(recipe: Path, folder: Path, settings: dict[str, object]) -> list[str]:
    """Run with an engine killed in the middle of the second step; return what differs from a run
    with one engine in this process."""
    plain = ag.train(recipe, SETTINGS, run_dir=folder / "plain")
    killer = Killer(10)
    run = ag.train(recipe, SETTINGS | settings, run_dir=folder / "run", callbacks=[killer])
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert killer.num_killed == 1
    assert sum(line["rollout/servers_replaced"] for line in lines) == 1
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    assert all(line["rollout/episodes"] == 8 for line in lines)
    assert all(line["train/logprob_diff"] < 1e-4 for line in lines)
    assert engines_left() == []
    without = (*OF_ENGINES, "rollout/episodes_restarted", "train/")
    assert metrics_of(run.folder, without=without) == metrics_of(plain.folder, without=without)
    without = (*OF_ENGINES, "rollout/episodes_restarted")
    pairs = zip(
        metrics_of(run.folder, without=without),
        metrics_of(plain.folder, without=without),
        strict=True,
    )
    return [name for ours, theirs in pairs for name in ours if ours[name] != theirs[name]]


def test_a_run_on_two_engines_is_that_of_one_also_if_one_is_killed(recipe: Path, tmp_path: Path):
    assert check_killed_run(recipe, tmp_path, CLUSTER) == []


@pytest.mark.long
def test_a_run_on_two_ranks_and_two_engines_resumes_in_one_process(recipe: Path, tmp_path: Path):
    # Sums over ranks have another order.
    settings = CLUSTER | {"training.shards": 2}
    assert all(name.startswith("train/") for name in check_killed_run(recipe, tmp_path, settings))
    more = {"training.steps": 4, "training.shards": 1, "cluster.type": "none"}
    more["cluster.engines"] = 1
    ag.train(None, more, run_dir=tmp_path / "run", resume=True)
    assert [line["step"] for line in metrics_of(tmp_path / "run")] == [1, 2, 3, 4]


@pytest.mark.long
def test_carried_over_episodes_outlive_engines(recipe: Path, tmp_path: Path):
    settings = CLUSTER | {"rollout.max_staleness": 1, "policy_loss.importance_cap": 2}
    killer = Killer(5, 13)
    run = ag.train(recipe, SETTINGS | settings, run_dir=tmp_path / "run", callbacks=[killer])
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [1, 2, 3] and killer.num_killed == 2
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    assert engines_left() == []


def processes_of(folder: Path) -> list[int]:
    """Return the processes that have a file of this folder open, such as an engine's log."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            targets = [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if any(target.startswith(str(folder)) for target in targets):
            found.append(int(pid))
    return found


@pytest.mark.long
def test_a_controller_that_is_killed_leaves_no_process(recipe: Path, tmp_path: Path):
    run = tmp_path / "run"
    words = [f"{name}={value}" for name, value in (SETTINGS | CLUSTER).items()]
    command = Command("train", recipe, *words, "training.steps=500", "--run-dir", run)
    metrics = run / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text() != "", timeout_s=240)
    engines = set(processes_of(run / "engine"))
    assert len(engines) == 2
    command.process.kill()
    wait_for(lambda: not processes_of(run), timeout_s=30)


@pytest.mark.long
def test_without_a_cluster_nothing_of_it_is_imported():
    # In a process of its own: the tests have imported everything.
    program = (
        "import sys\n"
        "import agentgym_rl.experiment, agentgym_rl.training.make\n"
        "print([m for m in sys.modules if m.startswith(('agentgym_rl.engines.pool', "
        "'agentgym_rl.engines.channels'))])\n"
        "import torch.distributed\n"
        "print(torch.distributed.is_initialized())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert re.sub(r"\s", "", done.stdout) == "[]False", done.stderr
