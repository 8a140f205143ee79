"""Several engines as one: sessions go to the least loaded, engines that die are replaced.

A session stays with the engine that it began on, and fails with it: its episode starts again. A new
engine gets the present weights before its first reply. The learner has these between a publication
and the next `rest`, and whenever a reply is asked for, since nobody asks during an update. Where
replies continue (`rollout.overlap`) `begin_update` is called instead: then the learner has them
again at the next publication, until which a new engine waits. At that publication replies wait for
their engine in its turn. What does not depend on weights is in places.py.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Generic, Protocol, TypeVar

from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.channels.channel import WeightChannel
from agentgym_rl.engines.channels.delivery import WeightSource
from agentgym_rl.engines.pool.places import Member, Place, Places
from agentgym_rl.errors import EngineError, LearnerDiedError
from agentgym_rl.types import Completion, SamplingParams

logger = logging.getLogger(__name__)


class PoolEngine(Member, Protocol):
    """What a pool asks of an engine; all may block but `session`."""

    name: str

    @property
    def max_context(self) -> int | None: ...

    def session(self, key: int) -> EngineSession: ...

    def begin_update(self) -> None: ...

    def rest(self) -> None: ...

    def take_metrics(self) -> dict[str, float]: ...


EngineT = TypeVar("EngineT", bound=PoolEngine)


class PooledSession(EngineSession, Generic[EngineT]):
    """A session of whichever engine was the least loaded at its first reply."""

    def __init__(self, pool: EnginePool[EngineT], key: int) -> None:
        self._pool, self._key = pool, key
        self._place: Place[EngineT] | None = None
        self._engine: EngineT | None = None
        self._session: EngineSession | None = None
        self._is_closed = self._is_lost = False

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        if self._is_closed:
            raise EngineError("generate was called on a closed session")
        if self._session is None:
            await self._begin()
        assert self._session and self._place and self._engine, "it has begun"
        async with self._pool.replying(self._place, self._engine):
            try:
                completion = await self._session.generate(new_ids, params)
            except BaseException as error:
                # The engine must know before the pool does that nobody waits for this reply.
                self._session.close()
                if isinstance(error, EngineError) and not (self._is_lost or self._engine.is_alive):
                    self._is_lost = True
                    self._pool.note_lost()
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


class EnginePool(Places[EngineT], Engine):
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
        super().__init__(engines, replace=replace, wait_s=wait_s, noun="engine")
        self._channel, self._on_close, self._count = channel, on_close, count
        self._reads_policy = True
        self._version, self._is_current = 0, True
        """`_is_current`: whether the source still has the weights of `_version`."""
        self._is_updating = False
        """Whether they change while replies are asked for."""
        self._num_bytes = self._num_lost = 0
        """Of weights, and of sessions whose engine died; since the metrics were taken."""
        self._giving = threading.Lock()
        """Held while the source gives weights."""

    def session(self, key: int) -> PooledSession[EngineT]:
        return PooledSession(self, key)

    @property
    def max_context(self) -> int | None:
        with self._changed:
            known = [place.member.max_context for place in self._places if place.member is not None]
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
                    if place.member in engines:
                        self._note_current(place)
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

    def note_lost(self) -> None:
        """Count a session that got no reply because its engine died.

        One whose episode had its last reply before has lost nothing.
        """
        with self._changed:
            self._num_lost += 1

    def take_metrics(self) -> dict[str, float]:
        metrics = self._count()
        for engine in self._living():
            for name, number in engine.take_metrics().items():
                metrics[name] = metrics.get(name, 0.0) + number
        with self._changed:
            losses = self._take_losses()
            for name, number in (
                ("rollout/published_bytes", self._num_bytes),
                ("cluster/restarts_engine", losses.num_replaced),
                ("cluster/episodes_lost", self._num_lost),
                ("cluster/time_lost_s", losses.seconds),
            ):
                metrics[name] = metrics.get(name, 0.0) + number
            self._num_bytes = self._num_lost = 0
            metrics["cluster/engines"] = float(sum(place.is_serving for place in self._places))
            for place in self._places:
                metrics[f"cluster/tokens_engine_{place.number}"] = float(place.num_tokens)
                place.num_tokens = 0
        return metrics

    @asynccontextmanager
    async def replying(self, place: Place[EngineT], engine: EngineT | None) -> AsyncIterator[None]:
        """Wait until the engine is not taking weights, and keep it from doing so inside."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while True:
            with self._changed:
                self._note_request()
                if not (place.member is engine and place.is_held):
                    place.num_replies += place.member is engine
                    break
                waiting = self._wait()
            await self._woken(waiting, deadline)
        try:
            yield
        finally:
            with self._changed:
                if place.member is engine:
                    place.num_replies -= 1
                    self._changed.notify_all()

    def _closed(self) -> None:
        self._channel.close()
        self._on_close()

    def _bring_up_to_date(self, place: Place[EngineT], member: EngineT) -> None:
        """Give the present weights to an engine, as soon as the source has them."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_current or self._is_closed or place.member is not member
                )
            with self._giving:
                if self._is_closed or place.is_current or place.member is not member:
                    return
                if self._is_current:
                    self._give(place, member)
                    return

    def _give(self, place: Place[EngineT], engine: EngineT) -> None:
        try:
            # In its turn: a group of one would have to be formed first, and again with the others.
            num_bytes = self._channel.publish(self._version, [engine], turn=self._turn)
        except (EngineError, LearnerDiedError) as error:
            logger.warning("engine %d gets no weights yet: %s", place.number, error)
            return  # the next publication reaches it, or ends the run
        with self._changed:
            self._num_bytes += num_bytes
            if place.member is engine:
                self._note_current(place)
            self._wake()

    @contextmanager
    def _turn(self, engines: Sequence[EngineT]) -> Iterator[None]:
        """Let no reply of these engines begin, and wait until those under way have ended."""
        with self._changed:
            held = [place for place in self._places if place.member in engines]
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
