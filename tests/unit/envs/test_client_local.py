"""What is particular to the in-process client."""

from __future__ import annotations

import asyncio

import pytest

from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import EnvError
from agentgym_rl.types import Task
from fakes import BrokenResetEnv, BrokenStartEnv, CountingEnv, TroubleEnv


async def test_the_cause_of_a_failure_is_kept():
    async with await LocalEnvSource(TroubleEnv).open() as env:
        await env.reset(Task("trouble", "train", 0))
        with pytest.raises(EnvError) as caught:
            await env.step("raise")
        assert isinstance(caught.value.__cause__, KeyError)


async def test_an_environment_that_cannot_start_or_reset_is_an_error():
    with pytest.raises(EnvError, match="env broken-start: create raised RuntimeError: no display"):
        await LocalEnvSource(BrokenStartEnv).open()
    async with await LocalEnvSource(BrokenResetEnv).open() as env:
        with pytest.raises(EnvError, match=r"task broken-reset/3.*reset raised OSError: no data"):
            await env.reset(Task("broken-reset", "train", 3))


async def test_options_reach_the_constructor_and_wrong_ones_are_refused_at_once():
    source = LocalEnvSource("fakes:CountingEnv", options={"largest": 1})
    async with await source.open() as env:
        await env.reset(Task("counting", "train", 0))
        assert await env.available_actions() == ("add 1",)
    with pytest.raises(ValueError, match="no option 'size'"):
        LocalEnvSource("fakes:CountingEnv", options={"size": 1})


@pytest.mark.parametrize("actions", [(), ("add 1",), ("boom",)])
async def test_the_environment_is_closed_once_however_the_episode_ends(actions: tuple[str, ...]):
    made: list[CountingEnv] = []

    class Watched(CountingEnv):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def step(self, action: str):
            if action == "boom":
                raise RuntimeError(action)
            return super().step(action)

    async with await LocalEnvSource(Watched).open() as env:
        await env.reset(Task("counting", "train", 0))
        for action in actions:
            if action == "boom":
                with pytest.raises(EnvError):
                    await env.step(action)
            else:
                await env.step(action)
    async with asyncio.timeout(60):
        while not made[0].num_closes:
            await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    assert [env.num_closes for env in made] == [1]


def test_a_client_outlives_an_event_loop():
    source = LocalEnvSource(CountingEnv)
    env = asyncio.run(source.open())
    assert asyncio.run(env.reset(Task("counting", "train", 1))) == "Goal: 2. Count: 0."
    assert asyncio.run(env.step("add 2")).success
    asyncio.run(env.close())
