"""Whole runs whose episodes are played by rollout workers: the same ones; workers are killed."""

from __future__ import annotations

import multiprocessing
from multiprocessing import forkserver
from pathlib import Path

import pytest

import agentgym_rl as ag
from agentgym_rl.runs.folder import read_json_lines
from agentgym_rl.types import Episode
from engine_pools import kill_engine
from training_runs import RECIPE, episodes_of, metrics_of

pytestmark = pytest.mark.slow

SETTINGS: dict[str, object] = {
    "warm_start.steps": 4,
    "warm_start.num_demos": 8,
    "training.steps": 2,
    "eval.tasks": 2,
    "rollout.max_restarts": 4,
    "cluster.type": "local",
}
WORKERS: dict[str, object] = {"cluster.rollout_workers": 2}
OF_WORKERS = ("cluster/",)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    forkserver.ensure_running()
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


class Killer(ag.Callback):
    """Kills a worker at the ends of some episodes."""

    def __init__(self, *numbers: int) -> None:
        self._numbers, self._num_episodes = numbers, 0
        self.num_killed = 0

    def on_episode(self, episode: Episode) -> None:
        self._num_episodes += 1
        if self._num_episodes in self._numbers:
            self.num_killed += kill_engine(f"worker-{self.num_killed % 2}") is not None


def processes_left() -> list[str]:
    names = [child.name for child in multiprocessing.active_children()]
    return [name for name in names if name.startswith(("engine-", "worker-"))]


def test_a_run_with_two_workers_is_that_of_one_process_also_if_one_is_killed(
    recipe: Path, tmp_path: Path
):
    plain = ag.train(recipe, SETTINGS, run_dir=tmp_path / "plain")
    killer = Killer(10)
    run = ag.train(recipe, SETTINGS | WORKERS, run_dir=tmp_path / "run", callbacks=[killer])
    assert killer.num_killed == 1 and processes_left() == []
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert sum(line["cluster/restarts_rollout"] for line in lines) == 1
    assert sum(line["cluster/episodes_lost"] for line in lines) >= 1
    restarted = (*OF_WORKERS, "rollout/episodes_restarted")
    assert metrics_of(run.folder, without=restarted) == metrics_of(plain.folder, without=restarted)
    ours, theirs = episodes_of(run.folder), episodes_of(plain.folder)
    for row in [*ours, *theirs]:
        del row["num_restarts"]
    assert ours == theirs
