"""What both engines in this process share: publishing and closing while replies are sampled."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.host import HostEngine
from agentgym_rl.engines.native import NativeEngine
from agentgym_rl.engines.paged import PagedEngine
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
