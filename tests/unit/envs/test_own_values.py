"""Metrics, parts of the reward and payloads of tasks: the same over every way to an environment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import orjson
import pytest
import pytest_asyncio

from agentgym_rl.envs.checking.checker import check
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.compat.openenv.mapping import OpenEnvOptions, step_result
from agentgym_rl.envs.compat.openenv.source import OpenEnvSource
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.envs.service.protocol import ProtocolError
from agentgym_rl.errors import EnvError
from agentgym_rl.types import StepResult, Task
from env_servers import server_thread
from fakes import ReportingEnv


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_thread("fakes:ReportingEnv") as url:
        yield url


@pytest_asyncio.fixture(params=["local", "http", "openenv"])
async def source(request: pytest.FixtureRequest, url: str) -> AsyncIterator[EnvSource]:
    made: EnvSource
    match request.param:
        case "local":
            made = LocalEnvSource(ReportingEnv)
        case "openenv":
            made = OpenEnvSource(f"{url}/openenv")
        case _:
            made = HttpEnvSource(url)
    async with made:
        yield made


async def test_tasks_keep_their_payload_and_give_it_back(source: EnvSource):
    tasks = await source.tasks("train")
    assert tasks == tuple(ReportingEnv.tasks("train"))
    assert tasks[1].payload == {"goal": 3, "hints": ({"text": "zähle ☃"}, None)}
    async with await source.open() as env:
        assert await env.reset(tasks[1]) == "Goal: 3. Count: 0. The payload says 3."


async def test_rounds_report_metrics_and_parts_of_the_reward(source: EnvSource):
    task = (await source.tasks("train"))[1]
    async with await source.open() as env:
        await env.reset(task)
        first, last = await env.step("add 1"), await env.step("add 2")
    assert first == StepResult("Count: 1.", metrics={"count": 1.0, "num_steps": 1.0})
    assert last == StepResult(
        "Count: 3.",
        0.75,
        terminated=True,
        success=True,
        metrics={"count": 3.0, "num_steps": 2.0},
        reward_parts={"goal": 1.0, "length": -0.25},
    )


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nan", "'loss' must be finite, not nan"),
        ("many", "has 1000 names; at most 64 are allowed"),
        ("name", "has the name 'a/b'"),
        ("text", "'count' must be a number, not str"),
        ("parts", "reward_parts must sum to the reward 1, not to 0.5"),
    ],
)
async def test_what_breaks_the_contract_is_an_error_of_the_environment(
    source: EnvSource, word: str, message: str
):
    task = (await source.tasks("train"))[0]
    async with await source.open() as env:
        await env.reset(task)
        with pytest.raises(EnvError, match=message):
            await env.step(f"report {word}")


def answered(**changes: object) -> dict[str, object]:
    """Return a step result as a server would send it, with what a hostile one changes."""
    return orjson.loads(orjson.dumps(protocol.step_fields(StepResult("seen")) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": {f"n{i}": 0 for i in range(100_000)}}, "has 100000 names"),
        ({"metrics": {"loss": None}}, "'loss' must be a number, not NoneType"),
        ({"metrics": [1]}, "'metrics' must be dict, not list"),
        ({"metrics": {"x" * 10_000: 1}}, "at most 64 characters"),
        ({"reward_parts": {"a": 3}}, "must sum to the reward 0"),
        ({"extra": 1}, "unknown fields: 'extra'"),
    ],
)
def test_a_hostile_server_is_not_believed(changes: dict[str, object], message: str):
    with pytest.raises(ProtocolError, match=message):
        protocol.decode_step_result(answered(**changes))


def test_a_huge_payload_is_refused():
    fields = protocol.task_fields(Task("a", "train", 1)) | {"payload": {"text": "x" * 2**20}}
    with pytest.raises(ProtocolError, match="'payload' is larger than 1048576 bytes"):
        protocol.decode_task(fields)


def test_nothing_more_travels_where_there_is_nothing_to_report():
    assert len(protocol.step_fields(StepResult("seen"))) == 6
    assert len(protocol.task_fields(Task("a", "train", 1))) == 6


def test_what_other_openenv_servers_mean_by_metrics_is_left_alone():
    outcome = {"observation": "x", "reward": 1.0, "done": False}
    for metadata in ({"metrics": {"a b": 1}}, {"metrics": "none"}, {"reward_parts": {"a": 0.5}}):
        result = step_result({**outcome, "metadata": metadata}, OpenEnvOptions(), reward_before=0.0)
        assert (result.metrics, result.reward_parts) == ({}, {})


class LosesParts(ReportingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), reward_parts={"goal": 0.5})


class ReportsText(ReportingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), metrics={"count": "many"})  # type: ignore[dict-item]


def test_the_checker_knows_these_laws():
    assert check(ReportingEnv, tasks_per_split=3).problems == ()
    for env, words in (
        (LosesParts, "reward_parts must sum to StepResult.reward: give the sum as the reward."),
        (ReportsText, "metrics: 'count' must be a number, not str"),
    ):
        problems = check(env, tasks_per_split=3, num_processes=0).problems
        assert any(words in problem for problem in problems), problems
