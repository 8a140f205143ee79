"""Whole runs on a Ray cluster of two nodes in one machine: the same numbers; actors are killed."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from safetensors.torch import load_file

import agentgym_rl as ag
from agentgym_rl.cli.cluster import diagnose_cluster
from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.folder import read_json_lines
from agentgym_rl.training.collect.collection import Collected
from agentgym_rl.types import Episode
from commands import Command
from ray_clusters import ENGINE, ENV_SERVER, RANK, VLLM, WORKER, actors_of, node_of, ray_cluster
from ray_runs import (
    RAY,
    SETTINGS,
    Killer,
    Recorder,
    check_all_ended,
    check_learned_once,
    check_lost,
    first_token,
)
from training_runs import RECIPE, episodes_of, go_on, succeeded
from vllm_stand_in import StandIn
from waiting import wait_for

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

# A cluster and seven processes that import torch: minutes where the cores are busy.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

CLOSE = 1e-5


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
    played = [e for step in recorder.groups for group in step.groups for e in group.episodes]
    num_lost = sum(line["cluster/episodes_lost"] for line in lines)
    assert num_lost == sum(episode.num_restarts for episode in played)
    assert not [row["error"] for row in episodes_of(run.folder) if row["error"]]
    check_all_ended(killer.seen)


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
        settings | {"reward.function": "ray_runs:first_token"},
        run_dir=tmp_path / "ray",
        callbacks=[killer],
    )
    assert replies_of(recorder.groups[0]) == replies_of(stored[0]), "step 1, token for token"
    assert killer.killed == [WORKER] and len(killer.nodes[WORKER]) == 2
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    check_lost(lines, rollout=1, engine=0, env=0)
    check_all_ended(killer.seen)


def test_vllm_servers_on_two_nodes_are_replaced_with_the_present_weights(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
):
    Recorder(monkeypatch)  # waits for engines that start
    stand_in = StandIn.install(tmp_path / "stand-in")

    class ServerKiller(Killer):
        """Kills an actor in the first step, and in the second one a server itself."""

        def on_episode(self, episode: Episode) -> None:
            super().on_episode(episode)
            for start in stand_in.starts():
                for pid in (start["pid"], start["body"]["child"]):
                    with contextlib.suppress(psutil.Error):  # it has ended
                        self.seen.setdefault(pid, psutil.Process(pid))
            if self._num_episodes == 12:
                os.kill(stand_in.starts()[-1]["pid"], signal.SIGKILL)

    killer = ServerKiller((4, VLLM))
    settings = SETTINGS | {
        "engine.type": "vllm",
        "engine.python": stand_in.python,
        "cluster.type": "ray",
        "cluster.address": cluster.address,
        "cluster.engines": 3,  # and a rank: two on each node
    }
    run = ag.train(
        recipe, settings, run_dir=tmp_path / "run", reward=first_token, callbacks=[killer]
    )
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [1, 2, 3]
    check_lost(lines, engine=2, learner=0)
    assert killer.killed == [VLLM] and len(killer.nodes[VLLM]) == 2
    started = [start["pid"] for start in stand_in.starts()]
    taken = stand_in.calls("/collective_rpc")
    assert len(started) == 5 and set(started[3:]) <= {call["pid"] for call in taken}
    assert all("model.safetensors" in call["files"] for call in taken)
    print(f"lost {sum(line['cluster/time_lost_s'] for line in lines):.1f} s by two servers")
    check_all_ended(killer.seen)


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
    check_all_ended(killer.seen)


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
