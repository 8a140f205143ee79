"""What both engines in this process share: publishing and closing while replies are sampled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines import host
from agentgym_rl.engines.base import EngineDiedError
from agentgym_rl.engines.host import HostEngine
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.paged.engine import PagedEngine
from agentgym_rl.errors import EngineError
from engine_plays import LONG, PROMPT, SHORT, endless_policy, start


@pytest.fixture(params=[NativeEngine, PagedEngine])
def engine(request: pytest.FixtureRequest) -> Iterator[HostEngine]:
    running = request.param(endless_policy(), NativeEngineConfig())
    yield running
    running.close()


async def test_publishing_while_a_reply_is_sampled_is_refused(engine: HostEngine):
    session = engine.session(0)
    task = await start(session, LONG)
    with pytest.raises(EngineError, match="published while replies were being sampled"):
        engine.publish(1)
    session.close()
    engine.publish(1)
    with pytest.raises(EngineError):
        await task
    assert (await engine.session(1).generate(PROMPT, SHORT)).version == 1


async def test_closing_the_engine_fails_what_is_under_way(engine: HostEngine):
    tasks = [await start(engine.session(key), LONG) for key in range(5)]
    engine.close()
    for task in tasks:
        with pytest.raises(EngineError, match="the engine was closed"):
            await task


def order(engine: HostEngine, work: Callable[[], None]) -> None:
    """Let the engine's thread do something before its next pass."""
    with engine._changed:
        engine._orders.append(work)
        engine._changed.notify()


def run_out_of_memory() -> None:
    raise MemoryError("no memory for keys")


async def test_a_dead_thread_fails_those_who_wait_and_all_who_come_at_once(engine: HostEngine):
    tasks = [await start(engine.session(key), LONG) for key in range(3)]
    order(engine, run_out_of_memory)
    for task in tasks:
        with pytest.raises(EngineDiedError, match="died: MemoryError: no memory for keys") as died:
            await asyncio.wait_for(task, timeout=60)
        assert isinstance(died.value.__cause__, MemoryError)
    with pytest.raises(EngineDiedError, match="no memory for keys"):
        await asyncio.wait_for(engine.session(9).generate(PROMPT, SHORT), timeout=60)
    with pytest.raises(EngineDiedError):
        engine.publish(1)
    engine.close()


async def test_a_failure_in_choosing_the_next_pass_is_told(
    engine: HostEngine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "_advance", run_out_of_memory)
    with pytest.raises(EngineDiedError, match="no memory for keys"):
        await asyncio.wait_for(engine.session(0).generate(PROMPT, SHORT), timeout=60)


def test_one_who_waits_for_the_thread_hears_of_its_death(monkeypatch: pytest.MonkeyPatch):
    engine = PagedEngine(endless_policy(), NativeEngineConfig())
    monkeypatch.setattr(engine, "_take_in", run_out_of_memory)
    with pytest.raises(EngineDiedError, match="no memory for keys"):
        engine.rest()
    engine.close()


def test_closing_says_what_hangs(
    engine: HostEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(host, "_CLOSE_TIMEOUT_S", 0.05)
    go_on, is_there = threading.Event(), threading.Event()

    def hang() -> None:
        is_there.set()
        # Without the lock, as a pass that hangs.
        engine._changed.release()
        go_on.wait(timeout=60)
        engine._changed.acquire()

    order(engine, hang)
    assert is_there.wait(timeout=60)
    engine.close()
    assert "has not ended within 0.05 s" in caplog.text and "in hang" in caplog.text
    go_on.set()
    engine._thread.join(timeout=60)
    assert not engine._thread.is_alive()
