"""Several engines as one: sessions go to the least loaded, engines that die are replaced.

A session stays with the engine that it began on, and fails with it: its episode starts again. A new
engine gets the present weights before its first reply. The learner has these between a publication
and the next `rest`, and whenever a reply is asked for, since nobody asks during an update. Where
replies continue (`rollout.overlap`) `begin_update` is called instead: then the learner has them
again at the next publication, until which a new engine waits. At that publication replies wait for
their engine in its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from agentgym_rl.engines.base import Engine, EngineDiedError, EngineSession
from agentgym_rl.engines.channels.channel import WeightChannel
from agentgym_rl.engines.channels.delivery import WeightSource
from agentgym_rl.engines.clock import stopped_clock
from agentgym_rl.errors import EngineError, LearnerDiedError
from agentgym_rl.types import Completion, SamplingParams

logger = logging.getLogger(__name__)

MAX_DEATHS = 3
"""Of one place between two publications; after that the others do its work."""


class PoolEngine(Protocol):
    """What a pool asks of an engine; all may block but `session`."""

    name: str

    @property
    def max_context(self) -> int | None: ...

    @property
    def is_alive(self) -> bool:
        """Whether it is worth asking; one that ended is replaced."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it would answer now; one that brings its server back is chosen last."""
        ...

    def session(self, key: int) -> EngineSession: ...

    def begin_update(self) -> None: ...

    def rest(self) -> None: ...

    def take_metrics(self) -> dict[str, float]: ...

    def close(self) -> None: ...


EngineT = TypeVar("EngineT", bound=PoolEngine)


@dataclass(slots=True, eq=False)
class _Place(Generic[EngineT]):
    """Where one engine after another serves. The pool's lock guards it."""

    number: int
    engine: EngineT | None = None
    has_weights: bool = False
    is_held: bool = False
    """Whether replies wait, because its engine takes weights in its turn."""
    num_sessions: int = 0
    num_replies: int = 0
    """Under way."""
    num_deaths: int = 0
    """Since the last publication."""
    num_tokens: int = 0
    """Sampled since the metrics were taken."""
    lost_at: float | None = None
    """When an engine was lost in whose place none serves yet."""

    @property
    def is_serving(self) -> bool:
        return self.engine is not None and self.has_weights and self.engine.is_alive

    @property
    def is_given_up(self) -> bool:
        return self.num_deaths >= MAX_DEATHS

    def lose_engine(self) -> None:
        if self.lost_at is None:
            self.lost_at = time.monotonic()
        self.engine, self.has_weights, self.is_held = None, False, False
        self.num_sessions = self.num_replies = 0
        self.num_deaths += 1


class PooledSession(EngineSession, Generic[EngineT]):
    """A session of whichever engine was the least loaded at its first reply."""

    def __init__(self, pool: EnginePool[EngineT], key: int) -> None:
        self._pool, self._key = pool, key
        self._place: _Place[EngineT] | None = None
        self._engine: EngineT | None = None
        self._session: EngineSession | None = None
        self._is_closed = False

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        if self._is_closed:
            raise EngineError("generate was called on a closed session")
        if self._session is None:
            await self._begin()
        assert self._session is not None and self._place is not None, "it has begun"
        async with self._pool.replying(self._place, self._engine):
            try:
                completion = await self._session.generate(new_ids, params)
            except BaseException:
                # The engine must know before the pool does that nobody waits for this reply.
                self._session.close()
                raise
        self._place.num_tokens += len(completion.token_ids)
        return completion

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._session is not None:
            self._session.close()
            self._pool.leave(self._place, self._engine)

    async def _begin(self) -> None:
        place, engine = await self._pool.choose()
        if self._is_closed:
            self._pool.leave(place, engine)
            raise EngineError("the session was closed while it waited for an engine")
        self._place, self._engine, self._session = place, engine, engine.session(self._key)


class EnginePool(Engine, Generic[EngineT]):
    """Owns its engines and their channel; made with all of them ready."""

    def __init__(
        self,
        engines: Sequence[EngineT],
        channel: WeightChannel[EngineT],
        *,
        replace: Callable[[int], EngineT] | None = None,
        wait_s: float,
        on_close: Callable[[], None] = lambda: None,
        count: Callable[[], dict[str, float]] = dict,
    ) -> None:
        """`replace` makes the engine of a place anew, and returns when it is ready; `count` returns
        what else is reported with its metrics.

        `wait_s` is the deadline of a reply that waits for an engine to be replaced.
        """
        self._channel, self._replace, self._on_close = channel, replace, on_close
        self._count = count
        self._wait_s, self._reads_policy = wait_s, True
        self._places = [_Place(number, engine, True) for number, engine in enumerate(engines)]
        self._changed = threading.Condition()
        """Guards all below, and is notified when any of it changes."""
        self._version, self._is_current = 0, True
        """`_is_current`: whether the source still has the weights of `_version`."""
        self._is_updating = False
        """Whether they change while replies are asked for."""
        self._waiting: list[asyncio.Future[None]] = []
        self._num_bytes = self._num_replaced = self._num_lost = 0
        self._lost_s = 0.0
        """All since the metrics were taken."""
        self._is_closed = False
        self._giving = threading.Lock()
        """Held while the source gives weights."""
        self._threads = ThreadPoolExecutor(max(1, len(engines)), thread_name_prefix="pool")

    def session(self, key: int) -> PooledSession[EngineT]:
        return PooledSession(self, key)

    @property
    def max_context(self) -> int | None:
        with self._changed:
            known = [place.engine.max_context for place in self._places if place.engine is not None]
        return min((length for length in known if length is not None), default=None)

    @property
    def reads_policy(self) -> bool:
        return self._reads_policy

    def follow(self, source: WeightSource) -> None:
        self._reads_policy = not self._channel.follow(source)

    def publish(self, version: int) -> None:
        with self._giving:
            engines = self._living()
            turn = self._turn if self._is_updating else None
            num_bytes = self._channel.publish(version, engines, turn=turn)
            with self._changed:
                self._version, self._is_current, self._is_updating = version, True, False
                self._num_bytes += num_bytes
                for place in self._places:
                    if place.engine in engines:
                        self._note_weights(place)
                        place.num_deaths = 0 if place.is_serving else place.num_deaths
                self._wake()

    def begin_update(self) -> None:
        with self._giving, self._changed:
            self._is_current, self._is_updating = False, True
        self._of_all(lambda engine: engine.begin_update())

    def rest(self) -> None:
        with self._giving, self._changed:
            self._is_current = False
        self._of_all(lambda engine: engine.rest())

    def take_metrics(self) -> dict[str, float]:
        metrics = self._count()
        for engine in self._living():
            for name, number in engine.take_metrics().items():
                metrics[name] = metrics.get(name, 0.0) + number
        with self._changed:
            metrics["rollout/published_bytes"] = (
                metrics.get("rollout/published_bytes", 0.0) + self._num_bytes
            )
            for name, number in (
                ("cluster/restarts_engine", self._num_replaced),
                ("cluster/episodes_lost", self._num_lost),
                ("cluster/time_lost_s", self._lost_s),
            ):
                metrics[name] = metrics.get(name, 0.0) + number
            self._num_bytes, self._num_replaced, self._num_lost, self._lost_s = 0, 0, 0, 0.0
            metrics["cluster/engines"] = float(sum(place.is_serving for place in self._places))
            for place in self._places:
                metrics[f"cluster/tokens_engine_{place.number}"] = float(place.num_tokens)
                place.num_tokens = 0
        return metrics

    def close(self) -> None:
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._wake()
        self._of_all(lambda engine: engine.close())
        self._threads.shutdown(wait=False)
        self._channel.close()
        self._on_close()

    async def choose(self) -> tuple[_Place[EngineT], EngineT]:
        """Return the least loaded engine, with one more session; wait while none serves."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while True:
            with self._changed:
                self._note_request()
                found = self._least_loaded()
                if found is not None:
                    return found
                waiting = self._wait()
            await self._woken(waiting, deadline)

    @asynccontextmanager
    async def replying(self, place: _Place[EngineT], engine: EngineT | None) -> AsyncIterator[None]:
        """Wait until the engine is not taking weights, and keep it from doing so inside."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while True:
            with self._changed:
                self._note_request()
                if not (place.engine is engine and place.is_held):
                    place.num_replies += place.engine is engine
                    break
                waiting = self._wait()
            await self._woken(waiting, deadline)
        try:
            yield
        finally:
            with self._changed:
                if place.engine is engine:
                    place.num_replies -= 1
                    self._changed.notify_all()

    def leave(self, place: _Place[EngineT] | None, engine: EngineT | None) -> None:
        """Note the end of a session; those of an engine that was replaced do not count."""
        with self._changed:
            if place is not None and place.engine is engine:
                place.num_sessions -= 1

    def engine_ended(self, engine: EngineT) -> None:
        """Replace an engine that died, on a thread; called once for each that does."""
        with self._changed:
            place = next((place for place in self._places if place.engine is engine), None)
            if place is None or self._is_closed:
                return
            self._num_lost += place.num_sessions
            place.lose_engine()
            self._wake()
        threading.Thread(
            target=self._restore, args=(place,), name="pool-restore", daemon=True
        ).start()

    def _restore(self, place: _Place[EngineT]) -> None:
        """Fill a place again, or give it up."""
        while self._replace is not None and not (place.is_given_up or self._is_closed):
            try:
                engine = self._replace(place.number)
            except Exception as error:  # noqa: BLE001 - nobody else would hear of it
                if self._is_closed:
                    return
                logger.warning("engine %d did not start again: %s", place.number, error)
                with self._changed:
                    place.num_deaths += 1
                continue
            with self._changed:
                self._num_replaced += 1
                place.engine = engine
                is_late = self._is_closed
            if is_late:
                engine.close()
            elif engine.is_alive:
                self._bring_up_to_date(place, engine)
            else:
                self.engine_ended(engine)  # between its start and its place it told nobody
            return
        if not self._is_closed:
            logger.error("engine %d died %d times and is given up", place.number, place.num_deaths)
        with self._changed:
            self._wake()

    def _bring_up_to_date(self, place: _Place[EngineT], engine: EngineT) -> None:
        """Give the present weights to an engine, as soon as the source has them."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_current or self._is_closed or place.engine is not engine
                )
            with self._giving:
                if self._is_closed or place.has_weights or place.engine is not engine:
                    return
                if self._is_current:
                    self._give(place, engine)
                    return

    def _give(self, place: _Place[EngineT], engine: EngineT) -> None:
        try:
            # In its turn: a group of one would have to be formed first, and again with the others.
            num_bytes = self._channel.publish(self._version, [engine], turn=self._turn)
        except (EngineError, LearnerDiedError) as error:
            logger.warning("engine %d gets no weights yet: %s", place.number, error)
            return  # the next publication reaches it, or ends the run
        with self._changed:
            self._num_bytes += num_bytes
            if place.engine is engine:
                self._note_weights(place)
            self._wake()

    def _note_weights(self, place: _Place[EngineT]) -> None:
        """Note that an engine has the present weights, and since when it was missed. The lock is
        held."""
        place.has_weights = True
        if place.lost_at is not None and place.is_serving:
            self._lost_s += time.monotonic() - place.lost_at
            place.lost_at = None

    def _least_loaded(self) -> tuple[_Place[EngineT], EngineT] | None:
        """Return an engine that serves, None if one may be there later. The lock is held."""
        if self._is_closed:
            raise EngineError("the engine is closed")
        serving = [
            (place, place.engine)
            for place in self._places
            if place.engine is not None and place.is_serving
        ]
        if not serving:
            if all(place.engine is None and place.is_given_up for place in self._places):
                raise EngineDiedError(
                    f"all {len(self._places)} engines have died, each {MAX_DEATHS} times or more "
                    "since the last publication; their logs say why"
                )
            return None
        place, engine = min(serving, key=lambda pair: (not pair[1].is_ready, pair[0].num_sessions))
        place.num_sessions += 1
        return place, engine

    @contextmanager
    def _turn(self, engines: Sequence[EngineT]) -> Iterator[None]:
        """Let no reply of these engines begin, and wait until those under way have ended."""
        with self._changed:
            held = [place for place in self._places if place.engine in engines]
            for place in held:
                place.is_held = True
        try:
            with self._changed:
                # An engine that dies meanwhile has none. Each reply has the engine's own deadline.
                if not self._changed.wait_for(
                    lambda: not any(place.num_replies for place in held), self._wait_s
                ):
                    raise EngineError(f"replies did not end within {self._wait_s:g} s")
            yield
        finally:
            with self._changed:
                for place in held:
                    place.is_held = False
                self._wake()

    def _note_request(self) -> None:
        """Note that a reply is asked for, so the learner rests, unless it said otherwise.

        The lock is held.
        """
        if not (self._is_current or self._is_updating):
            self._is_current = True
            self._changed.notify_all()

    def _wait(self) -> asyncio.Future[None]:
        """Return what `_wake` settles. The lock is held."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    async def _woken(self, waiting: asyncio.Future[None], deadline: float) -> None:
        """Wait for a change, which is not the episode's time."""
        try:
            with stopped_clock():
                async with asyncio.timeout_at(deadline):
                    await waiting
        except TimeoutError:
            raise EngineError(f"no engine was ready within {self._wait_s:g} s") from None

    def _wake(self) -> None:
        """Let all who wait look again. The lock is held."""
        self._changed.notify_all()
        waiting, self._waiting = self._waiting, list[asyncio.Future[None]]()
        for future in waiting:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                future.get_loop().call_soon_threadsafe(_set, future)

    def _living(self) -> list[EngineT]:
        with self._changed:
            engines = [place.engine for place in self._places]
        return [engine for engine in engines if engine is not None and engine.is_alive]

    def _of_all(self, work: Callable[[EngineT], None]) -> None:
        """Do something with all living engines at once; an engine that dies of it is replaced."""

        def attempt(engine: EngineT) -> None:
            try:
                work(engine)
            except EngineError:
                if engine.is_alive:
                    raise

        list(self._threads.map(attempt, self._living()))


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
