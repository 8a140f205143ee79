"""The batched endpoint by hand: every call of a batch is answered once, whatever it holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from env_servers import RawClient, raw_client, server_thread

ENVS = {"trouble": "fakes:TroubleEnv", "shared-trouble": "fakes:SharedTroubleEnv"}
UNKNOWN = "1.unknown"


@pytest.fixture(scope="module", params=[("trouble", 0), ("shared-trouble", 0), ("trouble", 1)])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Give the name of the environment and the address: threads apart, shared, and a process."""
    name, num_workers = request.param
    with server_thread(ENVS[name], num_workers=num_workers) as url:
        yield name, url


@pytest_asyncio.fixture
async def api(server: tuple[str, str]) -> AsyncIterator[RawClient]:
    async with raw_client(server[1]) as client:
        yield client


async def start(api: RawClient) -> str:
    """Start an episode and return its id."""
    return (await api.start()).removeprefix("/episodes/")


def step(episode: str, round_index: int, action: str) -> dict[str, object]:
    return {"op": "step", "episode": episode, "round": round_index, "action": action}


async def test_a_mixture_of_calls_is_answered_call_by_call(api: RawClient, server: tuple[str, str]):
    one, two, three = await start(api), await start(api), await start(api)
    task = {"env": server[0], "split": "train", "index": 8}
    answers = await api.batch(
        {"op": "create"},
        {"op": "reset", "episode": one, "task": task},
        step(two, 0, "add 3"),
        {"op": "observation", "episode": three},
        {"op": "actions", "episode": three},
        {"op": "details", "episode": three},
        {"op": "image", "episode": three},
        {"op": "close", "episode": UNKNOWN},
        step(three, 5, "add 1"),
        step(UNKNOWN, 0, "add 1"),
    )
    statuses = [answers[number][0] for number in range(len(answers))]
    assert statuses == [201, 200, 200, 200, 200, 200, 200, 204, 409, 410]
    assert answers[1][1] == {"observation": "Goal: 9. Count: 0."}
    assert answers[2][1]["observation"] == "Count: 3."
    assert answers[4][1] == {"actions": ["add 1", "add 2", "add 3"]}
    assert answers[6][1] == {"image": None}


async def test_calls_of_one_episode_are_done_in_their_order(api: RawClient):
    episode = await start(api)
    answers = await api.batch(*(step(episode, round_index, "add 1") for round_index in range(4)))
    assert [answers[number][1]["observation"] for number in range(4)] == [
        f"Count: {count}." for count in (1, 2, 3, 4)
    ]


async def test_a_close_does_not_wait_for_calls_of_its_batch(api: RawClient):
    episode, other = await start(api), await start(api)
    answers = await api.batch(
        step(episode, 0, "sleep 0.2"),
        step(episode, 1, "add 1"),
        {"op": "close", "episode": episode},
        step(episode, 2, "add 1"),
        step(other, 0, "add 1"),
    )
    assert answers[0][0] in (200, 410)
    assert [answers[number][0] for number in (1, 2, 3, 4)] == [410, 204, 410, 200]
    assert (await api.batch(step(other, 1, "add 1")))[0][0] == 200


async def test_a_bad_call_spoils_no_other(api: RawClient):
    episode = await start(api)
    answers = await api.batch(
        {"op": "fly"},
        {},
        {"op": None, "episode": episode},
        {"op": ["step"], "episode": episode},
        {"op": "step", "episode": episode},
        {"op": "step", "episode": 5, "round": 0, "action": "add 1"},
        {"op": "step", "episode": episode, "round": True, "action": "add 1"},
        {"op": "step", "episode": episode, "round": 0, "action": "add 1", "more": 1},
        {"op": "reset", "episode": episode, "task": "counting/4"},
        {"op": "create", "episode": episode},
        {"op": "observation"},
        step(episode, 0, "add 1"),
    )
    assert [answers[number][0] for number in range(11)] == [422] * 11
    assert "'op' must be one of create, reset" in answers[0][1]["error"]["message"]
    assert answers[11][1]["observation"] == "Count: 1."


@pytest.mark.parametrize(
    "episode", ["", ".", "9" * 5000 + ".x", "-1.x", "٣.x", "1", "\x00", "1." * 99]
)
async def test_an_id_can_be_anything(api: RawClient, episode: str):
    assert (await api.batch(step(episode, 0, "add 1")))[0][0] == 410


@pytest.mark.parametrize(
    ("raw", "status", "kind"),
    [
        (b"", 400, "malformed"),
        (b"[]", 400, "malformed"),
        (b"{}", 422, "wrong_type"),
        (b'{"calls": {}}', 422, "wrong_type"),
        (b'{"calls": [], "more": 1}', 422, "wrong_type"),
        (b'{"calls": [1]}', 422, "wrong_type"),
        (b'{"calls": [{"op": "create"}]}', 422, "wrong_type"),
        (b'{"calls": [{"call": "0", "op": "create"}]}', 422, "wrong_type"),
        (b'{"calls": [{"call": true, "op": "create"}]}', 422, "wrong_type"),
        (b'{"calls": [{"call": 1, "op": "x"}, {"call": 1, "op": "x"}]}', 422, "wrong_type"),
    ],
)
async def test_a_batch_that_is_none_is_refused_whole(
    api: RawClient, raw: bytes, status: int, kind: str
):
    got, body = await api("POST", "/batch", raw=raw)
    assert (got, body["error"]["type"]) == (status, kind)


async def test_an_empty_batch_has_an_empty_answer(api: RawClient):
    assert await api.batch() == {}


async def test_a_slow_call_does_not_hold_up_the_answers_of_the_others(
    api: RawClient, server: tuple[str, str], tmp_path: Path
):
    episodes = [await start(api) for _ in range(3)]
    others_are_here = tmp_path / "others are here"
    # Where episodes share a thread, those before the slow one are done before it.
    actions = ["add 1", "add 1", f"hang {others_are_here}"]
    calls = [
        {"call": number, **step(episode, 0, action)}
        for number, (episode, action) in enumerate(zip(episodes, actions, strict=True))
    ]
    arrived: list[int] = []
    async with (
        asyncio.timeout(60),
        aiohttp.ClientSession() as session,
        session.post(f"{server[1]}/batch", data=json.dumps({"calls": calls})) as response,
    ):
        async for line in response.content:
            arrived.append(json.loads(line)["call"])
            if set(arrived) == {0, 1}:
                others_are_here.touch()
    assert sorted(arrived) == [0, 1, 2] and arrived[-1] == 2


async def test_who_hangs_up_in_the_middle_of_a_batch_harms_nobody(
    api: RawClient, server: tuple[str, str]
):
    gone, other = await start(api), await start(api)
    body = json.dumps({"calls": [{"call": 0, **step(gone, 0, "sleep 0.3")}]})
    async with aiohttp.ClientSession() as session:
        post = asyncio.create_task(session.post(f"{server[1]}/batch", data=body))
        await asyncio.sleep(0.1)
        post.cancel()
    assert (await api.batch(step(other, 0, "add 1")))[0][0] == 200
    # The step was done once; asking for it again gives its answer.
    assert (await api.batch(step(gone, 0, "sleep 0.3")))[0][1]["observation"] == "Count: 1."


async def test_a_failure_that_utf8_cannot_carry_is_told_all_the_same(api: RawClient):
    episode, other = await start(api), await start(api)
    answers = await asyncio.wait_for(
        api.batch(step(episode, 0, "mangled"), step(other, 0, "add 1")), 60
    )
    assert (answers[0][0], answers[0][1]["error"]["type"]) == (500, "env_failed")
    assert "a name with ? in it" in answers[0][1]["error"]["message"]
    assert answers[1][0] == 200
