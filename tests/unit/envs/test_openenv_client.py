"""The OpenEnv source: exact on our own servers, sensible on others, in words when lost."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.compat.openenv.mapping import (
    ActionForm,
    BadActionError,
    OpenEnvOptions,
    observation_text,
    step_result,
)
from agentgym_rl.envs.compat.openenv.source import OpenEnvSource
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.envs.service.protocol import ProtocolError
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task
from env_servers import see_it_waited_for, server_process
from env_services import PlainService
from fakes import BrokenStartEnv, CountingEnv, TroubleEnv, end_hangs, fake_spec
from openenv_services import openenv_server
from waiting import wait_for

TASK = Task("trouble", "train", 4)


class LimitedEnv(CountingEnv):
    """Ends by a limit of its own after two rounds, in a state that is also terminal for 4."""

    spec = fake_spec("limited", reward_range=(-2.0, 2.0), max_rounds=2, success="in time")

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        if self._count == 4:
            return StepResult("", 0.1 + 0.2, terminated=True, truncated=True, valid_action=False)
        return StepResult(result.observation, -1.5, truncated=self._count > 1)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with openenv_server(PlainService(TroubleEnv)) as url:
        yield url


async def _play(source: EnvSource, task: Task, actions: list[str]) -> list[object]:
    """Return everything that an episode shows."""
    async with await source.open() as env:
        seen: list[object] = [await env.reset(task)]
        for action in actions:
            seen += [await env.available_actions(), await env.details()]
            seen += [await env.step(action), await env.observation(), env.is_over]
        return seen


@pytest.mark.parametrize(
    ("env", "actions"),
    [
        (CountingEnv, ["add 1", "fly\n\u0000漢", "add 3", "add 1"]),
        (CountingEnv, ["add 3", "add 3"]),
        (LimitedEnv, ["add 1", "add 3"]),
        (LimitedEnv, ["add 3"]),
    ],
)
async def test_an_episode_on_our_server_equals_a_local_one(
    env: type[Environment], actions: list[str]
):
    local = LocalEnvSource(env)
    with openenv_server(PlainService(env)) as url:
        async with OpenEnvSource(url) as source:
            assert await source.spec() == env.spec
            for split in env.spec.splits:
                assert await source.tasks(split) == await local.tasks(split)
            task = Task(env.spec.name, "train", 4, "small", seed=7)
            assert await _play(source, task, actions) == await _play(local, task, actions)


async def test_fifty_episodes_at_once_leave_nothing():
    service = PlainService(CountingEnv)
    with openenv_server(service) as url:
        async with OpenEnvSource(url) as source:
            tasks = await source.tasks("train")

            async def play(number: int) -> int:
                async with await source.open() as env:
                    await env.reset(tasks[number % 10])
                    while not env.is_over:
                        await env.step("add 1")
                    return env.num_rounds

            assert await asyncio.gather(*map(play, range(50))) == [
                2 * (number % 10) + 1 for number in range(50)
            ]
            assert not service.episodes, "a close returns when the place is free"


async def test_pings_are_answered_while_an_agent_thinks(monkeypatch: pytest.MonkeyPatch):
    pong, num_pongs = aiohttp.ClientWebSocketResponse.pong, 0

    async def count(socket: aiohttp.ClientWebSocketResponse, message: bytes = b"") -> None:
        nonlocal num_pongs
        await pong(socket, message)
        num_pongs += 1

    monkeypatch.setattr(aiohttp.ClientWebSocketResponse, "pong", count)
    with openenv_server(PlainService(CountingEnv), ping_s=0.1) as url:
        async with OpenEnvSource(url) as source, await source.open() as env:
            await env.reset(Task("counting", "train", 4))
            num_before = num_pongs
            async with asyncio.timeout(60):
                while num_pongs < num_before + 3:
                    await asyncio.sleep(0.01)
            assert (await env.step("add 1")).observation == "Count: 1."


async def test_a_server_that_stops_in_an_episode_is_gone():
    with ExitStack() as stack:
        url = stack.enter_context(openenv_server(PlainService(CountingEnv)))
        async with OpenEnvSource(url, timeout_s=30.0) as source:
            env = await source.open()
            await env.reset(Task("counting", "train", 4))
            await asyncio.to_thread(stack.close)
            with pytest.raises(EnvGoneError, match=r"round 0: step at .*the connection was lost"):
                await env.step("add 1")
            await env.close()


async def test_a_server_process_that_is_killed_in_a_call_is_gone():
    with server_process("fakes:TroubleEnv") as (url, process):
        async with OpenEnvSource(f"{url}/openenv", timeout_s=30.0) as source:
            env = await source.open()
            await env.reset(TASK)
            step = asyncio.create_task(env.step("sleep 60"))
            await asyncio.sleep(0.2)
            process.kill()
            with pytest.raises(EnvGoneError, match=r"task trouble/4, round 0: step at .*lost"):
                await step
            await env.close()


async def test_a_hung_server_costs_the_deadline_and_little_more(url: str):
    async with OpenEnvSource(url) as source:
        env = await source.open()
        await env.reset(TASK)
        source._transport._timeout_s = 0.5
        started = time.monotonic()
        with pytest.raises(EnvTimeoutError, match=r"task trouble/4, round 0.*deadline of 0.5 s"):
            await env.step("hang")
        await env.close()
        assert time.monotonic() - started < 30
    end_hangs()


async def test_a_connection_to_something_mute_ends_at_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute_url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        async with OpenEnvSource(mute_url, timeout_s=0.3) as source:
            with pytest.raises(EnvTimeoutError, match=r"spec at .*deadline of 0.3 s"):
                await source.spec()


async def test_a_full_server_is_waited_for_and_then_busy(monkeypatch: pytest.MonkeyPatch):
    with openenv_server(PlainService(CountingEnv, capacity=1)) as url:
        async with OpenEnvSource(url, timeout_s=60.0) as source:
            await see_it_waited_for(source, monkeypatch, told="all places are taken")


async def test_an_environment_that_cannot_start_is_an_error():
    with openenv_server(PlainService(BrokenStartEnv)) as url:
        async with OpenEnvSource(url) as source:
            with pytest.raises(EnvError, match=r"env broken-start: create at .*no display"):
                await source.open()


async def test_a_lost_episode_is_gone():
    service = PlainService(TroubleEnv)
    with openenv_server(service) as url:
        async with OpenEnvSource(url) as source, await source.open() as env:
            await env.reset(TASK)
            service.lose_all()
            with pytest.raises(EnvGoneError, match="no such episode"):
                await env.step("add 1")


async def test_a_client_that_is_dropped_without_close_leaves_nothing():
    service = PlainService(TroubleEnv)
    with openenv_server(service) as url:
        async with OpenEnvSource(url) as source:
            envs = [await source.open() for _ in range(5)]
            await envs[0].reset(TASK)
        await asyncio.to_thread(wait_for, lambda: not service.episodes)


async def test_no_server_and_wrong_addresses_are_errors_in_words():
    async with OpenEnvSource("http://127.0.0.1:9", outage_s=0.3) as source:
        with pytest.raises(EnvError, match=r"at http://127.0.0.1:9"):
            await source.spec()
    with pytest.raises(ValueError, match="starts with http"):
        OpenEnvSource("localhost:8000")


async def test_another_environment_than_the_named_one_is_refused(url: str):
    async with OpenEnvSource(url, env="chess") as source:
        with pytest.raises(ValueError, match="serves 'trouble', not 'chess'"):
            await source.spec()


def test_a_source_used_from_a_second_event_loop_says_so(url: str):
    source = OpenEnvSource(url)
    with asyncio.Runner() as runner:
        runner.run(source.spec())
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            asyncio.run(_open(source))
        runner.run(source.aclose())


async def _open(source: OpenEnvSource) -> None:
    await source.open()


# Servers of others, played by a small stand-in.

Frames = Callable[[dict], dict | str]


@asynccontextmanager
async def stand_in(
    answer: Frames, *, action: object = None, routes: dict[str, object] | None = None
) -> AsyncIterator[str]:
    """Give the address of a server whose frames come from `answer` and whose GETs are `routes`."""
    text_action = {"properties": {"message": {"type": "string"}}, "required": ["message"]}
    pages = {"/metadata": {"name": "other", "description": "Another.\nMore."}, **(routes or {})}
    pages.setdefault("/schema", {"action": action or text_action})

    async def page(request: web.Request) -> web.StreamResponse:
        if request.path == "/ws":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            async for message in socket:
                kind = message.json()["type"]
                if kind == "close":
                    break
                reply = {"type": "state", "data": {"step_count": 0}}
                if kind != "state":
                    reply = answer(message.json())
                await (socket.send_str if isinstance(reply, str) else socket.send_json)(reply)
            return socket
        if request.path in pages:
            return web.json_response(pages[request.path])
        return web.Response(status=404)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _outcome(**fields: object) -> dict:
    data = {"observation": {"text": "hi"}, "reward": None, "done": False, **fields}
    return {"type": "observation", "data": data}


async def test_a_server_without_tasks_is_played_by_seeds():
    heard: list[dict] = []

    def answer(message: dict) -> dict:
        heard.append(message)
        return _outcome(done=message["type"] == "step", reward=1)

    options = OpenEnvOptions(num_train=3, num_test=2, max_rounds=5)
    async with stand_in(answer) as url, OpenEnvSource(url, options=options) as source:
        spec = await source.spec()
        assert (spec.name, spec.summary, spec.max_rounds) == ("other", "Another.", 5)
        assert [task.index for task in await source.tasks("test")] == [0, 1]
        train = await source.tasks("train")
        assert [task.index for task in train] == [2, 3, 4]
        async with await source.open() as env:
            assert await env.reset(train[1]) == "hi"
            assert await env.available_actions() == ()
            result = await env.step("look")
            assert result == StepResult("hi", reward=1.0, terminated=True, success=True)
            assert await env.details() == {"step_count": 0}
    assert heard == [
        {"type": "reset", "data": {"seed": 3}},
        {"type": "step", "data": {"message": "look"}},
    ]


async def test_a_server_with_a_task_api_is_told_split_and_position():
    heard: list[dict] = []

    def answer(message: dict) -> dict:
        heard.append(message["data"])
        return _outcome()

    routes: dict[str, object] = {
        "/list_environments": ["Other"],
        "/Other/splits": [{"name": "easy"}, {"name": "hard"}, {"name": "test"}],
        "/Other/num_tasks": {"num_tasks": 4},
    }
    async with stand_in(answer, routes=routes) as url, OpenEnvSource(url, env="mine") as source:
        assert (await source.spec()).splits == ("easy", "hard", "test")
        hard = await source.tasks("hard")
        assert [(task.env, task.index) for task in hard] == [
            ("mine", index) for index in (1, 4, 7, 10)
        ]
        async with await source.open() as env:
            await env.reset(hard[2])
            await env.reset(Task("mine", "test", 2, seed=5))
    assert heard == [{"split": "hard", "index": 2}, {"split": "test", "index": 0, "seed": 5}]


async def test_an_action_that_the_server_or_the_form_refuses_is_the_agents_affair():
    def answer(message: dict) -> dict:
        if message["type"] == "step" and "col" not in message["data"]:
            errors = [{"loc": ["col"], "msg": "Field required"}]
            data = {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": errors}
            return {"type": "error", "data": data}
        return _outcome()

    action = {
        "properties": {"row": {"type": "integer"}, "col": {"type": "integer"}},
        "required": ["row", "col"],
    }
    async with stand_in(answer, action=action) as url, OpenEnvSource(url) as source:
        spec = await source.spec()
        assert spec.example_action == '{"row":0,"col":0}'
        assert "JSON object with this schema" in spec.instructions
        async with await source.open() as env:
            await env.reset(Task("other", "test", 0))
            bad = await env.step("go left")
            assert not bad.valid_action and "JSON object" in bad.observation
            bad = await env.step('{"row": 1}')
            assert bad == StepResult("Invalid message: col: Field required", valid_action=False)
            assert (await env.step('{"row": 1, "col": 2}')).valid_action


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        ("not json", EnvError, "unexpected answer: not JSON"),
        ({"type": "observation"}, EnvError, "'data' must be an object"),
        (_outcome(reward="high"), EnvError, "'reward' must be a number"),
        (_outcome(done=1), EnvError, "'done' must be bool"),
        (_outcome(observation=[]), EnvError, "'observation' must be an object"),
        ({"type": "error", "data": {"message": "oh", "code": "EXECUTION_ERROR"}}, EnvError, "oh"),
        ({"type": "error", "data": {"message": "x", "code": "SESSION_ERROR"}}, EnvGoneError, "x"),
    ],
)
async def test_a_bad_answer_is_an_error_and_never_a_reward(
    reply: dict | str, kind: type[EnvError], words: str
):
    def answer(message: dict) -> dict | str:
        return _outcome() if message["type"] == "reset" else reply

    async with (
        stand_in(answer) as url,
        OpenEnvSource(url) as source,
        await source.open() as env,
    ):
        await env.reset(Task("other", "test", 0))
        with pytest.raises(EnvError, match=f"task other/0, round 0: step at .*{words}") as caught:
            await env.step("look")
        assert type(caught.value) is kind


async def test_a_server_that_ends_the_episode_with_the_reset_is_an_error():
    async with (
        stand_in(lambda message: _outcome(done=True)) as url,
        OpenEnvSource(url) as source,
        await source.open() as env,
    ):
        with pytest.raises(EnvError, match="ended the episode with the reset"):
            await env.reset(Task("other", "test", 0))


async def test_a_server_without_schemas_needs_the_name_of_the_field():
    async with stand_in(lambda message: _outcome(), routes={"/schema": {}}) as url:
        async with OpenEnvSource(url) as source:
            with pytest.raises(EnvError, match="action_field"):
                await source.spec()
        async with OpenEnvSource(url, options=OpenEnvOptions(action_field="code")) as source:
            assert (await source.spec()).name == "other"


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"properties": {"code": {"type": "string"}, "metadata": {"type": "object"}}}, "code"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, "a"),
        (
            {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}, "required": ["a"]},
            "a",
        ),
        ({"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}, None),
        ({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, None),
        ({"properties": {"type": {"const": "call_tool", "type": "string"}}}, None),
        ({}, None),
    ],
)
def test_the_field_of_an_action_comes_from_the_schema(schema: dict, field: str | None):
    form = ActionForm.from_schema(schema)
    assert form.field == field
    if field is not None:
        assert form.encode("go") == {field: "go"}
    else:
        assert form.encode('{"n": 1}') == {"n": 1}
        with pytest.raises(BadActionError, match="JSON object"):
            form.encode("[1]")


@pytest.mark.parametrize(
    ("observation", "field", "text"),
    [
        ({"text": "", "message": "b"}, None, ""),
        ({"board": [1], "message": "b", "prompt": "a"}, None, "a"),
        ({"echoed": "x", "metadata": {"a": 1}}, None, "x"),
        ({"echoed": "x", "length": 1, "metadata": {}}, None, '{"echoed":"x","length":1}'),
        ({"text": {"a": 1}, "n": 2}, None, '{"text":{"a":1},"n":2}'),
        ({"text": "a", "board": [1, 2]}, "board", "[1,2]"),
        ("plain", None, "plain"),
        ({}, None, "{}"),
    ],
)
def test_the_text_of_an_observation(observation: object, field: str | None, text: str):
    assert observation_text({"observation": observation}, field) == text


def test_a_field_that_is_not_there_is_an_error_with_those_that_are():
    with pytest.raises(ProtocolError, match="no field 'board'; it has text"):
        observation_text({"observation": {"text": "a"}}, "board")


def test_rewards_by_hand():
    def result(options: OpenEnvOptions, before: float = 0.0, **outcome: object) -> StepResult:
        return step_result({"observation": "o", **outcome}, options, reward_before=before)

    plain = OpenEnvOptions()
    assert result(plain, reward=True, done=True).success
    assert not result(plain, reward=0.9, done=True).success
    assert result(OpenEnvOptions(success_reward=0.9), reward=0.9, done=True).success
    assert not result(plain, reward=1.0, done=False).success
    assert result(plain, done=True) == StepResult("o", terminated=True)
    # A total of 0.75 after 0.5 was earned by 0.25; the total decides the success.
    totals = OpenEnvOptions(has_total_rewards=True, success_reward=0.75)
    last = result(totals, 0.5, reward=0.75, done=True)
    assert (last.reward, last.success) == (0.25, True)
    limited = result(plain, reward=1, done=True, metadata={"truncated": True, "success": True})
    assert (limited.truncated, limited.terminated, limited.success) == (True, False, False)
    assert not result(plain, metadata={"valid_action": False}).valid_action
