"""The rollout workers of a run: which of them plays an episode, and what becomes of one that dies.

An episode goes to the worker with the fewest, and stays there. If the worker dies it starts again
on another, with the same sampling noise, as after any failure of what it needs
(`rollout.max_restarts`); another worker takes the place. The controller keeps tasks, seeds, groups
and metrics: it waits for an episode of a worker as for one of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from agentgym_rl.agents.limits import Limits
from agentgym_rl.config import RewardConfig
from agentgym_rl.engines.base import EngineDiedError
from agentgym_rl.engines.pool.places import Places
from agentgym_rl.engines.pool.remote import START_TIMEOUT_S
from agentgym_rl.engines.pool.starter import Starter
from agentgym_rl.errors import EngineError
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, PlayEpisode
from agentgym_rl.rollout.workers.messages import Failed, WorkerEnv, WorkerPlan, unpacked
from agentgym_rl.rollout.workers.remote import FindAddress, RemoteWorker, StartWorker
from agentgym_rl.types import Episode, StopReason

logger = logging.getLogger(__name__)

_EPISODES_LOST = "cluster/episodes_lost"
_CHECK_EVERY_S = 5.0
_HANGS_S = 60.0
"""After this long without an answer a worker is killed: nothing that it does takes its event loop
as long."""


@dataclass(frozen=True, slots=True)
class WorkersOrder:
    """Which workers a run wants."""

    num_workers: int
    envs: tuple[WorkerEnv, ...]
    reward: RewardConfig
    reward_timeout_s: float
    folder: Path
    """For a folder of each."""
    start: StartWorker
    find_address: FindAddress


async def open_workers(order: WorkersOrder) -> WorkerPool:
    """Return the workers, all of them ready; the caller closes them."""
    loop, folder = asyncio.get_running_loop(), order.folder.absolute()

    def begin(number: int, on_end: Callable[[RemoteWorker], None]) -> RemoteWorker:
        own = folder / f"rollout-{number}"
        plan = WorkerPlan(number, order.envs, order.reward, order.reward_timeout_s, own)
        return RemoteWorker(
            plan, order.start, find_address=order.find_address, loop=loop, on_end=on_end
        )

    starter = Starter(begin)
    workers = await asyncio.to_thread(starter.all, order.num_workers)
    pool = WorkerPool(workers, starter.one)
    starter.report_to(pool, workers)
    return pool


class WorkerPool(Places[RemoteWorker]):
    """Owns the workers; `open_workers` makes it."""

    def __init__(
        self, workers: Sequence[RemoteWorker], replace_one: Callable[[int], RemoteWorker]
    ) -> None:
        super().__init__(
            workers, replace=replace_one, wait_s=START_TIMEOUT_S, noun="rollout worker"
        )
        self._counts = Counter[str]()
        """What workers have counted, by the names of metrics."""
        self._num_played = [0] * len(workers)
        """Episodes of each place. Both since the metrics were taken."""
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="rollout-watch", daemon=True).start()

    def player(self, env: int) -> PlayEpisode:
        """Return what plays episodes of the environment in this place of the order."""
        return partial(self._play, env)

    def take_metrics(self) -> dict[str, float]:
        """Return what happened since the last call, by the names of metrics."""
        with self._changed:
            losses = self._take_losses()
            played, self._num_played = self._num_played, [0] * len(self._places)
            counts, self._counts = self._counts, Counter[str]()
            num_serving = 0
            for place in self._places:
                num_serving += place.is_serving
                place.num_deaths = 0 if place.is_serving else place.num_deaths
        return {
            "cluster/rollout_workers": float(num_serving),
            "cluster/restarts_rollout": float(losses.num_replaced),
            _EPISODES_LOST: 0.0,
            "cluster/time_lost_s": losses.seconds,
            **{f"cluster/episodes_worker_{n}": float(num) for n, num in enumerate(played)},
            **{name: float(number) for name, number in counts.items()},
        }

    def close(self) -> None:
        self._over.set()
        super().close()

    async def _play(
        self, env: int, spec: EpisodeSpec, participants: Participants, limits: Limits
    ) -> Episode:
        num_lost = 0
        while True:
            left = replace(limits, max_restarts=limits.max_restarts - num_lost)
            try:
                place, worker = await self.choose()
            except EngineError as error:
                raise EngineDiedError(f"no rollout worker plays {spec.task.id}: {error}") from error
            try:
                value = await worker.play(env, spec, participants, left)
            except EngineError as error:
                self._counts[_EPISODES_LOST] += 1
                if num_lost == limits.max_restarts:
                    return _failed(spec, str(error), num_restarts=num_lost)
                num_lost += 1
                logger.warning("episode %s is lost and starts again: %s", spec.task.id, error)
                continue
            finally:
                self.leave(place, worker)
            if isinstance(value, Failed):
                raise value.error
            self._counts.update(value.counts)
            self._num_played[place.number] += 1
            episode = unpacked(value.episode)
            num_restarts = num_lost + episode.num_restarts
            return replace(episode, task=spec.task, num_restarts=num_restarts)

    def _watch(self) -> None:
        """End workers that hang, until the pool is closed."""
        while not self._over.wait(_CHECK_EVERY_S):
            for worker in self._living():
                with contextlib.suppress(EngineError):  # its end is reported
                    worker.check(_HANGS_S)


def _failed(spec: EpisodeSpec, error: str, *, num_restarts: int) -> Episode:
    """Return the record of an episode whose workers died too often."""
    return Episode(
        task=spec.task,
        sample_index=spec.sample_index,
        stop_reason=StopReason.ENV_ERROR,
        reward=None,
        success=False,
        rounds=(),
        messages=(),
        samples=(),
        seconds=0.0,
        num_restarts=num_restarts,
        error=error,
    )
