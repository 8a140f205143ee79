"""The rules of a pool, with engines that are objects here: who serves, waits and gives up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest

from agentgym_rl.engines.base import EngineDiedError, EngineSession
from agentgym_rl.engines.channels.channel import Turn
from agentgym_rl.engines.channels.delivery import WeightSource
from agentgym_rl.engines.clock import running_clock
from agentgym_rl.engines.pool.places import MAX_DEATHS
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.errors import EngineError
from agentgym_rl.types import Completion, SamplingParams
from waiting import wait_for

ONE = SamplingParams(1.0, 1)


class FakeSession(EngineSession):
    def __init__(self, engine: FakeEngine) -> None:
        self._engine = engine

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        if not self._engine.is_alive:
            raise EngineError("it died")
        if self._engine.may_reply is not None:
            await self._engine.may_reply.wait()
        return Completion((self._engine.number,), (-1.0,), True, self._engine.version)

    def close(self) -> None:
        pass


class FakeEngine:
    """Replies with its number, under the version that it was given."""

    max_context: int | None = None

    def __init__(self, number: int, version: int = 0) -> None:
        self.number, self.version, self.name = number, version, f"engine-{number}"
        self.is_alive = self.is_ready = True
        self.num_rests = 0
        self.may_reply: asyncio.Event | None = None

    def session(self, key: int) -> FakeSession:
        return FakeSession(self)

    def begin_update(self) -> None:
        pass

    def rest(self) -> None:
        self.num_rests += 1

    def take_metrics(self) -> dict[str, float]:
        return {"cluster/restarts_engine": 0.5}

    def close(self) -> None:
        self.is_alive = False


class FakeChannel:
    """Remembers what it gave to whom."""

    def __init__(self) -> None:
        self.given: list[tuple[int, list[int]]] = []
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def follow(self, source: WeightSource) -> bool:
        return True

    def publish(
        self, version: int, engines: Sequence[FakeEngine], *, turn: Turn[FakeEngine] | None = None
    ) -> int:
        self.begun.set()
        assert self.may_end.wait(30)
        for engine in engines:
            with nullcontext() if turn is None else turn([engine]):
                engine.version = version
        self.given.append((version, [engine.number for engine in engines]))
        return 10 * len(engines)

    def close(self) -> None:
        pass


Pool = EnginePool[FakeEngine]


def make_pool(
    num_engines: int = 2, replace: Callable[[int], FakeEngine] | None = None, wait_s: float = 30.0
) -> tuple[Pool, FakeChannel, list[FakeEngine]]:
    engines, channel = [FakeEngine(number) for number in range(num_engines)], FakeChannel()
    return Pool(engines, channel, replace=replace, wait_s=wait_s), channel, engines


def die(pool: Pool, engine: FakeEngine) -> None:
    engine.is_alive = False
    pool.ended(engine)


def number_of(pool: Pool, key: int = 0) -> int:
    """Return which engine a new session begins on."""
    return asyncio.run(pool.session(key).generate([1], ONE)).token_ids[0]


def test_new_sessions_go_to_the_least_loaded_and_stay():
    pool, _, _ = make_pool(3)

    async def play() -> None:
        sessions = [pool.session(key) for key in range(6)]
        for _ in range(2):
            found = [(await s.generate([1], ONE)).token_ids[0] for s in sessions]
            assert found == [0, 1, 2, 0, 1, 2]
        sessions[4].close()
        sessions[4].close()
        assert (await pool.session(7).generate([1], ONE)).token_ids == (1,)

    asyncio.run(play())
    metrics = pool.take_metrics()
    assert metrics["cluster/tokens_engine_0"] == 4 and metrics["cluster/tokens_engine_1"] == 5
    assert metrics["cluster/restarts_engine"] == 1.5  # of its engines, where they count


def test_an_engine_that_comes_back_is_chosen_last():
    pool, _, engines = make_pool(2)
    engines[0].is_ready = False
    assert [number_of(pool) for _ in range(3)] == [1, 1, 1]
    engines[1].is_ready = False
    assert number_of(pool) == 0


def test_a_replacement_serves_once_it_has_the_present_weights():
    pool, channel, engines = make_pool(2, replace=FakeEngine)
    pool.publish(5)
    channel.may_end.clear()
    channel.begun.clear()
    die(pool, engines[0])
    assert channel.begun.wait(30)
    assert [number_of(pool) for _ in range(3)] == [1, 1, 1]
    channel.may_end.set()
    wait_for(lambda: pool._places[0].is_serving)
    assert channel.given == [(5, [0, 1]), (5, [0])]
    assert pool._places[0].member is not engines[0]
    assert number_of(pool) == 0, "it has no session yet"


def test_no_weights_are_given_while_the_learner_may_change_them():
    pool, channel, engines = make_pool(2, replace=FakeEngine)
    pool.publish(1)
    pool.rest()
    assert [engine.num_rests for engine in engines] == [1, 1]
    die(pool, engines[0])
    wait_for(lambda: pool._places[0].member is not None)
    assert channel.given == [(1, [0, 1])]
    pool.publish(2)
    assert channel.given[1:] == [(2, [0, 1])]
    pool.rest()
    die(pool, engines[1])
    wait_for(lambda: pool._places[1].member is not None)
    assert len(channel.given) == 2
    number_of(pool)  # a reply: the learner rests
    wait_for(lambda: pool._places[1].is_serving)
    assert channel.given[2:] == [(2, [1])]
    pool.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.001)


async def test_during_an_update_engines_take_weights_in_turn_between_their_replies():
    pool, _, engines = make_pool(2)
    sessions = [pool.session(key) for key in range(4)]
    for session in sessions:
        await session.generate([1], ONE)
    pool.begin_update()
    engines[0].may_reply = asyncio.Event()
    under_way = asyncio.create_task(sessions[0].generate([1], ONE))
    await until(lambda: pool._places[0].num_replies == 1)
    publishing = asyncio.create_task(asyncio.to_thread(pool.publish, 7))
    await until(lambda: pool._places[0].is_held)
    async with running_clock(60) as clock:
        waiting = asyncio.create_task(sessions[2].generate([1], ONE))
        await until(lambda: clock._deadline.when() is None)  # the wait is not the episode's time
        assert (await sessions[1].generate([1], ONE)).version == 0, "the other one continues"
        assert pool._places[0].num_replies == 1 and not publishing.done()
        engines[0].may_reply.set()
        assert (await under_way).version == 0
        assert (await waiting).version == 7
    await publishing
    assert (await sessions[3].generate([1], ONE)).version == 7
    assert not any(place.is_held or place.num_replies for place in pool._places)
    pool.close()


async def test_a_reply_that_is_given_up_holds_up_no_weights():
    pool, _, engines = make_pool(1)
    pool.begin_update()
    engines[0].may_reply = asyncio.Event()
    under_way = asyncio.create_task(pool.session(1).generate([1], ONE))
    await until(lambda: pool._places[0].num_replies == 1)
    publishing = asyncio.create_task(asyncio.to_thread(pool.publish, 1))
    await until(lambda: pool._places[0].is_held)
    under_way.cancel()
    await asyncio.wait_for(publishing, 30)
    assert engines[0].version == 1
    pool.close()


def test_requests_during_an_update_bring_no_weights_to_a_replacement():
    pool, channel, engines = make_pool(2, replace=FakeEngine)
    pool.publish(1)
    pool.begin_update()
    die(pool, engines[0])
    wait_for(lambda: pool._places[0].member is not None)
    assert [number_of(pool) for _ in range(3)] == [1, 1, 1]
    assert channel.given == [(1, [0, 1])]
    pool.publish(2)
    wait_for(lambda: pool._places[0].is_serving)
    assert channel.given == [(1, [0, 1]), (2, [0, 1])]
    die(pool, engines[1])
    wait_for(lambda: pool._places[1].is_serving)
    assert channel.given[2:] == [(2, [1])], "between updates a replacement need not wait"
    pool.close()


def test_sessions_wait_until_a_deadline():
    started = threading.Event()

    def slow(number: int) -> FakeEngine:
        assert started.wait(30)
        return FakeEngine(number)

    pool, _, engines = make_pool(1, replace=slow, wait_s=0.05)
    die(pool, engines[0])
    with pytest.raises(EngineError, match=r"no engine was ready within 0\.05 s"):
        number_of(pool)
    started.set()
    wait_for(lambda: pool._places[0].is_serving)
    assert number_of(pool) == 0


def test_places_are_given_up_after_too_many_deaths():
    pool, _, engines = make_pool(1, replace=FakeEngine)
    pool.publish(1)
    dead = engines[0]
    for _ in range(MAX_DEATHS - 1):
        die(pool, dead)
        place = pool._places[0]
        wait_for(lambda place=place, dead=dead: place.is_serving and place.member is not dead)
        dead = place.member
        assert dead is not None
    die(pool, dead)
    with pytest.raises(EngineDiedError, match="all 1 engines have died"):
        number_of(pool)
    assert pool.take_metrics()["cluster/engines"] == 0


def test_engines_that_do_not_start_are_given_up():
    def fail(number: int) -> FakeEngine:
        raise EngineError("no memory")

    pool, _, engines = make_pool(2, replace=fail)
    die(pool, engines[0])
    wait_for(lambda: pool._places[0].is_given_up)
    assert number_of(pool) == 1, "the other one does the work"


def test_whatever_a_start_raises_is_a_death():
    def fail(number: int) -> FakeEngine:
        raise OSError("too many open files")

    pool, _, engines = make_pool(2, replace=fail)
    die(pool, engines[0])
    wait_for(lambda: pool._places[0].is_given_up)
    assert number_of(pool) == 1


def test_deaths_long_ago_do_not_count():
    pool, _, engines = make_pool(1, replace=FakeEngine)
    dead = engines[0]
    for version in range(2 * MAX_DEATHS):
        die(pool, dead)
        place = pool._places[0]
        wait_for(lambda place=place, dead=dead: place.is_serving and place.member is not dead)
        dead = place.member
        assert dead is not None
        pool.publish(version)
    assert pool.take_metrics()["cluster/restarts_engine"] == 2 * MAX_DEATHS + 0.5


def test_a_closed_pool_answers_nobody():
    pool, _, engines = make_pool(2, replace=FakeEngine)
    pool.close()
    pool.close()
    assert not any(engine.is_alive for engine in engines)
    with pytest.raises(EngineError, match="closed"):
        number_of(pool)
    pool.ended(engines[0])
    assert pool._places[0].member is engines[0], "nobody is put in its place"
