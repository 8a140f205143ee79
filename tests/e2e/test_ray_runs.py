"""Whole runs on a Ray cluster of two nodes in one machine: the same numbers; actors are killed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import random
from collections import Counter
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from safetensors.torch import load_file

import agentgym_rl as ag
from agentgym_rl.cli.cluster import diagnose_cluster
from agentgym_rl.engines.pool.places import Places
from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.folder import Metrics, read_json_lines
from agentgym_rl.training.collect.collection import Collected, Horizons, StepCollector
from agentgym_rl.types import Episode
from commands import Command
from ray_clusters import ENGINE, ENV_SERVER, RANK, WORKER, actors_of, node_of, ray_cluster
from training_runs import RECIPE, episodes_of, go_on, succeeded
from waiting import wait_for

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

# A cluster and seven processes that import torch: minutes where the cores are busy.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

CLOSE = 1e-5
NUM_STEPS = 3
SETTINGS: dict[str, Any] = {  # Any: what a setting may be
    "warm_start.steps": 0,
    "warm_start.num_demos": 8,
    "training.steps": NUM_STEPS,
    "training.lr": 1e-4,
    "checkpoint.every": 2,
    "eval.tasks": 0,
    "rollout.max_restarts": 6,
    "rollout.max_seconds": 600,
}
RAY: dict[str, Any] = {
    "cluster.type": "ray",
    "cluster.engines": 2,
    "cluster.env_servers": 2,
    "training.shards": 2,
}
KINDS = (ENGINE, RANK, ENV_SERVER)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster(3, 3) as cluster:
        yield cluster


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    forkserver.ensure_running()
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


def first_token(episode: Episode) -> float:
    """Reward what differs between the episodes of any policy."""
    return sum(ord(c) for c in episode.rounds[0].reply) % 7 / 7


class Killer(ag.Callback):
    """Kills an actor of each kind, in turn, at the ends of some episodes."""

    def __init__(self, *moments: tuple[int, str]) -> None:
        self._moments, self._num_episodes = dict(moments), 0
        self.killed: list[str] = []
        self.seen: dict[int, psutil.Process] = {}
        self.nodes: dict[str, set[int]] = {}

    def on_episode(self, episode: Episode) -> None:
        self._num_episodes += 1
        for kind in (*KINDS, WORKER):
            for process in actors_of(kind):
                self.seen[process.pid] = process
                self.nodes.setdefault(kind, set()).add(node_of(process))
        if kind := self._moments.get(self._num_episodes):
            actors_of(kind)[0].kill()
            self.killed.append(kind)


class Recorder:
    """Lets a run learn from the groups of another, and keeps its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[Collected] = []
        self.fed: Iterator[Collected] = iter(())
        collect = StepCollector.collect

        async def recorded(collector: StepCollector, step: int, max_rounds: Horizons) -> Collected:
            participants = next(iter(collector._envs.values())).participants
            player = participants.play_elsewhere
            workers = player.func.__self__ if isinstance(player, functools.partial) else None
            for pool in (participants.engine, workers):
                # What was killed in one step serves in the next.
                while isinstance(pool, Places) and not all(p.is_serving for p in pool._places):
                    await asyncio.sleep(0.05)
            collected = await collect(collector, step, max_rounds)
            self.groups.append(collected)
            return next(self.fed, collected)

        monkeypatch.setattr(StepCollector, "collect", recorded)


def replies_of(collected: Collected) -> list[tuple[object, ...]]:
    """Return task, seed and tokens of each episode."""
    return [
        (episode.task.index, episode.sample_index, tuple(s.token_ids for s in episode.samples))
        for group in collected.groups
        for episode in group.episodes
    ]


def test_a_run_on_two_nodes_is_that_of_one_process_also_if_actors_are_killed(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
):
    recorder = Recorder(monkeypatch)
    plain = ag.train(recipe, SETTINGS, run_dir=tmp_path / "plain", reward=first_token)
    stored, recorder.groups = recorder.groups, []
    recorder.fed = iter(stored)
    killer = Killer((10, ENGINE), (18, ENV_SERVER))
    settings = SETTINGS | RAY | {"cluster.address": cluster.address}
    run = ag.train(
        recipe, settings, run_dir=tmp_path / "ray", reward=first_token, callbacks=[killer]
    )

    # Its own episodes.
    pairs = list(
        itertools.chain(
            *(
                zip(*map(replies_of, both), strict=True)
                for both in zip(stored, recorder.groups, strict=True)
            )
        )
    )
    assert all(ours[:2] == theirs[:2] for theirs, ours in pairs), "the same tasks and seeds"
    first = pairs[: len(replies_of(stored[0]))]
    assert sum(ours == theirs for theirs, ours in first) >= 0.95 * len(first)

    # What it learned from those of the other run.
    lines, others = (list(read_json_lines(r.folder / "metrics.jsonl")) for r in (run, plain))
    for ours, theirs in zip(lines, others, strict=True):
        assert ours["train/loss"] == pytest.approx(theirs["train/loss"], abs=CLOSE)
        assert ours["train/grad_norm"] == pytest.approx(theirs["train/grad_norm"], rel=CLOSE * 5)
        assert ours["train/grad_norm"] > 1e-3
    weights, theirs = (load_file(r.folder / "model" / "model.safetensors") for r in (run, plain))
    assert max((weights[n] - theirs[n]).abs().max().item() for n in theirs) < CLOSE

    assert killer.killed == [ENGINE, ENV_SERVER]
    assert all(len(killer.nodes[kind]) == 2 for kind in (ENGINE, RANK)), "on both nodes"
    check_lost(lines, engine=1, env=1, node=0, learner=0)
    assert sum(line["cluster/episodes_lost"] for line in lines) >= 1
    assert not [row["error"] for row in episodes_of(run.folder) if row["error"]]
    _, alive = psutil.wait_procs(list(killer.seen.values()), 30)
    assert alive == []


def check_lost(lines: list[Metrics], **restarts: int) -> None:
    """Look whether the metrics count what was killed."""
    for kind, number in restarts.items():
        assert sum(line[f"cluster/restarts_{kind}"] for line in lines) == number, kind
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)


def test_rollout_workers_on_two_nodes_play_the_episodes_of_one_process(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
):
    recorder = Recorder(monkeypatch)
    settings = SETTINGS | {"training.steps": 2}
    ag.train(recipe, settings, run_dir=tmp_path / "plain", reward=first_token)
    stored, recorder.groups = recorder.groups, []
    recorder.fed = iter(stored)
    killer = Killer((2, WORKER))
    settings |= {
        "cluster.type": "ray",
        "cluster.address": cluster.address,
        "cluster.env_servers": 1,
        "cluster.rollout_workers": 2,
    }
    run = ag.train(
        recipe,
        settings | {"reward.function": f"{__name__}:first_token"},
        run_dir=tmp_path / "ray",
        callbacks=[killer],
    )
    assert replies_of(recorder.groups[0]) == replies_of(stored[0]), "step 1, token for token"
    assert killer.killed == [WORKER] and len(killer.nodes[WORKER]) == 2
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    check_lost(lines, rollout=1, engine=0, env=0)
    _, alive = psutil.wait_procs(list(killer.seen.values()), 30)
    assert alive == []


def test_doctor_asks_all_nodes(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    from agentgym_rl.distributed import probe  # once the token is chosen

    diagnose_cluster(cluster.address, str(tmp_path))
    told = capsys.readouterr().out
    assert "2 nodes, all with python" in told and f"all see {tmp_path}" in told
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(probe, "_marked", lambda folder: contextlib.nullcontext("/nowhere/mark"))
    ours = probe.versions_here()
    monkeypatch.setattr(probe, "versions_here", lambda: ours | {"torch": "1.0"})
    with pytest.raises(ConfigError, match=r"this machine 1\.0: install the same") as refused:
        diagnose_cluster(cluster.address, str(tmp_path))
    assert str(refused.value).count("does not see files of this machine") == 2


LONG = SETTINGS | {"training.steps": 6, "checkpoint.every": 1}


@pytest.mark.parametrize("seed", range(10))
def test_actors_that_are_killed_at_random_moments_cost_no_step(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, seed: int
):
    Recorder(monkeypatch)  # waits for engines that start
    noise = random.Random(seed)
    num_episodes = 8 * LONG["training.steps"]
    killer = Killer(*((noise.randrange(num_episodes - 8), noise.choice(KINDS)) for _ in range(3)))
    settings = LONG | RAY | {"cluster.address": cluster.address}
    run = ag.train(
        recipe, settings, run_dir=tmp_path / "run", reward=first_token, callbacks=[killer]
    )
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    killed = Counter(killer.killed)
    check_lost(lines, engine=killed[ENGINE], env=killed[ENV_SERVER], learner=killed[RANK])
    check_learned_once(run.folder)
    _, alive = psutil.wait_procs(list(killer.seen.values()), 30)
    assert alive == []


def test_a_node_that_dies_costs_no_step(recipe: Path, tmp_path: Path):
    class NodeKiller(Killer):
        """Kills a node with an engine but no rank, in the middle of the second step."""

        def on_episode(self, episode: Episode) -> None:
            super().on_episode(episode)
            if self._num_episodes == 12:
                engines, ranks = (set(map(node_of, actors_of(kind))) for kind in (ENGINE, RANK))
                (raylet,) = sorted(engines - ranks)[:1]
                self.killed.append(str(raylet))
                psutil.Process(raylet).kill()

    killer = NodeKiller()
    with ray_cluster(0, 2, 2, 2, 2) as cluster:
        settings = LONG | RAY | {"training.shards": 1, "cluster.address": cluster.address}
        run = ag.train(recipe, settings, run_dir=tmp_path / "run", callbacks=[killer])
        lines = list(read_json_lines(run.folder / "metrics.jsonl"))
        assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
        assert len(killer.killed) == 1
        check_lost(lines, node=1)
        check_learned_once(run.folder)
    _, alive = psutil.wait_procs(list(killer.seen.values()), 30)
    assert alive == []


def test_a_controller_that_is_killed_leaves_no_process_and_resumes_elsewhere(
    recipe: Path, tmp_path: Path, cluster: Cluster
):
    words = [f"{name}={value}" for name, value in (SETTINGS | RAY).items()]
    path = tmp_path / "run"
    command = Command("train", recipe, *words, "training.steps=500", "--run-dir", path)
    wait_for((path / "checkpoints" / "step-2" / "state.json").exists, timeout_s=240)
    seen = psutil.Process(command.process.pid).children(recursive=True)
    assert any("ray::RankHost" in " ".join(process.cmdline()) for process in seen)
    command.process.kill()
    _, alive = psutil.wait_procs(seen, 30)
    assert alive == []
    done = max(line["step"] for line in read_json_lines(path / "metrics.jsonl"))
    outcome = go_on(path, f"training.steps={done + 2}", f"cluster.address={cluster.address}")
    assert succeeded(outcome)
    steps = [line["step"] for line in read_json_lines(path / "metrics.jsonl")]
    assert steps == list(range(1, done + 3))


def check_learned_once(folder: Path) -> None:
    rows = [row for row in episodes_of(folder) if row["phase"] == "train"]
    names = Counter((row["step"], row["task_index"], row["sample_index"]) for row in rows)
    assert max(names.values()) == 1, "no episode twice"
