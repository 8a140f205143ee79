"""AgentGym's SearchQA routes, and what becomes of an episode whose search engine dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import requests

from agentgym_clients import StockSearchQA, play_expert, serving
from agentgym_rl.envs.compat.agentgym.source import AgentGymEnvSource
from agentgym_rl.types import Task
from small_search import SmallSearchQA

PROMPT_END = (
    "\n\n Question: On which river lies the village where the director of Stalker was born?"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SmallSearchQA) as (address, _):
        yield address


def test_the_server_says_that_it_is_there(url: str):
    assert requests.get(f"{url}/", timeout=20).json() == "ok"


def test_a_stock_client_plays_to_reward_one(url: str):
    twin, client = SmallSearchQA(), StockSearchQA(url)
    twin.reset(Task("searchqa", "test", 0))
    prompt = client.reset(0)
    assert prompt.endswith(PROMPT_END) and "<think>" in prompt
    assert play_expert(client.step, twin) == (1.0, True)
    assert client.close() is True and client.close() is False


def test_create_answers_a_bare_number_and_starts_the_question(url: str):
    created = requests.post(f"{url}/create", json={"id": 2}, timeout=20)
    assert type(created.json()) is int
    seen = requests.get(f"{url}/observation", params={"env_idx": created.json()}, timeout=20)
    assert "Into which sea" in seen.json()


def test_a_step_has_the_documented_fields_and_takes_the_whole_reply(url: str):
    client = StockSearchQA(url)
    prompt = client.reset(0)
    reply = "<think>Who made <answer>it</answer>?</think>\n<search> director of Stalker </search>"
    answer = client.post("step", action=reply)
    assert answer.keys() == {"observation", "reward", "done", "info"}
    assert answer["observation"].startswith("<information>\nDoc 1 (Title: Stalker)")
    assert (answer["reward"], answer["done"], answer["info"]) == (0.0, False, None)
    assert client.observe() == prompt  # never the last search
    assert client.step("no tags")[1:] == (0.0, False)
    assert client.step("<answer>Seine</answer>")[1:] == (0.0, True)
    assert client.reset(0) == prompt


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("create", {}, 422),
        ("create", {"id": "x"}, 422),
        ("create", {"id": 99}, 400),
        ("reset", {"env_idx": 1, "id": 0}, 400),
        ("reset", {"env_idx": 1}, 422),
        ("step", {"id": 1, "action": "x"}, 422),
        ("step", {"env_idx": 1, "action": "x"}, 400),
    ],
)
def test_mistakes_are_http_failures(url: str, path: str, body: dict[str, object], status: int):
    answer = requests.post(f"{url}/{path}", json=body, timeout=20)
    assert answer.status_code == status
    if status == 422 and path == "step":
        assert answer.json()["detail"][0]["loc"] == ["body", "env_idx"]


def test_a_step_after_the_end_is_refused(url: str):
    client = StockSearchQA(url)
    client.reset(0)
    client.step("<answer>Seine</answer>")
    with pytest.raises(AssertionError):
        client.step("<answer>Volga</answer>")


async def test_our_own_client_plays_it(url: str):
    async with (
        asyncio.timeout(30),
        AgentGymEnvSource(url, env="searchqa") as source,
        await source.open() as client,
    ):
        task = (await source.tasks("test"))[0]
        assert (await client.reset(task)).endswith(PROMPT_END)
        assert (await client.step("<search>Stalker</search>")).valid_action
        assert (await client.step("<answer>Volga</answer>")).success
