"""What both kinds of client promise, tested on each: guards, errors, deadlines, closing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar

import pytest
import pytest_asyncio

from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.episode import EpisodeStateError
from agentgym_rl.envs.execution.local import LocalEnvClient, LocalEnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task
from env_servers import server_thread
from fakes import HANGING, TroubleEnv, a_call_hangs, end_hangs

TASK = Task("trouble", "train", 4, category="small")


class _SharedTroubleEnv(TroubleEnv):
    """The same, where all episodes share a thread."""

    shares_thread: ClassVar[bool] = True


Sources = Callable[[float], AbstractAsyncContextManager[EnvSource]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_thread("fakes:TroubleEnv") as url:
        yield url


@pytest.fixture(params=["local", "shared", "http"])
def make_source(request: pytest.FixtureRequest, url: str) -> Sources:
    """Give a function from the deadline of a call to a source."""

    @asynccontextmanager
    async def make(timeout_s: float) -> AsyncIterator[EnvSource]:
        if request.param == "local":
            source: EnvSource = LocalEnvSource(TroubleEnv, timeout_s=timeout_s)
        elif request.param == "shared":
            source = LocalEnvSource(_SharedTroubleEnv, timeout_s=timeout_s)
        else:
            source = HttpEnvSource(url, timeout_s=timeout_s)
        async with source:
            yield source

    return make


@pytest_asyncio.fixture
async def source(make_source: Sources) -> AsyncIterator[EnvSource]:
    async with make_source(60.0) as source:
        yield source


async def test_an_episode(source: EnvSource):
    async with await source.open() as env:
        assert await env.reset(TASK) == "Goal: 5. Count: 0."
        assert await env.observation() == "Goal: 5. Count: 0."
        assert await env.available_actions() == ("add 1", "add 2", "add 3")
        assert await env.step("add 3") == StepResult("Count: 3.")
        assert await env.observation() == "Count: 3."
        assert env.num_rounds == 1
        result = await env.step("add 2")
        assert result == StepResult("Count: 5.", reward=1.0, terminated=True, success=True)
        assert env.is_over
        assert await env.observation() == "Count: 5."
        assert await env.available_actions() == ()
        await env.reset(TASK)
        assert (env.is_over, env.num_rounds, env.task) == (False, 0, TASK)


async def test_spec_and_tasks(source: EnvSource):
    assert await source.spec() == TroubleEnv.spec
    assert await source.tasks("test") == tuple(TroubleEnv.tasks("test"))
    with pytest.raises(ValueError, match="no split 'dev'; it has train, test"):
        await source.tasks("dev")


async def test_calls_out_of_order_never_reach_the_environment(source: EnvSource):
    async with await source.open() as env:
        for call in (env.step("add 1"), env.observation(), env.available_actions()):
            with pytest.raises(EpisodeStateError, match="before reset"):
                await call
        await env.reset(TASK)
        await env.step("add 3")
        await env.step("add 2")
        with pytest.raises(EpisodeStateError, match="after the end"):
            await env.step("raise")
        assert env.num_rounds == 2
        await env.reset(TASK)


async def test_overlapping_calls_are_refused(source: EnvSource):
    async with await source.open() as env:
        await env.reset(TASK)
        slow = asyncio.create_task(env.step("hang"))
        await a_call_hangs()
        with pytest.raises(EpisodeStateError, match="step while step is running"):
            await env.step("add 1")
        end_hangs()
        assert (await slow).observation == "'hang' is not an action."


async def test_a_task_of_another_environment_is_refused(source: EnvSource):
    async with await source.open() as env:
        with pytest.raises(ValueError, match="belongs to 'chess', not to 'trouble'"):
            await env.reset(Task("chess", "train", 0))
        await env.reset(TASK)


async def test_any_text_is_an_action(source: EnvSource):
    async with await source.open() as env:
        await env.reset(TASK)
        for action in ("", "\x00\x1b", "漢字 \U0001f600", "x" * 100_000, '"}\n{', "lone \ud800"):
            result = await env.step(action)
            assert not result.valid_action
        assert result.observation == "'lone ?' is not an action."


async def test_a_failure_names_the_place_and_spends_the_client(source: EnvSource):
    async with await source.open() as env:
        await env.reset(TASK)
        await env.step("add 1")
        with pytest.raises(EnvError, match="env trouble, task trouble/4, round 1: step") as caught:
            await env.step("raise")
        assert type(caught.value) is EnvError
        assert "KeyError: 'the world is broken'" in str(caught.value)
        for call in (env.step("add 1"), env.reset(TASK), env.observation()):
            with pytest.raises(EnvGoneError, match="open another"):
                await call
    async with await source.open() as env:
        await env.reset(TASK)


@pytest.mark.parametrize("action", ["exit", "nan", "text"])
async def test_every_kind_of_bad_answer_is_an_error(source: EnvSource, action: str):
    async with await source.open() as env:
        await env.reset(TASK)
        with pytest.raises(EnvError, match="round 0: step raised"):
            await env.step(action)


async def test_others_go_on_beside_a_hung_call(make_source: Sources):
    async with make_source(60.0) as source:
        hanging, other = await source.open(), await source.open()
        await hanging.reset(TASK)
        await other.reset(Task("trouble", "train", 18))
        hung = asyncio.create_task(hanging.step("hang"))
        await a_call_hangs()
        for _ in range(10):
            await other.step("add 1")
        assert not hung.done()
        end_hangs()
        assert (await hung).observation == "'hang' is not an action."
        await asyncio.gather(hanging.close(), other.close())


async def test_a_hung_call_ends_at_its_deadline(make_source: Sources):
    async with make_source(60.0) as source:
        env = await source.open()
        await env.reset(TASK)
        set_deadline(source, env, 0.6)
        started = time.monotonic()
        with pytest.raises(EnvTimeoutError, match=r"task trouble/4, round 0.*deadline of 0.6 s"):
            await env.step("hang")
        with pytest.raises(EnvGoneError):
            await env.reset(TASK)
        await env.close()
        assert time.monotonic() - started < 30


def set_deadline(source: EnvSource, env: EnvClient, timeout_s: float) -> None:
    """Change the deadline of calls to come, so that those before do not race it."""
    if isinstance(source, HttpEnvSource):
        source._calls._timeout_s = timeout_s
    elif isinstance(source, LocalEnvSource) and isinstance(env, LocalEnvClient):
        env._timeout_s = timeout_s
        if source._thread is not None:
            source._thread.timeout_s = timeout_s


async def test_a_cancelled_step_can_only_be_followed_by_reset(source: EnvSource):
    async with await source.open() as env:
        await env.reset(TASK)
        step = asyncio.create_task(env.step("hang"))
        await a_call_hangs()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        with pytest.raises(EpisodeStateError, match="before reset"):
            await env.step("add 1")
        reset = asyncio.create_task(env.reset(TASK))
        await asyncio.sleep(0.05)
        assert not reset.done()
        end_hangs()
        assert await reset == "Goal: 5. Count: 0."
        assert (await env.step("add 1")).observation == "Count: 1."


async def test_closing_is_final_and_safe_to_repeat(source: EnvSource):
    env = await source.open()
    await env.reset(TASK)
    await env.close()
    await env.close()
    for call in (env.create(), env.reset(TASK), env.step("add 1"), env.observation()):
        with pytest.raises(EnvGoneError, match="closed"):
            await call


async def test_closing_wakes_a_call_that_is_running(source: EnvSource):
    env = await source.open()
    await env.reset(TASK)
    step = asyncio.create_task(env.step("hang"))
    await a_call_hangs()
    await env.close()
    with pytest.raises(EnvGoneError):
        await step
    assert HANGING
    with pytest.raises(EnvGoneError):
        await env.step("add 1")


async def test_many_episodes_at_once_do_not_meet(source: EnvSource):
    async def play(index: int) -> list[str]:
        async with await source.open() as env:
            seen = [await env.reset(Task("trouble", "train", index))]
            while not env.is_over:
                seen.append((await env.step("add 1")).observation)
            return seen

    played = await asyncio.gather(*(play(index) for index in range(0, 20, 2)))
    for index, seen in zip(range(0, 20, 2), played, strict=True):
        counts = [f"Count: {count}." for count in range(1, index + 2)]
        assert seen == [f"Goal: {index + 1}. Count: 0.", *counts]
