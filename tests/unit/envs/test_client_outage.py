"""Servers of other dialects that go away: new episodes wait for them, old ones are lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.compat.agentgym.source import AgentGymEnvSource
from agentgym_rl.envs.compat.openenv.source import OpenEnvSource
from agentgym_rl.errors import EnvError
from env_servers import server_process

Sources = Callable[[str], EnvSource]


@pytest.mark.parametrize(
    "make_source",
    [
        pytest.param(lambda url: AgentGymEnvSource(url, env="textcraft"), id="agentgym"),
        pytest.param(lambda url: OpenEnvSource(f"{url}/openenv"), id="openenv"),
    ],
)
async def test_a_new_episode_waits_for_a_server_and_an_old_one_does_not(
    make_source: Sources, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    with server_process("textcraft") as (url, _):
        source = make_source(url)
        task = (await source.tasks("test"))[0]
        old = await source.open()
        first = await old.reset(task)
    with pytest.raises(EnvError):
        await old.step("inventory")
    opening = asyncio.create_task(source.open())
    async with asyncio.timeout(60):
        while not any("does not answer" in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.02)
    assert not opening.done()
    with server_process("textcraft", port=int(url.rpartition(":")[2])):
        async with asyncio.timeout(60):
            env = await opening
        assert await env.reset(task) == first
        assert any("answers again" in record.getMessage() for record in caplog.records)
        await asyncio.gather(env.close(), old.close())
        await source.aclose()
