"""Whole runs that lose processes with kill -9: learner ranks, engines, environments, workers.

They end with the metrics of a run that lost none.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
import threading
from collections import Counter
from collections.abc import Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

import agentgym_rl as ag
from agentgym_rl.errors import RunError
from agentgym_rl.runs.folder import Metrics, read_json_lines
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.sft import SFTTrainer
from agentgym_rl.types import Episode
from serving import Serving, children_with, hold_step
from training_runs import RECIPE, episodes_of, metrics_of
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.long]

SETTINGS: dict[str, Any] = {  # Any: what a setting may be
    "training.shards": 2,
    "training.steps": 3,
    "checkpoint.every": 2,
    "eval.tasks": 0,
    "rollout.max_restarts": 6,
    "rollout.max_seconds": 600,
}
WARM_UP = {"warm_start.steps": 4, "warm_start.num_demos": 8, "training.steps": 1, "eval.tasks": 0}
LOCAL = {"cluster.type": "local", "cluster.engines": 2}
SERVERS = {"cluster.env_servers": 2}
WORKERS = {"cluster.rollout_workers": 2}
NOT_COMPARED = ("cluster/", "rollout/published_bytes", "rollout/episodes_restarted")
MAX_LOST_S = 60.0


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    forkserver.ensure_running()
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


@pytest.fixture
def settings(recipe: Path, tmp_path: Path) -> dict[str, Any]:
    """Those of a run on ranks from a model that has been warmed up in one process."""
    warm = ag.train(recipe, WARM_UP, run_dir=tmp_path / "warm")
    return SETTINGS | {
        "model.path": str(warm.folder / "warm_start" / "model"),
        "warm_start.steps": 0,
    }


def kill_child(name: str) -> bool:
    """Kill a process of this one's children by its name; return whether it was there."""
    for child in multiprocessing.active_children():
        if child.name == name:
            child.kill()
            return True
    return False


def kill_env_server(number: int) -> bool:
    """Kill an environment server of a run in this process; return whether there are that many."""
    servers = children_with("agentgym_rl.envs.access.child")
    if number >= len(servers):
        return False
    servers[number].kill()
    return True


def kill(kind: str, number: int) -> bool:
    return kill_env_server(number) if kind == "env" else kill_child(f"{kind}-{number}")


class Killer(ag.Callback):
    """Kills processes: each ("learner", 1) this many seconds after the end of an episode."""

    def __init__(self, plan: dict[int, tuple[str, int, float]]) -> None:
        self._plan, self._num_episodes = plan, 0
        self.num_planned, self.killed = len(plan), Counter[str]()

    def on_episode(self, episode: Episode) -> None:
        self._num_episodes += 1
        if self._num_episodes in self._plan:
            kind, number, delay_s = self._plan[self._num_episodes]
            if delay_s:
                threading.Timer(delay_s, self._kill, (kind, number)).start()
            else:
                self._kill(kind, number)

    def _kill(self, kind: str, number: int) -> None:
        # One that is being replaced is waited for.
        wait_for(lambda: kill(kind, number))
        self.killed[kind] += 1


def lines_of(folder: Path) -> list[Metrics]:
    return list(read_json_lines(folder / "metrics.jsonl"))


def check_whole(folder: Path, killed: Counter[str], *, num_steps: int) -> float:
    """Look at what every run must have that lost processes; return the seconds it lost."""
    lines = lines_of(folder)
    assert [line["step"] for line in lines] == list(range(1, num_steps + 1))
    for kind, num in killed.items():
        restarts = sum(line[f"cluster/restarts_{kind}"] for line in lines)
        # An engine that waits for the weights of a learner that died is ended, too. A worker that
        # dies near the end is not replaced before it: the other one plays what is left.
        is_fine = {"engine": restarts >= num, "rollout": restarts <= num}
        assert is_fine.get(kind, restarts == num), kind
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    assert all(line["rollout/episodes"] == 8 for line in lines)
    learned = [row for row in episodes_of(folder) if row["phase"] == "train"]
    places = Counter((row["step"], row["group"], row["sample_index"]) for row in learned)
    assert len(learned) == 8 * num_steps and max(places.values()) == 1, "no episode twice"
    names = ("learner", "engine", "rollout")
    left = [child.name for child in multiprocessing.active_children()]
    assert not [name for name in left if name.startswith(names)]
    lost_s = sum(line["cluster/time_lost_s"] for line in lines)
    assert (lost_s > 0) == (killed.total() > 0)
    return lost_s


def check_same(folder: Path, other: Path) -> None:
    """Look whether two runs learned the same from the same, to the last bit."""
    same = [metrics_of(path, without=NOT_COMPARED) for path in (folder, other)]
    assert same[0] == same[1]
    models = [path / "model" / "model.safetensors" for path in (folder, other)]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_a_run_that_loses_a_rank_is_the_run_that_lost_none(
    recipe: Path, tmp_path: Path, settings: dict[str, Any]
):
    plain = ag.train(recipe, settings, run_dir=tmp_path / "plain")
    killer = Killer({18: ("learner", 1, 0)})  # of the third step: step 2 is saved
    run = ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[killer])
    assert killer.killed == {"learner": 1}
    assert check_whole(run.folder, killer.killed, num_steps=3) < MAX_LOST_S
    check_same(run.folder, plain.folder)


@pytest.mark.long
@pytest.mark.parametrize("number", [2, 7, 12, 20])
def test_a_rank_may_die_before_there_is_a_checkpoint_and_at_any_later_episode(
    recipe: Path, tmp_path: Path, settings: dict[str, Any], number: int
):
    settings |= {"eval.tasks": 2, "eval.every": 1, "lora.rank": 4 if number == 12 else 0}
    plain = ag.train(recipe, settings, run_dir=tmp_path / "plain")
    killer = Killer({number: ("learner", number % 2, 0)})
    run = ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[killer])
    check_whole(run.folder, Counter(learner=1), num_steps=3)
    check_same(run.folder, plain.folder)


@pytest.mark.long
def test_the_learner_of_a_warm_start_is_formed_again(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = SETTINGS | WARM_UP
    plain = ag.train(recipe, settings, run_dir=tmp_path / "plain")
    num_updates, update = itertools.count(1), SFTTrainer.update

    def watched(trainer: SFTTrainer, batch: Sequence[TrainingSample]) -> Metrics:
        assert next(num_updates) != 3 or kill_child("learner-0")
        return update(trainer, batch)

    monkeypatch.setattr(SFTTrainer, "update", watched)
    run = ag.train(recipe, settings, run_dir=tmp_path / "run")
    lines = lines_of(run.folder / "warm_start")
    assert [line["cluster/restarts_learner"] for line in lines] == [1, 0, 0, 0]
    check_same(run.folder / "warm_start", plain.folder / "warm_start")
    check_same(run.folder, plain.folder)


class Stubborn(ag.Callback):
    """Kills a rank whenever the second step ends."""

    def on_step(self, metrics: Metrics) -> None:
        if metrics["step"] == 2:
            assert kill_child("learner-1")


@pytest.mark.long
@pytest.mark.parametrize("most", [0, 1])
def test_a_run_that_may_not_begin_again_ends_with_the_reason(
    recipe: Path, tmp_path: Path, settings: dict[str, Any], most: int
):
    settings |= {"cluster.max_restarts": most, "checkpoint.every": 3}
    told = rf"rank 1 was killed by signal 9.*cluster\.max_restarts={most}.*--resume"
    with pytest.raises(RunError, match=told):
        ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[Stubborn()])
    assert not multiprocessing.active_children()
    ag.train(None, run_dir=tmp_path / "run", resume=True)
    lines = lines_of(tmp_path / "run")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert sum(line["cluster/restarts_learner"] for line in lines) == most


KINDS = ("learner", "engine", "env", "rollout")
ALL_APART = LOCAL | SERVERS | WORKERS | {"training.steps": 6, "checkpoint.every": 1}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_kills_at_random_moments_cost_no_step_and_change_nothing(
    recipe: Path,
    tmp_path: Path,
    settings: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
):
    settings |= ALL_APART | {"seed": seed}
    plain = ag.train(recipe, settings, run_dir=tmp_path / "plain")
    check_whole(plain.folder, Counter(), num_steps=6)
    rng = random.Random(seed)
    numbers = rng.sample(range(1, 33), len(KINDS))  # of the 48 episodes
    kills = {
        number: (kind, rng.randrange(2), rng.uniform(0.0, 2.0))
        for number, kind in zip(numbers, KINDS, strict=True)
    }
    killer, serving = Killer(kills), Serving(monkeypatch)
    hold_step(
        monkeypatch, 6, lambda: killer.killed.total() == killer.num_planned and serving.is_whole
    )
    run = ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[killer])
    assert killer.killed == dict.fromkeys(KINDS, 1)
    assert check_whole(run.folder, killer.killed, num_steps=6) < MAX_LOST_S + 2 * 15
    check_same(run.folder, plain.folder)


@pytest.mark.long
def test_a_rank_of_an_overlapped_run_may_die(
    recipe: Path, tmp_path: Path, settings: dict[str, Any]
):
    overlapped = {
        "rollout.max_staleness": 1,
        "rollout.overlap": True,
        "policy_loss.importance_cap": 2,
    }
    killer = Killer({12: ("learner", 0, 0.0), 30: ("learner", 1, 0.5), 33: ("engine", 0, 0.0)})
    settings |= ALL_APART | overlapped | {"cluster.env_servers": 0}
    run = ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[killer])
    assert killer.killed == {"learner": 2, "engine": 1}
    check_whole(run.folder, killer.killed, num_steps=6)
    assert all(0 <= line["rollout/staleness_max"] <= 1 for line in lines_of(run.folder))
