"""The gate before the engine: what waits, what is waited for, and that waiting costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.clock import running_clock, stopped_clock
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import EngineError
from agentgym_rl.rollout.episode import EpisodeSpec, run_episode
from agentgym_rl.rollout.gate import GatedEngine, ReplyGate
from agentgym_rl.types import Episode, SamplingParams, Task
from fake_engines import ScriptedEngine, make_limits, make_participants
from fakes import CountingEnv

PARAMS = SamplingParams()


class WatchedGate(ReplyGate):
    """Tells when somebody has come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.somebody_came = asyncio.Event()

    @asynccontextmanager
    async def passing(self) -> AsyncIterator[None]:
        self.somebody_came.set()
        async with super().passing():
            yield


@pytest.fixture
def skip(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Put the event loop's clock forward by seconds."""

    def skip(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time
        monkeypatch.setattr(loop, "time", lambda: before() + seconds)

    return skip


async def play(engine: GatedEngine, **limits: float) -> Episode:
    participants = await make_participants(LocalEnvSource(CountingEnv, timeout_s=30.0), engine)
    request = EpisodeSpec(Task("counting", "train", 2), 0, (0,))
    return await run_episode(request, participants, make_limits(**limits))


async def test_closing_waits_for_replies_under_way_and_lets_no_other_begin():
    gate, fake = ReplyGate(), ScriptedEngine([0.05, "add 1"])
    engine = GatedEngine(fake, gate)
    gate.open()
    first = asyncio.create_task(engine.session(0).generate([1], PARAMS))
    await asyncio.sleep(0)
    closing = asyncio.create_task(gate.close())
    await asyncio.sleep(0)
    second = asyncio.create_task(engine.session(1).generate([1], PARAMS))
    await closing
    assert fake.sessions[0].num_replies == 1
    await asyncio.sleep(0.1)
    assert fake.sessions[1].context == [], "the engine has not heard of it"
    gate.open()
    await asyncio.gather(first, second)
    assert fake.sessions[1].num_replies == 1


async def test_a_gate_that_opens_and_closes_at_once_lets_nobody_through():
    gate, fake = ReplyGate(), ScriptedEngine(["add 1"])
    waiting = asyncio.create_task(GatedEngine(fake, gate).session(0).generate([1], PARAMS))
    await asyncio.sleep(0)
    gate.open()
    await gate.close()
    await asyncio.sleep(0.01)
    assert fake.sessions[0].context == []
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_the_engine_knows_of_a_failed_reply_before_the_gate_does():
    gate, fake = ReplyGate(), ScriptedEngine([EngineError("lost")], [10.0, "add 1"])
    engine = GatedEngine(fake, gate)
    gate.open()
    with pytest.raises(EngineError):
        await engine.session(0).generate([1], PARAMS)
    cancelled = asyncio.create_task(engine.session(1).generate([1], PARAMS))
    await asyncio.sleep(0.01)
    closing = asyncio.create_task(gate.close())
    await asyncio.sleep(0)
    cancelled.cancel()
    await closing
    assert all(session.is_closed for session in fake.sessions)
    await asyncio.gather(cancelled, return_exceptions=True)


async def test_waiting_at_the_gate_is_no_part_of_an_episodes_time(skip: Callable[[float], None]):
    gate, fake = WatchedGate(), ScriptedEngine(["add 1"])
    playing = asyncio.create_task(play(GatedEngine(fake, gate), max_seconds=100.0))
    await gate.somebody_came.wait()
    skip(120.0)
    await asyncio.sleep(0.01)
    gate.open()
    episode = await playing
    assert episode.success and episode.num_restarts == 0
    assert episode.seconds < 100.0
    assert all((round_.generation_s or 0.0) < 100.0 for round_ in episode.rounds)


async def test_time_before_and_after_a_wait_counts(skip: Callable[[float], None]):
    with pytest.raises(TimeoutError):
        async with running_clock(100.0) as clock:
            skip(60.0)
            with stopped_clock(), stopped_clock():
                skip(200.0)
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)
            assert 60.0 <= clock.seconds < 100.0
            skip(60.0)
            await asyncio.sleep(10.0)
    assert 120.0 <= clock.seconds < 200.0


async def test_an_episode_that_waits_can_be_cancelled():
    fake = ScriptedEngine(["add 1"])
    playing = asyncio.create_task(play(GatedEngine(fake, ReplyGate())))
    await asyncio.sleep(0.05)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert all(session.is_closed for session in fake.sessions)


def test_a_gated_engine_passes_on_all_that_an_engine_can():
    asked = {name for name in vars(Engine) if not name.startswith("_")}
    assert asked <= set(vars(GatedEngine))
