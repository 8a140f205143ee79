"""Several environment servers as one source: new episodes go to the least loaded that serves.

An episode stays with the server that it began on and fails with it; the rollout then starts it
again, on another. A server that died gets no new episodes and is asked again until it is back, or
is replaced where the run started it (places.py). A full or draining one is asked again in a moment.
With all of them away, new episodes wait as they do for a single server (client/patience.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Self, TypeVar

from agentgym_rl.envs.access.places import REST_S, Place, PooledServer
from agentgym_rl.envs.access.sameness import spec_difference, tasks_difference
from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.service.client.patience import OUTAGE_S
from agentgym_rl.errors import AgentGymError, ConfigError, EnvAwayError, EnvBusyError, EnvError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.2
_MAX_PAUSE_S = 2.0


class EnvPool(EnvSource):
    """Clients of one environment on several servers; all are asked on entering the source.

    Raises ConfigError where they do not serve the same, EnvError where none answers or one cannot
    be started. An address that does not answer at first is used as soon as it does. `timeout_s` is
    how long a new episode waits for a free place, `outage_s` how long for a server.
    """

    def __init__(
        self, places: Sequence[Place], *, timeout_s: float, outage_s: float = OUTAGE_S
    ) -> None:
        self._places = places
        self._timeout_s, self._outage_s = timeout_s, outage_s
        self._spec: EnvSpec | None = None
        self._model = ""
        """The name of the server that the others are compared with."""
        self._tasks: dict[str, tuple[Task, ...]] = {}
        self._tending: list[asyncio.Task[None]] = []
        self._retired: set[PooledServer] = set()
        """Servers that serve no more, but whose clients have not been closed."""
        self._closing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        """Set when an episode that found no place should look again."""
        self._num_lost = self._num_replaced = 0
        self._lost_s = 0.0
        self._num_begun = [0] * len(places)
        """Episodes of each place."""
        """All since the metrics were taken."""
        self._is_open = False

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
            self._is_open = True
        except BaseException:
            await self.aclose()
            raise
        return self

    async def spec(self) -> EnvSpec:
        if self._spec is None or not self._is_open:
            raise EnvError("the environment servers are not in use: enter the source first")
        return self._spec

    def take_metrics(self) -> dict[str, float]:
        metrics = {
            "cluster/env_servers": float(sum(place.is_serving for place in self._places)),
            "cluster/episodes_lost": float(self._num_lost),
            "cluster/restarts_env": float(self._num_replaced),
            "cluster/time_lost_s": self._lost_s,
        }
        for number, begun in enumerate(self._num_begun):
            metrics[f"cluster/episodes_server_{number}"] = float(begun)
        self._num_lost, self._num_replaced, self._lost_s = 0, 0, 0.0
        self._num_begun = [0] * len(self._places)
        return metrics

    async def aclose(self) -> None:
        self._is_open = False
        tending, self._tending = self._tending, list[asyncio.Task[None]]()
        for task in tending:
            task.cancel()
        await asyncio.gather(*tending, return_exceptions=True)
        servers = [place.server for place in self._places if place.server is not None]
        for place in self._places:
            place.server = None
        servers += self._retired
        self._retired.clear()
        for server in servers:
            self._close_apart(server)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def address_of(self, number: int) -> tuple[str, str]:
        """Return address and token of the server in a place, once one that the run has started
        serves there. Raises EnvError when the source is closed meanwhile."""
        while self._is_open:
            server = self._places[number].server
            if server is not None and server.is_serving and server.address is not None:
                return server.address
            await asyncio.sleep(_FIRST_PAUSE_S)
        raise EnvError("the environment servers are no longer in use")

    async def open_on_one(self) -> tuple[PooledServer, EnvClient]:
        """Return a client that has its place on the least loaded server, and that server."""
        started = asyncio.get_running_loop().time()
        while self._is_open:
            server = self._least_loaded()
            if server is None:
                await self._wait_for_place(started)
                continue
            server.num_open += 1
            server.try_again()
            number = next(n for n, place in enumerate(self._places) if place.server is server)
            try:
                client = await server.source.open()
                self._num_begun[number] += 1
                return server, client
            except BaseException as error:
                self.leave(server)
                if isinstance(error, EnvBusyError):
                    server.rest()
                elif isinstance(error, EnvAwayError):
                    server.note_away(str(error))
                else:
                    if isinstance(error, EnvError):
                        server.note_not_begun(error)
                    raise
        raise EnvError("the environment servers are no longer in use")

    def leave(self, server: PooledServer) -> None:
        """Note the end of an episode."""
        server.num_open -= 1
        server.rests_until = 0.0
        self._changed.set()
        if not server.num_open and server in self._retired:
            self._retired.discard(server)
            self._close_apart(server)

    async def note_failure(self, server: PooledServer, error: EnvError) -> None:
        """Find out whether an episode failed because its server did, and count it if so."""
        is_away = isinstance(error, EnvAwayError)
        if is_away or (server.is_serving and await server.check()):
            server.note_away(str(error))
        self._num_lost += is_away or not server.is_serving

    async def _new_client(self) -> EnvClient:
        return PooledClient((await self.spec()).name, self)

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        """Return the tasks that all servers have; one that comes later is compared with them."""
        for place in self._places:
            if (server := place.server) is not None:
                try:
                    tasks = await server.source.tasks(split)
                except EnvAwayError as error:
                    server.note_away(str(error))
                    continue
                wanted = self._tasks.setdefault(split, tasks)
                self._refuse(server, tasks_difference(split, wanted, tasks))
        if split not in self._tasks:
            raise EnvAwayError(f"no environment server answers: {self._why_away()}")
        return self._tasks[split]

    async def _begin(self) -> None:
        """Take all servers into use that there are."""
        results = await asyncio.gather(*map(self._fill, self._places), return_exceptions=True)
        for place, error in zip(self._places, results, strict=True):
            if error is None:
                continue
            if place.starts_servers or not isinstance(error, EnvError):
                raise error
            place.reason = str(error)
        if not any(place.is_serving for place in self._places):
            raise EnvAwayError(f"no environment server answers: {self._why_away()}")
        for place in self._places:
            if not place.is_serving:
                logger.warning("%s is used when it answers: %s", place.name, place.reason)
            tending = asyncio.create_task(self._tend(place))
            tending.add_done_callback(_log_failure)
            self._tending.append(tending)

    async def _fill(self, place: Place) -> None:
        """Find or start the server of a place, compare it with the others and let it serve."""

        def has_others() -> bool:
            others = (other for other in self._places if other is not place)
            return server.has_ended or any(other.has_room for other in others)

        server = await place.find(has_others)
        try:
            await self._compare(server)
            with contextlib.suppress(EnvBusyError):
                await server.source.check()
        except BaseException:
            await server.aclose()
            raise
        place.server, server.is_serving = server, True
        if place.lost_at is not None:
            self._lost_s += time.monotonic() - place.lost_at
            place.lost_at = None
        self._changed.set()

    async def _compare(self, server: PooledServer) -> None:
        """Raise ConfigError where a server does not have what the others have."""
        spec = await server.source.spec()
        if self._spec is None:
            self._spec, self._model = spec, server.name
        self._refuse(server, spec_difference(self._spec, spec))
        for split, tasks in self._tasks.items():
            found = await server.source.tasks(split)
            self._refuse(server, tasks_difference(split, tasks, found))

    def _refuse(self, server: PooledServer, difference: str) -> None:
        if difference:
            raise ConfigError(
                f"{server.name} does not serve the same as {self._model}: {difference}. Start all "
                "with the same environment, version and options, or leave that one out of env.url"
            )

    async def _tend(self, place: Place) -> None:
        """Keep a place served until cancelled."""
        while True:
            if place.server is not None:
                await place.server.until_away()
                self._retire(place, place.server)
            pause_s = _FIRST_PAUSE_S
            while place.server is None:
                try:
                    await self._fill(place)
                    logger.warning("%s serves again", place.name)
                except (AgentGymError, ValueError) as error:
                    if str(error) != place.reason:
                        logger.warning("%s is not used: %s", place.name, error)
                    place.reason = str(error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    def _retire(self, place: Place, server: PooledServer) -> None:
        """Take a server out of its place; its clients keep it until they are closed."""
        logger.warning("%s gets no new episodes: %s", place.name, server.reason)
        place.server, place.reason, place.lost_at = None, server.reason, time.monotonic()
        self._num_replaced += place.starts_servers
        if server.num_open:
            self._retired.add(server)
        else:
            self._close_apart(server)

    def _close_apart(self, server: PooledServer) -> None:
        task = asyncio.create_task(server.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        task.add_done_callback(_log_failure)

    def _least_loaded(self) -> PooledServer | None:
        """Return a server with room; one on which episodes fail to begin only if all are such."""
        serving = [place for place in self._places if place.server and place.is_serving]
        fit = [place for place in serving if place.server and not place.server.is_avoided]
        ready = [place.server for place in fit or serving if place.server and place.has_room]
        return min(ready, key=lambda server: server.num_open, default=None)

    async def _wait_for_place(self, started: float) -> None:
        """Return when it is worth looking again; raise where that has taken too long."""
        waited_s = asyncio.get_running_loop().time() - started
        num_serving = sum(place.is_serving for place in self._places)
        if num_serving and waited_s > self._timeout_s:
            raise EnvBusyError(
                f"none of the {num_serving} environment servers had a free place within "
                f"{self._timeout_s:g} s"
            )
        if not num_serving and waited_s > self._outage_s:
            raise EnvAwayError(
                f"no environment server answered for {self._outage_s:g} s: {self._why_away()}"
            )
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), REST_S / 2)

    def _why_away(self) -> str:
        return "; ".join(f"{place.name}: {place.reason}" for place in self._places)


class PooledClient(EnvClient):
    """Plays one episode on one of the servers; made by `EnvPool`."""

    def __init__(self, env: str, pool: EnvPool) -> None:
        super().__init__(env)
        self._pool = pool
        self._server: PooledServer | None = None
        self._inner: EnvClient | None = None
        self._is_closed = False

    async def _do_create(self) -> None:
        self._server, self._inner = await self._pool.open_on_one()
        if self._is_closed:  # while it waited
            await self._do_close()

    async def _do_reset(self, task: Task) -> str:
        server = self._server
        assert server is not None, "create comes first"
        try:
            observation = await self._of_server(self._client.reset(task))
        except EnvError as error:
            server.note_not_begun(error)
            raise
        server.note_begun()
        return observation

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        return await self._of_server(self._client.step(action))

    async def _do_observation(self) -> str:
        return await self._of_server(self._client.observation())

    async def _do_available_actions(self) -> tuple[str, ...]:
        return await self._of_server(self._client.available_actions())

    async def _do_details(self) -> Mapping[str, JsonValue]:
        return await self._of_server(self._client.details())

    async def _do_render(self) -> bytes | None:
        return await self._of_server(self._client.render())

    async def _do_close(self) -> None:
        self._is_closed = True
        if self._inner is None or self._server is None:
            return  # the create has failed, or was cancelled, or is not over
        server, self._server = self._server, None
        try:
            if not server.has_ended:  # else nothing is left that could be closed
                await self._inner.close()
        finally:
            self._pool.leave(server)

    @property
    def _client(self) -> EnvClient:
        assert self._inner is not None, "create comes first"
        return self._inner

    async def _of_server(self, call: Awaitable[_T]) -> _T:
        try:
            return await call
        except EnvError as error:
            if self._server is not None:  # else it was closed meanwhile
                await self._pool.note_failure(self._server, error)
            raise


def _log_failure(task: asyncio.Task[None]) -> None:
    """Say at once what ended a task that nobody waits for."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("an environment server is not looked after: %r", error)
