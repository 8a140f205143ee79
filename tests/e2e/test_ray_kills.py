"""Runs on a Ray cluster that lose actors and nodes at random moments, and what each loss costs.

What was measured is printed (`pytest -s`), and is in docs/many-machines.md.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import agentgym_rl as ag
from agentgym_rl.runs.folder import Metrics, read_json_lines
from agentgym_rl.types import Episode
from ray_clusters import (
    ENGINE,
    ENV_SERVER,
    RANK,
    WORKER,
    actors_of,
    add_node,
    node_of,
    ray_cluster,
)
from ray_runs import (
    RAY,
    SETTINGS,
    Killer,
    Recorder,
    check_all_ended,
    check_learned_once,
    first_token,
)
from training_runs import RECIPE
from waiting import wait_for

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

# Nine processes that import torch, and again those that were killed.
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1800)]

NODE = "node"
NAMES = {ENGINE: "engine", ENV_SERVER: "env", WORKER: "rollout", RANK: "learner", NODE: "node"}
"""Of the metrics that count them."""
ACTORS = (ENGINE, ENV_SERVER, WORKER, RANK)
MAX_LOST_S = {ENGINE: 15.0, ENV_SERVER: 15.0, WORKER: 15.0, RANK: 60.0, NODE: 45.0}
ALL_LOST_S = sum(MAX_LOST_S.values())
"""Of a node with one of everything."""
STEP_EPISODES = 8
LOSING: dict[str, Any] = (  # Any: what a setting may be
    SETTINGS
    | RAY
    | {
        "cluster.rollout_workers": 2,
        "training.steps": 6,
        "checkpoint.every": 1,
        "reward.function": "ray_runs:first_token",
    }
)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    forkserver.ensure_running()
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with ray_cluster(0, 4, 4) as cluster:
        yield cluster


class RandomKiller(Killer):
    """Kills actors, or a node, each this many seconds after the end of an episode."""

    def __init__(self, cluster: Cluster, plan: Mapping[int, tuple[str, int, float]]) -> None:
        super().__init__()
        self._cluster, self._plan = cluster, plan
        self._threads: list[threading.Thread] = []
        self.is_whole: Callable[[], bool] = lambda: True
        self.planned = {kind for kind, _, _ in plan.values()}
        self.num_killed = Counter[str]()
        """Nodes, and actors also of nodes."""
        self.node_killed_at = 0.0

    @property
    def is_due(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def on_episode(self, episode: Episode) -> None:
        super().on_episode(episode)
        if self._num_episodes in self._plan:
            thread = threading.Thread(target=self._kill, args=self._plan[self._num_episodes])
            self._threads.append(thread)
            thread.start()

    def _kill(self, kind: str, number: int, delay_s: float) -> None:
        time.sleep(delay_s)
        kinds = ACTORS if kind == NODE else (kind,)
        # What is being replaced is waited for; a node takes nothing with it that was not counted.
        wait_for(lambda: all(len(actors_of(one)) == 2 for one in kinds), timeout_s=300)
        if kind == NODE:
            wait_for(self.is_whole, timeout_s=300)
            self._kill_node(number)
        else:
            actors_of(kind)[number].kill()
        self.num_killed[kind] += 1

    def _kill_node(self, number: int) -> None:
        """Remove a node with all that runs there, and add another."""
        nodes = {
            node.all_processes["raylet"][0].process.pid: node for node in self._cluster.worker_nodes
        }
        raylet = sorted(nodes)[number]
        lost = Counter(
            kind for kind in ACTORS for each in actors_of(kind) if node_of(each) == raylet
        )
        lost[RANK] = min(lost[RANK], 1)  # the learner is formed again once
        self.num_killed += lost
        self.node_killed_at = time.monotonic()
        self._cluster.remove_node(nodes[raylet], allow_graceful=False)
        # A node that ends with this process has signal handlers, which only the main thread sets.
        self._cluster._shutdown_at_exit = False
        add_node(self._cluster, 4)


def lose(
    recipe: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    killer: RandomKiller,
    settings: Mapping[str, object],
) -> float:
    """Train, look at what must hold, and return the seconds that were lost."""
    recorder = Recorder(monkeypatch, is_due=lambda: killer.is_due)
    killer.is_whole = lambda: recorder.is_whole
    run = ag.train(recipe, settings, run_dir=folder, reward=first_token, callbacks=[killer])
    lines = list(read_json_lines(run.folder / "metrics.jsonl"))
    assert [line["step"] for line in lines] == list(range(1, int(lines[-1]["step"]) + 1))
    assert all(line["rollout/episodes"] == STEP_EPISODES for line in lines)
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    check_learned_once(run.folder)
    assert all(killer.num_killed[kind] for kind in killer.planned)
    restarts = {kind: _sum(lines, f"cluster/restarts_{name}") for kind, name in NAMES.items()}
    lost_s = _sum(lines, "cluster/time_lost_s")
    print(f"killed {dict(killer.num_killed)}, restarted {restarts}, lost {lost_s:.1f} s")
    for kind, number in restarts.items():
        killed = killer.num_killed[kind]
        # An engine that waits for the weights of a learner that died is ended, too.
        assert number >= killed if kind == ENGINE else number == killed, kind
    if killer.num_killed[NODE]:
        # What died with it comes back at the same time, and each counts its own seconds.
        node_s = min(at for at in recorder.begun if at > killer.node_killed_at)
        node_s -= killer.node_killed_at
        print(f"the next step began {node_s:.1f} s after the death of the node")
        assert node_s < MAX_LOST_S[NODE]
    check_all_ended(killer.seen)
    return lost_s


def _sum(lines: Sequence[Metrics], name: str) -> float:
    return sum(line.get(name, 0.0) for line in lines)


@pytest.mark.parametrize("kind", [ENGINE, ENV_SERVER, WORKER, RANK, NODE])
def test_what_one_loss_costs(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, kind: str
):
    killer = RandomKiller(cluster, {12: (kind, 0, 0.0)})
    settings = LOSING | {"training.steps": 3, "cluster.address": cluster.address}
    lost_s = lose(recipe, tmp_path / "run", monkeypatch, killer, settings)
    assert 0 < lost_s < (ALL_LOST_S if kind == NODE else MAX_LOST_S[kind])


@pytest.mark.parametrize("seed", range(10))
def test_kills_at_random_moments_cost_no_step(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: Cluster, seed: int
):
    rng = random.Random(seed)
    kinds = (*ACTORS, NODE) if seed % 2 else ACTORS
    numbers = rng.sample(range(1, 33), len(kinds))  # of the 48 episodes
    plan = {
        number: (kind, rng.randrange(2), rng.uniform(0.0, 2.0))
        for number, kind in zip(numbers, kinds, strict=True)
    }
    killer = RandomKiller(cluster, plan)
    settings = LOSING | {"seed": seed, "cluster.address": cluster.address}
    lost_s = lose(recipe, tmp_path / "run", monkeypatch, killer, settings)
    assert lost_s < sum(MAX_LOST_S[kind] * number for kind, number in killer.num_killed.items())
