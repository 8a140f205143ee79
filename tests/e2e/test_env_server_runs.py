"""Whole runs on several environment servers: the same numbers; servers and a controller die."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil
import pytest

import agentgym_rl as ag
from agentgym_rl.runs.folder import Metrics, read_json_lines
from agentgym_rl.types import Episode
from commands import Command
from env_servers import server_process
from serving import children_with
from training_runs import KILL_MARK, RECIPE, episodes_of, metrics_of
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.long]

ENV = "training_runs:KillingBabyAI"
SETTINGS: dict[str, Any] = {  # Any: what a setting may be
    "env.name": ENV,
    "warm_start.steps": 4,
    "warm_start.num_demos": 8,
    "training.steps": 4,
    "checkpoint.every": 4,
    "eval.tasks": 0,
    "rollout.max_restarts": 4,
    "rollout.max_seconds": 600,
}
SERVERS = {"cluster.type": "local", "cluster.env_servers": 2}
_PROGRAM = "agentgym_rl.envs.access.child"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    forkserver.ensure_running()
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


def family_of(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [*processes, *(child for one in processes for child in one.children(recursive=True))]


class Killer(ag.Callback):
    """Has a server killed in the middle of an episode, right after the ends of some episodes."""

    def __init__(self, mark: Path, *numbers: int) -> None:
        self._mark, self._numbers, self._num_episodes = mark, numbers, 0
        self._num_marks = 0
        self.seen: dict[int, psutil.Process] = {}
        """Every process of a server, ever."""

    @property
    def num_killed(self) -> int:
        return self._num_marks - self._mark.exists()

    def on_episode(self, episode: Episode) -> None:
        self._num_episodes += 1
        servers = children_with(_PROGRAM)
        self.seen.update((process.pid, process) for process in family_of(servers))
        if self._num_episodes in self._numbers:
            self._mark.touch()
            self._num_marks += 1


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(KILL_MARK, str(tmp_path / "mark"))
    return tmp_path / "mark"


def played(recipe: Path, folder: Path, killer: Killer, **more: object) -> list[Metrics]:
    """Train while servers are killed; return the metrics, after looking at what must hold."""
    settings = SETTINGS | SERVERS | more
    run = ag.train(recipe, settings, run_dir=folder, callbacks=[killer])
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert [line["step"] for line in lines] == list(range(1, settings["training.steps"] + 1))
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    assert sum(line["cluster/restarts_env"] for line in lines) == killer.num_killed > 0
    assert sum(line["cluster/episodes_lost"] for line in lines) >= killer.num_killed
    assert sum(line["rollout/episodes_restarted"] for line in lines) > 0
    assert {error for row in episodes_of(folder) if (error := row["error"])} == set()
    _, alive = psutil.wait_procs(list(killer.seen.values()), 30)
    assert alive == []
    return lines


def test_a_run_whose_server_is_killed_is_the_run_without_servers(
    recipe: Path, tmp_path: Path, mark: Path
):
    plain = ag.train(recipe, SETTINGS, run_dir=tmp_path / "plain")
    killer = Killer(mark, 9)  # the first episode of the second step
    played(recipe, tmp_path / "run", killer)
    assert killer.num_killed == 1
    without = ("cluster/", "rollout/published_bytes", "cluster/restarts_engine")
    without = (*without, "rollout/episodes_restarted")
    killed = metrics_of(tmp_path / "run", without=without)
    assert killed == metrics_of(plain.folder, without=without)


@pytest.mark.long
def test_servers_killed_again_and_again_cost_no_step(recipe: Path, tmp_path: Path, mark: Path):
    settings = {"cluster.env_servers": 3, "training.steps": 8, "training.tasks_per_step": 8}
    killer = Killer(mark, 40, 80, 150)
    lines = played(recipe, tmp_path / "run", killer, **settings)
    assert killer.num_killed == 3
    assert all(line["rollout/episodes"] == 32 for line in lines)


@pytest.mark.long
def test_servers_of_carried_over_episodes_may_die(recipe: Path, tmp_path: Path, mark: Path):
    settings = {"rollout.max_staleness": 1, "policy_loss.importance_cap": 2}
    played(recipe, tmp_path / "run", Killer(mark, 9, 20), **settings)


@pytest.mark.long
def test_servers_end_with_a_controller_that_is_killed(recipe: Path, tmp_path: Path):
    run = tmp_path / "run"
    words = [f"{name}={value}" for name, value in (SETTINGS | SERVERS).items()]
    command = Command("train", recipe, *words, "training.steps=500", "--run-dir", run)
    metrics = run / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text() != "", timeout_s=240)
    assert command.process.pid is not None
    family = family_of(children_with(_PROGRAM, psutil.Process(command.process.pid)))
    assert len(family) == 4
    command.process.kill()
    _, alive = psutil.wait_procs(family, 30)
    assert alive == []


@pytest.fixture
def urls() -> Iterator[list[str]]:
    with server_process(ENV) as (one, _), server_process(ENV) as (other, _):
        yield [one, other]


@pytest.mark.long
def test_a_list_of_servers_gives_the_run_of_one(recipe: Path, tmp_path: Path, urls: list[str]):
    made = ag.train(recipe, SETTINGS | {"training.steps": 1}, run_dir=tmp_path / "made")
    settings = SETTINGS | {"warm_start.steps": 0, "model.path": str(made.folder / "model")}
    for name, url in {"one": urls[0], "list": urls[:1], "both": urls}.items():
        ag.train(recipe, settings | {"env.url": url}, run_dir=tmp_path / name)
    one = metrics_of(tmp_path / "one")
    assert metrics_of(tmp_path / "list") == one
    assert episodes_of(tmp_path / "list") == episodes_of(tmp_path / "one")
    both = metrics_of(tmp_path / "both")
    assert [line["cluster/env_servers"] for line in both] == [2.0] * 4
    assert metrics_of(tmp_path / "both", without=("cluster/",)) == one
    assert episodes_of(tmp_path / "both") == episodes_of(tmp_path / "one")
