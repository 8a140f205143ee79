"""Tools over HTTP: the schemas arrive as they are, in our protocol and in OpenEnv's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples.tool_environment import Thermostat

from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.compat.openenv.source import OpenEnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from env_servers import server_thread

NAME = "examples.tool_environment:Thermostat"


@pytest.mark.parametrize(
    ("make_source", "path"), [(HttpEnvSource, ""), (OpenEnvSource, "/openenv")]
)
async def test_the_tools_arrive_and_calls_go_back(
    make_source: Callable[[str], EnvSource], path: str
):
    with server_thread(NAME) as url:
        async with make_source(f"{url}{path}") as source:
            assert (await source.spec()).tools == Thermostat.spec.tools
            task = (await source.tasks("train"))[0]
            async with await source.open() as env:
                assert (await env.reset(task)).startswith("Make it")
                refused = await env.step('turn(steps="2")')
                assert not refused.valid_action and "valid integer" in refused.observation
                assert (await env.step("turn(steps=2)")).metrics["tool_calls"] == 1.0
                assert (await env.step("finish()")).terminated
