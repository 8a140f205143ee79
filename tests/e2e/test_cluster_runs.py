"""Whole runs whose engines are processes: the same numbers; engines and a controller are killed."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path

import pytest

import agentgym_rl as ag
from agentgym_rl.runs.folder import Metrics, read_json_lines
from agentgym_rl.training.collect.collection import Collected
from agentgym_rl.training.trainer import RLTrainer
from agentgym_rl.types import Episode
from commands import Command
from engine_pools import kill_engine
from serving import Serving
from training_runs import RECIPE, episodes_of, go_on, metrics_of, succeeded
from waiting import ask_until, wait_for

pytestmark = pytest.mark.slow

SETTINGS = {
    "warm_start.steps": 4,
    "warm_start.num_demos": 8,
    "training.steps": 3,
    "eval.tasks": 2,
    "rollout.max_restarts": 4,
}
CLUSTER = {"cluster.type": "local", "cluster.engines": 2}
OF_ENGINES = ("rollout/published_bytes", "cluster/restarts_engine", "cluster/")


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
    assert sum(line["cluster/restarts_engine"] for line in lines) == 1
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


CARRYING = {"rollout.max_staleness": 1, "policy_loss.importance_cap": 2}
OVERLAPPED = CARRYING | {"rollout.overlap": True}


class UpdateKiller:
    """Kills an engine as each of the first two updates begins; the fourth waits for others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_killed, learn, serving = 0, RLTrainer.learn, Serving(monkeypatch)

        def watched(trainer: RLTrainer, step: int, collected: Collected) -> Metrics:
            if step == 4:
                wait_for(lambda: serving.is_started)
            if self.num_killed < 2:
                name = f"engine-{self.num_killed}"
                ask_until(lambda: kill_engine(name), lambda killed: killed is not None)
                self.num_killed += 1
            return learn(trainer, step, collected)

        monkeypatch.setattr(RLTrainer, "learn", watched)


def check_outlived(run: ag.Run, num_killed: int, num_steps: int) -> None:
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [*range(1, num_steps + 1)] and num_killed == 2
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    assert all(line["rollout/episodes"] == 8 for line in lines)
    assert all(0 <= line["rollout/staleness_max"] <= 1 for line in lines)
    learned = [row for row in episodes_of(run.folder) if row["phase"] == "train"]
    names = Counter((row["task_index"], row["sample_index"]) for row in learned)
    assert len(learned) == 8 * num_steps and max(names.values()) == 1, "no episode twice"
    assert engines_left() == []


@pytest.mark.long
@pytest.mark.parametrize("settings", [CARRYING, OVERLAPPED])
def test_episodes_under_way_outlive_engines(
    recipe: Path, tmp_path: Path, settings: dict[str, object]
):
    killer = Killer(5, 13)
    settings = SETTINGS | CLUSTER | settings
    run = ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[killer])
    check_outlived(run, killer.num_killed, num_steps=3)


@pytest.mark.long
def test_an_overlapped_run_outlives_engines_that_are_killed_during_updates(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    killer = UpdateKiller(monkeypatch)
    settings = SETTINGS | CLUSTER | OVERLAPPED | {"training.steps": 4}
    run = ag.train(recipe, settings, run_dir=tmp_path / "run")
    check_outlived(run, killer.num_killed, num_steps=4)
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert sum(line["cluster/restarts_engine"] for line in lines) == 2
    assert any(line["rollout/groups_carried"] for line in lines)


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
def test_an_overlapped_run_whose_controller_is_killed_resumes_and_loses_no_task(
    recipe: Path, tmp_path: Path
):
    path, settings = tmp_path / "run", SETTINGS | CLUSTER | OVERLAPPED
    words = [f"{name}={str(value).lower()}" for name, value in settings.items()]
    words += ["training.steps=6", "checkpoint.every=2"]
    command = Command("train", recipe, *words, "--run-dir", path)
    wait_for((path / "checkpoints" / "step-2" / "state.json").exists, timeout_s=240)
    command.process.kill()
    wait_for(lambda: not processes_of(path), timeout_s=30)
    assert succeeded(go_on(path))
    lines = metrics_of(path)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert all(line["rollout/staleness_max"] <= 1 for line in lines)
    learned = [row["task_index"] for row in episodes_of(path) if row["phase"] == "train"]
    assert set(Counter(learned).values()) == {4} and len(learned) == 4 * 2 * 6
    assert not processes_of(path)


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
