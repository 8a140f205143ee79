"""Runs on a Ray cluster for tests: settings, what kills their actors, and what must hold then."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import agentgym_rl as ag
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.training.collect.collection import Collected, Horizons, StepCollector
from agentgym_rl.types import Episode
from ray_clusters import ENGINE, ENV_SERVER, RANK, VLLM, WORKER, actors_of, node_of
from serving import Serving
from training_runs import episodes_of

SETTINGS: dict[str, Any] = {  # Any: what a setting may be
    "warm_start.steps": 0,
    "warm_start.num_demos": 8,
    "training.steps": 3,
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
        for kind in (*KINDS, WORKER, VLLM):
            for process in actors_of(kind):
                self.seen[process.pid] = process
                self.nodes.setdefault(kind, set()).add(node_of(process))
        if kind := self._moments.get(self._num_episodes):
            actors_of(kind)[0].kill()
            self.killed.append(kind)


class Recorder:
    """Lets a run learn from the groups of another, and keeps its own.

    A step begins when everything serves that was killed in the one before.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, is_due: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_due` says whether something is to be killed before the next step."""
        self.groups: list[Collected] = []
        self.fed: Iterator[Collected] = iter(())
        self._serving = Serving(monkeypatch)
        self.begun: list[float] = []
        """When each step began, by the monotonic clock."""
        collect = StepCollector.collect

        async def recorded(collector: StepCollector, step: int, max_rounds: Horizons) -> Collected:
            while is_due() or not self.is_whole:
                await asyncio.sleep(0.05)
            self.begun.append(time.monotonic())
            collected = await collect(collector, step, max_rounds)
            self.groups.append(collected)
            return next(self.fed, collected)

        monkeypatch.setattr(StepCollector, "collect", recorded)

    @property
    def is_whole(self) -> bool:
        """Whether all engines, rollout workers and environment servers serve."""
        return self._serving.is_whole


def check_lost(lines: list[Metrics], **restarts: int) -> None:
    """Look whether the metrics count what was killed."""
    for kind, number in restarts.items():
        assert sum(line[f"cluster/restarts_{kind}"] for line in lines) == number, kind
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)


def check_learned_once(folder: Path) -> None:
    rows = [row for row in episodes_of(folder) if row["phase"] == "train"]
    names = Counter((row["step"], row["task_index"], row["sample_index"]) for row in rows)
    assert max(names.values()) == 1, "no episode twice"


def check_all_ended(seen: dict[int, psutil.Process]) -> None:
    """Look whether no process of a run is left."""
    assert seen
    _, alive = psutil.wait_procs(list(seen.values()), 30)
    assert alive == []
