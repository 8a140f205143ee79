"""The wire protocol by hand: every route, every refusal, and steps that are safe to repeat."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from agentgym_rl.envs.service.server.backend import ServerLimits
from env_servers import RawClient, raw_client, server_thread

TASK = {"env": "counting", "split": "train", "index": 4}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server_thread("fakes:CountingEnv", limits=ServerLimits(max_body_bytes=2000)) as url:
        yield url


@pytest_asyncio.fixture
async def api(url: str) -> AsyncIterator[RawClient]:
    async with raw_client(url) as client:
        yield client


async def test_an_episode_by_hand(api: RawClient):
    status, created = await api("POST", "/episodes", {})
    assert status == 201
    assert len(created["episode"]) >= 20
    path = f"/episodes/{created['episode']}"

    assert await api("POST", f"{path}/reset", {"task": TASK}) == (
        200,
        {"observation": "Goal: 5. Count: 0."},
    )
    assert await api("GET", f"{path}/actions") == (200, {"actions": ["add 1", "add 2", "add 3"]})
    assert await api("POST", f"{path}/step", {"round": 0, "action": "add 3"}) == (
        200,
        {
            "observation": "Count: 3.",
            "reward": 0.0,
            "terminated": False,
            "truncated": False,
            "success": False,
            "valid_action": True,
        },
    )
    assert await api("GET", f"{path}/observation") == (200, {"observation": "Count: 3."})
    _, result = await api("POST", f"{path}/step", {"round": 1, "action": "add 2"})
    assert (result["reward"], result["terminated"], result["success"]) == (1.0, True, True)
    assert await api("GET", f"{path}/actions") == (200, {"actions": []})
    assert await api("DELETE", path) == (204, {})
    assert await api("DELETE", path) == (204, {})
    status, body = await api("GET", f"{path}/observation")
    assert (status, body["error"]["type"]) == (410, "gone")


async def test_health_spec_and_tasks(api: RawClient):
    status, health = await api("GET", "/health")
    assert (status, health["status"], health["env"]) == (200, "ok", "counting")
    status, spec = await api("GET", "/spec")
    assert (status, spec["name"], spec["reward_range"]) == (200, "counting", [0.0, 1.0])
    status, body = await api("GET", "/tasks?split=test")
    assert (status, len(body["tasks"])) == (200, 10)
    assert body["tasks"][0] == {
        "env": "counting",
        "split": "test",
        "index": 1,
        "category": "small",
        "level": "",
        "seed": 0,
    }


async def test_repeating_the_latest_step_does_it_once(api: RawClient):
    path = await api.start()
    first = await api("POST", f"{path}/step", {"round": 0, "action": "add 2"})
    assert await api("POST", f"{path}/step", {"round": 0, "action": "add 2"}) == first
    assert first[1]["observation"] == "Count: 2."
    _, second = await api("POST", f"{path}/step", {"round": 1, "action": "add 2"})
    assert second["observation"] == "Count: 4."


async def test_the_last_step_can_be_repeated_after_the_end(api: RawClient):
    path = await api.start(index=0)
    first = await api("POST", f"{path}/step", {"round": 0, "action": "add 1"})
    assert first[1]["success"] is True
    assert await api("POST", f"{path}/step", {"round": 0, "action": "add 1"}) == first
    status, body = await api("POST", f"{path}/step", {"round": 1, "action": "add 1"})
    assert (status, body["error"]["type"]) == (409, "wrong_state")


async def test_a_wrong_round_is_refused_with_the_expected_one(api: RawClient):
    path = await api.start()
    await api("POST", f"{path}/step", {"round": 0, "action": "add 1"})
    await api("POST", f"{path}/step", {"round": 1, "action": "add 1"})
    for round_index in (0, 3, -1):
        body = {"round": round_index, "action": "add 1"}
        status, answer = await api("POST", f"{path}/step", body)
        assert (status, answer["error"]["type"]) == (409, "wrong_round")
        assert "expected round 2" in answer["error"]["message"]
    status, answer = await api("POST", f"{path}/step", {"round": 1, "action": "add 2"})
    assert (status, answer["error"]["type"]) == (409, "wrong_round")
    assert "another action" in answer["error"]["message"]
    _, answer = await api("POST", f"{path}/step", {"round": 2, "action": "add 1"})
    assert answer["observation"] == "Count: 3."


async def test_a_reset_forgets_the_steps_before_it(api: RawClient):
    path = await api.start()
    await api("POST", f"{path}/step", {"round": 0, "action": "add 1"})
    await api("POST", f"{path}/reset", {"task": TASK})
    _, answer = await api("POST", f"{path}/step", {"round": 0, "action": "add 1"})
    assert answer["observation"] == "Count: 1."


async def test_a_step_before_reset_is_refused(api: RawClient):
    _, created = await api("POST", "/episodes")
    path = f"/episodes/{created['episode']}"
    for method, call, body in (
        ("POST", "step", {"round": 0, "action": "add 1"}),
        ("GET", "observation", None),
        ("GET", "actions", None),
    ):
        status, answer = await api(method, f"{path}/{call}", body)
        assert (status, answer["error"]["type"]) == (409, "wrong_state")


@pytest.mark.parametrize(
    ("raw", "status", "kind"),
    [
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b"\xff\xfe", 400, "malformed"),
        (b'["round", 0]', 400, "malformed"),
        (b'{"round": 0, "action": "\\ud800"}', 400, "malformed"),
        (b'{"round": 0}', 422, "wrong_type"),
        (b'{"action": "add 1"}', 422, "wrong_type"),
        (b'{"round": "0", "action": "add 1"}', 422, "wrong_type"),
        (b'{"round": true, "action": "add 1"}', 422, "wrong_type"),
        (b'{"round": 0.0, "action": "add 1"}', 422, "wrong_type"),
        (b'{"round": 0, "action": 1}', 422, "wrong_type"),
        (b'{"round": 0, "action": null}', 422, "wrong_type"),
        (b'{"round": 0, "action": "add 1", "more": 1}', 422, "wrong_type"),
        (b'{"round": 0, "action": "' + b"x" * 3000 + b'"}', 413, "too_large"),
    ],
)
async def test_a_bad_step_is_refused_and_the_episode_goes_on(
    api: RawClient, raw: bytes, status: int, kind: str
):
    path = await api.start()
    got, body = await api("POST", f"{path}/step", raw=raw)
    assert (got, body["error"]["type"]) == (status, kind)
    assert body["error"]["message"]
    _, answer = await api("POST", f"{path}/step", {"round": 0, "action": "add 1"})
    assert answer["observation"] == "Count: 1."


@pytest.mark.parametrize(
    "task",
    [
        None,
        "counting/4",
        {"env": "counting", "split": "train"},
        {**TASK, "index": "4"},
        {**TASK, "seed": 1.5},
        {**TASK, "colour": "red"},
        {**TASK, "env": "chess"},
    ],
)
async def test_a_bad_task_is_refused(api: RawClient, task: object):
    path = await api.start()
    status, body = await api("POST", f"{path}/reset", {"task": task})
    assert (status, body["error"]["type"]) == (422, "wrong_type")


async def test_a_large_body_without_a_length_is_refused(api: RawClient, url: str):
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b"x" * 1000

    async with api._session.post(f"{url}/episodes", data=chunks()) as response:
        assert response.status == 413


@pytest.mark.parametrize("path", ["/episodes", "/create", "/openenv/reset"])
async def test_a_client_that_leaves_in_a_request_is_noted_in_one_line(
    path: str, url: str, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    _, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{{".encode())
    await writer.drain()
    writer.transport.abort()
    async with asyncio.timeout(60):
        while not caplog.records:
            await asyncio.sleep(0.01)
    (record,) = caplog.records
    assert record.getMessage() == f"a client left in the middle of its request: POST {path}"
    assert record.exc_info is None


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nothing", 404, "unknown_route"),
        ("GET", "/episodes", 405, "wrong_method"),
        ("POST", "/health", 405, "wrong_method"),
        ("GET", "/tasks", 422, "wrong_type"),
        ("GET", "/tasks?split=nothing", 422, "wrong_type"),
        ("GET", "/episodes/unknown/observation", 410, "unknown_episode"),
        ("GET", "/episodes/unknown/actions", 410, "unknown_episode"),
    ],
)
async def test_every_refusal_is_typed(
    api: RawClient, method: str, path: str, status: int, kind: str
):
    got, body = await api(method, path)
    assert (got, body["error"]["type"]) == (status, kind)
    assert body["error"]["message"]


async def test_ids_cannot_be_guessed(api: RawClient):
    ids = {(await api("POST", "/episodes"))[1]["episode"] for _ in range(20)}
    assert len(ids) == 20
    assert min(len(episode) for episode in ids) >= 20
