"""Worker processes that hold the episodes: started, watched, replaced when they die or hang.

An episode stays in the process that made it; its id starts with the worker's number ("3.kX...").
When a worker dies, its episodes answer 410 and another worker takes its place under a new number,
so that an old id can never reach a new episode. A worker in which a call hangs is retired: another
takes the new episodes at once, and it is killed when its last episode has ended. One that misses
its heartbeats gets no new episodes until it answers again, or is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import fields, replace

from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import ErrorKind, Object, Op
from agentgym_rl.envs.service.server.backend import DRAINING, Backend, ServerLimits, Sink, Stats
from agentgym_rl.envs.service.server.session import UNKNOWN_MESSAGE, gone_message
from agentgym_rl.envs.service.server.worker import WorkerSettings
from agentgym_rl.envs.service.server.worker_process import HEARTBEAT_S, WorkerProcess
from agentgym_rl.errors import EnvError
from agentgym_rl.serving import bodies

logger = logging.getLogger(__name__)

_MAX_SILENCE_S = 30.0
"""A worker that does not answer for this long (its threads are stuck) is killed."""
_STATS_TIMEOUT_S = 1.0
_MAX_RESTART_PAUSE_S = 30.0
_NUM_REMEMBERED_KEYS = 1 << 14
"""Of the latest creates: more than are in flight at once, which is what a client may repeat."""
_MAX_NUMBER_DIGITS = 9
"""Of a worker's number in an id; an id can be anything, and Python refuses to read long ones."""
_HEALTHY_AFTER_S = 10.0
"""A worker that dies sooner is restarted with a growing pause."""


class WorkerPool(Backend):
    """The episodes of one environment in `num_workers` processes."""

    def __init__(
        self,
        env: str,
        options: Mapping[str, object],
        limits: ServerLimits,
        *,
        num_workers: int,
        is_quiet_in_calls: bool = False,
    ) -> None:
        """`is_quiet_in_calls` says that a worker answers nothing while a call runs in it."""
        if num_workers < 1:
            raise ValueError(f"the number of workers must be 1 or more, got {num_workers}")
        self._env = env
        self._options = dict(options)
        self._limits = limits
        call_s = limits.call_timeout_s if is_quiet_in_calls else 0.0
        self._max_silence_s = _MAX_SILENCE_S + call_s
        # No more workers than places: each has a share, and the shares sum to the capacity.
        self._num_wanted = min(num_workers, limits.capacity)
        self._num_started = 0
        self._submissions = itertools.count(1)
        self._workers: dict[int, WorkerProcess] = {}
        self._by_key: OrderedDict[str, int] = OrderedDict()
        """The number of the worker to which the create with a key went."""
        self._past = Stats()
        """Counts of workers that have ended."""
        self._num_restarts = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._num_quick_deaths = 0

    async def start(self) -> None:
        """Start the workers and wait until all are ready."""
        share, rest = divmod(self._limits.capacity, self._num_wanted)
        capacities = [share + (place < rest) for place in range(self._num_wanted)]
        try:
            # All of them to the end, so that none is left half started when another fails.
            outcomes = await asyncio.gather(
                *map(self._start_worker, capacities), return_exceptions=True
            )
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
        except BaseException:
            await self.aclose()
            raise
        self._spawn(self._watch())

    def submit(self, calls: Sequence[Object], sink: Sink) -> None:
        by_worker: dict[WorkerProcess, list[Object]] = {}
        for call in calls:
            worker = self._worker_for(call)
            if worker is None:
                sink.add(self._refusal(call))
                continue
            by_worker.setdefault(worker, []).append(call)
            if call.get("op") == Op.CREATE:
                worker.num_opening += 1  # now, so that the next create of the batch sees it
                self._remember(call.get("key"), worker)
        for worker, chosen in by_worker.items():
            worker.submit(next(self._submissions), chosen, sink)

    async def stats(self) -> Stats:
        workers = list(self._workers.values())
        await asyncio.gather(*(worker.refresh(_STATS_TIMEOUT_S) for worker in workers))
        total = self._past
        for worker in workers:
            total = _sum(total, worker.stats)
        num_running = sum(worker.takes_episodes for worker in workers)
        return replace(
            total,
            num_workers=num_running,
            num_silent=sum(worker.is_silent for worker in workers),
            num_restarts=self._num_restarts,
            num_missing=max(0, self._num_wanted - num_running),
        )

    async def aclose(self) -> None:
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(worker.end() for worker in self._workers.values()))
        self._workers.clear()

    async def _start_worker(self, capacity: int) -> None:
        self._num_started += 1
        number = self._num_started
        settings = WorkerSettings(
            env=self._env,
            options=self._options,
            limits=replace(self._limits, capacity=capacity),
            max_stuck_s=2 * self._max_silence_s,  # longer, for a server that is gone
            prefix=f"{number}.",
        )
        worker = WorkerProcess(number, settings)
        self._workers[number] = worker
        try:
            await worker.start()
        except EnvError:
            self._workers.pop(number, None)
            raise
        self._spawn(self._replace_when_ended(worker))

    async def _replace_when_ended(self, worker: WorkerProcess) -> None:
        """Wait for the worker's end and put another in its place, as often as it takes."""
        status = await worker.wait()
        del self._workers[worker.number]
        self._past = _sum(self._past, worker.final_stats())
        if worker.is_retiring or self._is_closing:
            return
        logger.warning(
            "worker %d ended (status %s) with %d episodes: starting another",
            worker.number, status, worker.num_episodes,
        )  # fmt: skip
        if time.monotonic() - worker.started_at < _HEALTHY_AFTER_S:
            self._num_quick_deaths += 1
            pause_s = min(_MAX_RESTART_PAUSE_S, 0.1 * 2**self._num_quick_deaths)
            await asyncio.sleep(pause_s)
        else:
            self._num_quick_deaths = 0
        await self._restart(worker.capacity)

    async def _restart(self, capacity: int) -> None:
        pause_s = 0.5
        while True:
            self._num_restarts += 1
            try:
                await self._start_worker(capacity)
            except EnvError as error:
                logger.warning("a worker did not start, trying again in %g s: %s", pause_s, error)
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_RESTART_PAUSE_S)

    async def _watch(self) -> None:
        """Kill workers that do not answer, retire those in which a call hangs."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for worker in list(self._workers.values()):
                worker.ask_stats()
                if worker.is_ready and worker.silent_s > self._max_silence_s:
                    logger.warning("worker %d does not answer: killing it", worker.number)
                    worker.kill()
                elif worker.is_ready and worker.stats.num_abandoned and not worker.is_retiring:
                    self._retire(worker)
            self._end_retired()

    def _retire(self, worker: WorkerProcess) -> None:
        logger.warning(
            "a call hangs in worker %d: another takes over, and it ends with its last of %d "
            "episodes",
            worker.number, worker.num_episodes,
        )  # fmt: skip
        worker.is_retiring = True
        self._spawn(self._restart(worker.capacity))

    def _end_retired(self) -> None:
        """Kill retired workers that have no episode left, and the oldest beyond a bound."""
        retired = [worker for worker in self._workers.values() if worker.is_retiring]
        excess = len(retired) - self._num_wanted
        for place, worker in enumerate(retired):
            if worker.num_episodes == 0 or place < excess:
                worker.kill()

    def _worker_for(self, call: Object) -> WorkerProcess | None:
        """Return the worker of the call's episode, the one with most room for a new episode."""
        episode = call.get("episode")
        if isinstance(episode, str) and call.get("op") != Op.CREATE:
            worker = self._workers.get(_worker_number(episode))
            return worker if worker is not None and worker.is_ready else None
        key = call.get("key")
        if isinstance(key, str) and (number := self._by_key.get(key)) in self._workers:
            worker = self._workers[number]
            if worker.takes_episodes:
                return worker
        if self.is_draining:
            return None
        ready = [worker for worker in self._workers.values() if worker.takes_episodes]
        return max(ready, key=lambda worker: worker.capacity - worker.load) if ready else None

    def _remember(self, key: object, worker: WorkerProcess) -> None:
        """Take note of where a create goes, so that a repeat of it goes there as well."""
        if isinstance(key, str) and key:
            self._by_key[key] = worker.number
            if len(self._by_key) > _NUM_REMEMBERED_KEYS:
                self._by_key.popitem(last=False)

    def _refusal(self, call: Object) -> bytes:
        """Return the answer to a call for which there is no worker."""
        if call.get("op") == Op.CLOSE:
            return protocol.encode_answer(call["call"], 204, None)
        episode = call.get("episode")
        if isinstance(episode, str) and call.get("op") != Op.CREATE:
            if 0 < _worker_number(episode) <= self._num_started:
                kind, message = ErrorKind.GONE, gone_message("its worker process has ended")
            else:
                kind, message = ErrorKind.UNKNOWN_EPISODE, UNKNOWN_MESSAGE
        elif self.is_draining:
            kind, message = ErrorKind.BUSY, DRAINING
        else:
            kind, message = ErrorKind.BUSY, "no worker process is ready or answers; try again"
        return protocol.encode_answer(call["call"], kind.status, bodies.error_body(kind, message))

    def _spawn(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _worker_number(episode: str) -> int:
    """Return the number in an episode's id; 0, which no worker has, where there is none."""
    number, _, _ = episode.partition(".")
    is_number = number.isdecimal() and len(number) <= _MAX_NUMBER_DIGITS
    return int(number) if is_number else 0


def _sum(one: Stats, other: Stats) -> Stats:
    names = [f.name for f in fields(Stats)]
    return Stats(**{name: getattr(one, name) + getattr(other, name) for name in names})
