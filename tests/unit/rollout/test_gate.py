"""The gate before the engine: what waits, what is waited for, and that waiting costs nothing."""

from __future__ import annotations

import asyncio

import pytest

from agentgym_rl.envs.client.local import LocalEnvSource
from agentgym_rl.errors import EngineError
from agentgym_rl.rollout.clock import running_clock, stopped_clock
from agentgym_rl.rollout.episode import EpisodeRequest, run_episode
from agentgym_rl.rollout.gate import GatedEngine, ReplyGate
from agentgym_rl.types import Episode, SamplingParams, Task
from fake_engines import ScriptedEngine, make_actors, make_limits
from fakes import CountingEnv

PARAMS = SamplingParams()


async def play(engine: GatedEngine, **limits: float) -> Episode:
    actors = await make_actors(LocalEnvSource(CountingEnv, timeout_s=5.0), engine)
    request = EpisodeRequest(Task("counting", "train", 2), 0, (0,))
    return await run_episode(request, actors, make_limits(**limits))


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


async def test_waiting_at_the_gate_is_no_part_of_an_episodes_time():
    gate, fake = ReplyGate(), ScriptedEngine(["add 1"])
    playing = asyncio.create_task(play(GatedEngine(fake, gate), max_seconds=1.0))
    await asyncio.sleep(1.2)
    gate.open()
    episode = await playing
    assert episode.success and episode.num_attempts == 1
    assert episode.seconds < 1.0
    assert all((round_.generation_s or 0.0) < 1.0 for round_ in episode.rounds)


async def test_time_before_and_after_a_wait_counts():
    loop = asyncio.get_running_loop()
    started = loop.time()
    with pytest.raises(TimeoutError):
        async with running_clock(0.1) as clock:
            await asyncio.sleep(0.06)
            with stopped_clock(), stopped_clock():
                await asyncio.sleep(0.2)
            await asyncio.sleep(10.0)
    assert 0.1 <= clock.seconds < 1.0
    assert loop.time() - started >= 0.3


async def test_an_episode_that_waits_can_be_cancelled():
    fake = ScriptedEngine(["add 1"])
    playing = asyncio.create_task(play(GatedEngine(fake, ReplyGate())))
    await asyncio.sleep(0.05)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert all(session.is_closed for session in fake.sessions)
