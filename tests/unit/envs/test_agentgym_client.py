"""AgentGymEnvSource against our AgentGym routes, the baseline server, and canned answers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.client import EnvClient
from agentgym_rl.envs.compat.agentgym.dialect import routes
from agentgym_rl.envs.compat.agentgym.scenarios import tasks_of
from agentgym_rl.envs.compat.agentgym.source import AgentGymEnvSource
from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.envs.scenarios.textcraft.env import TextCraft
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task
from env_servers import see_it_waited_for
from env_services import PlainService, app_thread

BASELINE = Path(__file__).parents[3] / "benchmarks" / "baseline_server.py"


@contextmanager
def baseline(env: str) -> Iterator[str]:
    """Run the baseline server in a process of its own; give its address."""
    process = subprocess.Popen(
        [sys.executable, str(BASELINE), "--env", env],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, "the server did not start"
        yield url
    finally:
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


@contextmanager
def dialect(cls: type[Environment], *, capacity: int = 100) -> Iterator[tuple[str, PlainService]]:
    service = PlainService(cls, capacity=capacity)
    with app_thread(Starlette(routes=routes(service))) as url:
        yield url, service


@contextmanager
def canned(answers: dict[str, object]) -> Iterator[tuple[str, list[dict]]]:
    """Serve fixed answers by path (a Response as it is); give the address and the bodies sent."""
    bodies: list[dict] = []

    async def answer(request: Request) -> Response:
        raw = await request.body()
        bodies.append({"path": request.url.path, "query": request.url.query, "body": raw})
        given = answers[request.url.path]
        if isinstance(given, list):
            given = given.pop(0)
        return given if isinstance(given, Response) else JSONResponse(given)

    route = Route("/{path:path}", answer, methods=["GET", "POST"])
    with app_thread(Starlette(routes=[route])) as url:
        yield url, bodies


async def play_expert(env: EnvClient, twin: Environment, task: Task) -> list[StepResult]:
    """Let the expert of a local twin play the task; check each answer against the twin's."""
    results = []
    assert await env.reset(task) == twin.reset(task)
    while not env.is_over:
        action = twin.expert_action()
        assert action is not None
        results.append(await env.step(action))
        expected = twin.step(action)
        assert results[-1].observation == expected.observation == await env.observation()
        assert results[-1].reward == pytest.approx(expected.reward)
        assert results[-1].success == expected.success
    return results


async def check_experts(url: str, env: str, twin: Environment, indices: list[int]) -> None:
    async with AgentGymEnvSource(url, env=env) as source, await source.open() as client:
        for index in indices:
            results = await play_expert(client, twin, Task(env, "test", index))
            assert results[-1].terminated and results[-1].success
            assert 0 < sum(result.reward for result in results) <= 1


async def test_experts_win_over_our_own_routes():
    with dialect(TextCraft) as (url, service):
        await check_experts(url, "textcraft", TextCraft(), [0, 300, 540])
        assert service.episodes == {}
    with dialect(BabyAI) as (url, service):
        await check_experts(url, "babyai", BabyAI(), [0, 16, 40])
        assert service.episodes == {}


@pytest.mark.parametrize(("env", "cls"), [("textcraft", TextCraft), ("babyai", BabyAI)])
async def test_experts_win_on_the_baseline_server(env: str, cls: type[Environment]):
    with baseline(env) as url:
        await check_experts(url, env, cls(), [0, 16, 40])


async def test_what_the_baseline_server_raises_is_an_error():
    with baseline("babyai") as url:
        async with AgentGymEnvSource(url, env="babyai") as source, await source.open() as client:
            await client.reset(Task("babyai", "test", 0))
            client._id = 77
            with pytest.raises(EnvError, match=r"task babyai/0, round 0: step at .*server says"):
                await client.step("turn left")


async def test_sciworld_scores_are_paid_as_changes_in_parts_of_one():
    steps = [
        {"observation": "a", "reward": 17, "score": 17, "done": False},
        {"observation": "b", "reward": 0, "score": 17, "done": False},
        {"observation": "c", "reward": 83, "score": 100, "done": True},
        {"observation": "d", "reward": 50, "score": 50, "done": False},
        {"observation": "e", "reward": -150, "score": -100, "done": True},
    ]
    reset = {"task_name": "boil", "var_num": 3, "task_description": "Boil.", "observation": "Room."}
    answers = {"/create": {"id": 5}, "/reset": reset, "/step": steps, "/close": True}
    with canned(answers) as (url, sent):
        async with AgentGymEnvSource(url, env="sciworld") as source:
            client = await source.open()
            assert await client.reset(Task("sciworld", "train", 33)) == "Boil.\nRoom."
            results = [await client.step("look") for _ in range(3)]
            assert [result.reward for result in results] == pytest.approx([0.17, 0, 0.83])
            assert results[-1].success and client.is_over
            await client.reset(Task("sciworld", "train", 34))
            results = [await client.step("look") for _ in range(2)]
            assert [result.reward for result in results] == pytest.approx([0.5, -0.5])
            assert results[-1].terminated and not results[-1].success
            await client.close()
    assert sent[1]["body"] == b'{"id": 5, "data_idx": 33}'
    assert sent[-1] == {"path": "/close", "query": "", "body": b'{"id": 5}'}


async def test_searchqa_shapes():
    steps = [
        {"observation": "<information>x</information>", "reward": 0, "done": False, "info": None},
        {"observation": "Right.", "reward": 1.0, "done": True, "info": None},
    ]
    answers = {"/create": 3, "/reset": "Question: why?", "/step": steps, "/close": True}
    with canned(answers) as (url, sent):
        async with AgentGymEnvSource(url, env="searchqa") as source, await source.open() as client:
            task = (await source.tasks("test"))[3610]
            assert (task.index, task.category) == (3610, "triviaqa")
            assert await client.reset(task) == "Question: why?"
            first = await client.step("<search>why</search>")
            assert first.valid_action and first.reward == 0
            assert (await client.step("<answer>so</answer>")).success
    assert [one["body"] for one in sent[:3]] == [
        b'{"id": 0}',
        b'{"env_idx": 3, "id": 3610}',
        b'{"env_idx": 3, "action": "<search>why</search>"}',
    ]


async def test_webarena_shapes():
    steps = [
        {"observation": "p", "reward": 1.0, "terminated": False, "truncated": False, "info": {}},
        {"observation": "e", "reward": 0, "terminated": False, "truncated": False, "info": None},
        {"observation": "q", "reward": 1.0, "terminated": True, "truncated": False, "info": {}},
    ]
    answers = {
        "/create": {"env_idx": 0},
        "/reset": [
            {"observation": "tree", "sites": ["map"], "object": "find"},
            {"observation": "TimeoutError", "sites": "Error", "object": "Error"},
        ],
        "/observation": "OBSERVATION: tree OBJECTIVE: find",
        "/step": steps,
        "/close": {"closed": "closed"},
    }
    with canned(answers) as (url, sent):
        async with AgentGymEnvSource(url, env="webarena") as source, await source.open() as client:
            observation = await client.reset(Task("webarena", "test", 7))
            assert observation == "OBSERVATION: tree OBJECTIVE: find"
            results = [await client.step("```click [1]```") for _ in range(3)]
            assert [result.reward for result in results] == [0, 0, 1]
            assert [result.valid_action for result in results] == [True, False, True]
            assert results[-1].success
            with pytest.raises(EnvTimeoutError, match="could not start the task"):
                await client.reset(Task("webarena", "test", 8))
    assert sent[1]["body"] == b'{"env_idx": 0, "idx": 7, "seed": 0}'
    assert (sent[2]["path"], sent[2]["query"]) == ("/observation", "env_idx=0")


STARTED = {"/create": {"id": 0}, "/reset": {"observation": "o"}, "/close": True}


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ({"error": "no such id"}, EnvError, "the server says 'no such id'"),
        (Response("oh no", 500), EnvError, "HTTP 500: 'oh no'"),
        (Response("", 307, {"location": "/step"}), EnvError, "HTTP 307"),
        (Response("{}", 410), EnvGoneError, "HTTP 410"),
        (Response("{}", 504), EnvTimeoutError, "HTTP 504"),
        (Response("hello"), EnvError, "not JSON"),
        ("text", EnvError, "not an object"),
        ({"observation": 3, "reward": 0, "done": False}, EnvError, "'observation' is 3"),
        ({"observation": "o", "reward": "1", "done": False}, EnvError, "the reward is '1'"),
        (Response('{"observation": "o", "reward": NaN, "done": false}'), EnvError, "reward is nan"),
        ({"observation": "o", "reward": 0}, EnvError, "'done' is None"),
    ],
)
async def test_bad_answers_are_errors_and_nothing_is_sent_twice(
    answer: object, kind: type[EnvError], message: str
):
    with canned({**STARTED, "/step": answer}) as (url, sent):
        async with AgentGymEnvSource(url, env="textcraft") as source, await source.open() as client:
            await client.reset(Task("textcraft", "train", 1))
            with pytest.raises(EnvError, match=message) as caught:
                await client.step("inventory")
            assert type(caught.value) is kind
            with pytest.raises(EnvGoneError, match="after a failure"):
                await client.step("inventory")
    assert [one["path"] for one in sent] == ["/create", "/reset", "/step", "/close"]


async def test_a_slow_server_is_a_timeout():
    is_over = threading.Event()

    class Slow(TextCraft):
        def step(self, action: str) -> StepResult:
            is_over.wait()
            return super().step(action)

    with dialect(Slow) as (url, _):
        async with AgentGymEnvSource(url, env="textcraft") as source:
            client = await source.open()
            await client.reset(Task("textcraft", "train", 1))
            source._server._timeout_s = 0.5
            try:
                with pytest.raises(EnvTimeoutError, match=r"step at .* deadline of 0.5 s"):
                    await client.step("inventory")
            finally:
                is_over.set()
            await client.close()


async def test_a_full_server_is_waited_for_and_then_busy(monkeypatch: pytest.MonkeyPatch):
    with dialect(TextCraft, capacity=1) as (url, _):
        async with AgentGymEnvSource(url, env="textcraft", timeout_s=60.0) as source:
            await see_it_waited_for(source, monkeypatch, told="HTTP 429")


async def test_an_episode_that_was_lost_is_gone():
    with dialect(TextCraft) as (url, service):
        async with AgentGymEnvSource(url, env="textcraft") as source, await source.open() as client:
            await client.reset(Task("textcraft", "train", 1))
            service.lose_all()
            with pytest.raises(EnvGoneError, match="HTTP 410"):
                await client.step("inventory")


async def test_no_server_and_no_scenario_are_errors_in_words():
    async with AgentGymEnvSource("http://127.0.0.1:9", env="babyai", outage_s=0.3) as source:
        with pytest.raises(EnvError, match=r"env babyai: create at http://127.0.0.1:9"):
            await source.open()
    with pytest.raises(ValueError, match="did you mean 'babyai'"):
        AgentGymEnvSource("http://127.0.0.1:9", env="babyaj")
    with pytest.raises(ValueError, match="starts with http"):
        AgentGymEnvSource("127.0.0.1:9", env="babyai")


@pytest.mark.parametrize(
    ("env", "num_train", "num_test"),
    [("textcraft", 444, 100), ("webarena", 712, 100), ("searchqa", 169615, 51713)],
)
async def test_splits_share_no_task(env: str, num_train: int, num_test: int):
    async with AgentGymEnvSource("http://127.0.0.1:9", env=env) as source:
        spec = await source.spec()
        train, test = await source.tasks("train"), await source.tasks("test")
        assert (spec.name, len(train), len(test)) == (env, num_train, num_test)
        assert {task.index for task in train}.isdisjoint(task.index for task in test)
        assert {task.category for task in (*train, *test)} <= set(spec.categories)


async def test_babyai_has_our_tasks_and_its_own_instructions():
    async with AgentGymEnvSource("http://127.0.0.1:9", env="babyai") as source:
        assert await source.tasks("test") == tuple(BabyAI.tasks("test"))
        assert "pickup <thing>" in (await source.spec()).instructions
        with pytest.raises(ValueError, match="no split"):
            await source.tasks("dev")


async def test_sciworld_has_those_of_our_tasks_that_agentgym_knows():
    async with AgentGymEnvSource("http://127.0.0.1:9", env="sciworld") as source:
        splits = (await source.spec()).splits
        tasks = [task for split in splits for task in await source.tasks(split)]
        assert sorted(task.index for task in tasks) == list(range(4639))


def test_textcrafts_test_tasks_are_spread_over_all_depths():
    # 125, 291, 117 and 11 of the 544 goals have depth 1 to 4, so a fair share is 23, 53, 22, 2.
    starts = (0, 125, 416, 533, 544)
    indices = [task.index for task in tasks_of("textcraft", "test")]
    shares = [
        sum(low <= index < high for index in indices) for low, high in itertools.pairwise(starts)
    ]
    assert shares == [23, 53, 22, 2]
