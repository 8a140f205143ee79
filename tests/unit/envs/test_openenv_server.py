"""The OpenEnv routes over real sockets: their shapes, and what hostile or lost peers leave."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import aiohttp
import pytest

from agentgym_rl.envs.base import Environment
from env_services import PlainService
from fakes import HANGING, BrokenStartEnv, CountingEnv, TroubleEnv, end_hangs
from openenv_services import openenv_server, raw_socket
from waiting import wait_for

SERVICE = PlainService(TroubleEnv)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with openenv_server(SERVICE, max_message_bytes=100_000) as url:
        yield url


async def test_an_episode(url: str):
    async with raw_socket(url) as session:
        assert await session("state") == {
            "type": "state",
            "data": {"episode_id": None, "step_count": 0},
        }
        begun = await session("reset", {"split": "train", "index": 2, "episode_id": "mine"})
        assert begun["type"] == "observation"
        outcome = begun["data"]
        assert outcome["observation"]["text"] == "Goal: 5. Count: 0."
        assert (outcome["reward"], outcome["done"]) == (None, False)
        assert outcome["metadata"]["task"]["index"] == 4
        step = await session("step", {"action": "add 3", "metadata": {}})
        flags = {"terminated": False, "truncated": False, "success": False, "valid_action": True}
        assert step["data"] == {
            "observation": {"text": "Count: 3.", "metadata": flags},
            "reward": 0.0,
            "done": False,
            "metadata": flags,
        }
        state = (await session("state"))["data"]
        assert (state["episode_id"], state["step_count"], state["is_over"]) == ("mine", 1, False)
        assert (await session("actions"))["data"]["actions"] == ["add 1", "add 2", "add 3"]
        last = (await session("step", "add 2"))["data"]
        assert (last["reward"], last["done"], last["metadata"]["success"]) == (1.0, True, True)


async def test_ways_to_name_a_task(url: str):
    async with raw_socket(url) as session:

        async def goal(**selectors: object) -> str:
            outcome = (await session("reset", selectors))["data"]
            return outcome["observation"]["text"].split(".")[0]

        assert await goal(split="test", index=0) == "Goal: 2"
        assert await goal(task="trouble/7") == "Goal: 8"
        assert await goal(task={"env": "trouble", "split": "train", "index": 16}) == "Goal: 17"
        assert await goal(seed=1) == "Goal: 3"
        assert await goal(seed=11) == "Goal: 3"
        assert await goal(split="test", seed=1, something="else") == "Goal: 4"
        assert (await goal()).startswith("Goal: ")
        seeded = await session("reset", {"index": 1, "seed": 9})
        assert seeded["data"]["metadata"]["task"]["seed"] == 9
        by_id = await session("reset", {"task": "trouble/4/3"})
        assert by_id["data"]["metadata"]["task"]["seed"] == 3


@pytest.mark.parametrize(
    "selectors",
    [
        {"split": "dev"},
        {"split": 3},
        {"index": 10},
        {"index": -1},
        {"index": "2"},
        {"seed": True},
        {"task": 3},
        {"task": "trouble/99"},
        {"task": "chess/1"},
        {"task": "trouble/4/x"},
        {"task": {"env": "chess", "split": "train", "index": 0}},
        {"task": {"env": "trouble"}},
        {"episode_id": 3},
        {"episode_id": "x" * 256},
    ],
)
async def test_a_reset_that_selects_no_task_is_refused_and_the_session_goes_on(
    url: str, selectors: dict[str, object]
):
    async with raw_socket(url) as session:
        await session("reset", {"task": "trouble/4"})
        refusal = await session("reset", selectors)
        assert (refusal["type"], refusal["data"]["code"]) == ("error", "VALIDATION_ERROR")
        assert (await session("step", "add 1"))["data"]["observation"]["text"] == "Count: 1."


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "INVALID_JSON"),
        ("hello", "INVALID_JSON"),
        ("[1, 2]", "INVALID_JSON"),
        ("null", "INVALID_JSON"),
        (b"\xff\xfe\x00", "INVALID_JSON"),
        ("[" * 50_000, "INVALID_JSON"),
        ("{}", "UNKNOWN_TYPE"),
        ('{"type": ["reset"]}', "UNKNOWN_TYPE"),
        ('{"type": "mcp", "data": {}}', "UNKNOWN_TYPE"),
        ('{"type": "reset", "data": [1]}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": 3}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"text": "add 1"}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"action": 1}}', "VALIDATION_ERROR"),
        ('{"type": "step", "data": {"action": {"action": null}}}', "VALIDATION_ERROR"),
        (json.dumps({"type": "step", "data": "x" * 100_001}), "VALIDATION_ERROR"),
    ],
)
async def test_garbage_gets_an_error_and_the_session_goes_on(
    url: str, frame: str | bytes, code: str
):
    async with raw_socket(url) as session:
        await session("reset", {"task": "trouble/4"})
        refusal = await session.send_raw(frame)
        assert (refusal["type"], refusal["data"]["code"]) == ("error", code)
        assert refusal["data"]["message"]
        assert (await session("step", "add 1"))["data"]["observation"]["text"] == "Count: 1."


async def test_calls_out_of_order_are_refused(url: str):
    async with raw_socket(url) as session:
        for message in ("step", "actions"):
            refusal = await session(message, {"action": "add 1"})
            assert refusal["data"]["code"] == "EXECUTION_ERROR"
            assert refusal["data"]["kind"] == "wrong_state"
        await session("reset", {"task": "trouble/0"})
        assert (await session("step", "add 1"))["data"]["done"]
        refusal = await session("step", "add 1")
        assert refusal["data"]["kind"] == "wrong_state"
        assert (await session("state"))["data"]["step_count"] == 1


async def test_a_failed_environment_is_an_error_and_a_reset_begins_anew(url: str):
    async with raw_socket(url) as session:
        await session("reset", {"task": "trouble/4"})
        failure = await session("step", "raise")
        assert failure["type"] == "error"
        assert (failure["data"]["code"], failure["data"]["kind"]) == (
            "EXECUTION_ERROR",
            "env_failed",
        )
        assert (await session("step", "add 1"))["data"]["kind"] == "wrong_state"
        assert (await session("reset", {"task": "trouble/4"}))["type"] == "observation"


async def test_a_lost_episode_is_told_from_a_failed_one():
    service = PlainService(TroubleEnv)
    with openenv_server(service) as url:
        async with raw_socket(url) as session:
            await session("reset", {"task": "trouble/4"})
            service.lose_all()
            failure = (await session("step", "add 1"))["data"]
            assert (failure["code"], failure["kind"]) == ("SESSION_ERROR", "gone")
            assert (await session("reset", {"task": "trouble/4"}))["type"] == "observation"


async def test_a_bug_of_the_server_is_not_told_to_the_client():
    class BuggyService(PlainService):
        async def available_actions(self, episode: str) -> tuple[str, ...]:
            raise ZeroDivisionError("a private matter")

    with openenv_server(BuggyService(CountingEnv)) as url:
        async with raw_socket(url) as session:
            await session("reset", {})
            failure = (await session("actions"))["data"]
            assert failure["kind"] == "internal"
            assert "private" not in failure["message"]
            assert (await session("step", "add 1"))["type"] == "observation"


@pytest.mark.parametrize(
    ("env", "capacity", "code"),
    [(CountingEnv, 0, "CAPACITY_REACHED"), (BrokenStartEnv, 1, "FACTORY_ERROR")],
)
async def test_a_session_without_a_place_is_refused_in_words(
    env: type[Environment], capacity: int, code: str
):
    with openenv_server(PlainService(env, capacity=capacity)) as url:
        async with raw_socket(url) as session:
            refusal = json.loads(await session.socket.receive_str(timeout=60))
            assert (refusal["type"], refusal["data"]["code"]) == ("error", code)
            assert (await session.socket.receive()).type is aiohttp.WSMsgType.CLOSE
            assert session.socket.close_code == 1013


async def test_close_gives_the_place_back_before_the_socket_ends():
    service = PlainService(CountingEnv, capacity=1)
    with openenv_server(service) as url:
        for _ in range(5):
            async with raw_socket(url) as session:
                await session("reset", {})
                await session.socket.send_str('{"type": "close"}')
                assert (await session.socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE
                assert session.socket.close_code == 1000
                assert not service.episodes


def _open_by_hand(url: str) -> socket.socket:
    """Return a connection that has become a WebSocket, to be treated badly."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = socket.create_connection((parts.hostname, parts.port))
    connection.sendall(
        f"GET {parts.path}/ws HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
    )
    assert b" 101 " in connection.recv(4096)
    return connection


def _send_by_hand(connection: socket.socket, message: object) -> None:
    """Send a short text frame, masked with zeros."""
    body = json.dumps(message).encode()
    assert len(body) < 126
    connection.sendall(bytes((0x81, 0x80 | len(body), 0, 0, 0, 0)) + body)


def test_a_connection_that_is_killed_in_a_call_leaves_nothing():
    service = PlainService(TroubleEnv)
    with openenv_server(service) as url:
        connections = [_open_by_hand(url) for _ in range(5)]
        for connection in connections:
            _send_by_hand(connection, {"type": "reset", "data": {"task": "trouble/4"}})
            _send_by_hand(connection, {"type": "step", "data": "hang"})
        wait_for(lambda: len(HANGING) == 5)
        for connection in connections:
            # Linger 0 makes the close a reset of the connection, with no farewell.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        wait_for(lambda: not service.episodes)
        assert len(HANGING) == 5, "nobody waited for the calls"
        end_hangs()


def test_a_half_open_connection_is_noticed_by_its_missing_pongs():
    service = PlainService(CountingEnv)
    with openenv_server(service, ping_s=0.2, pong_timeout_s=0.2) as url:
        connection = _open_by_hand(url)
        _send_by_hand(connection, {"type": "reset"})
        wait_for(lambda: service.num_created == 1)
        wait_for(lambda: not service.episodes)
        connection.close()


def test_a_connection_that_breaks_the_framing_leaves_nothing():
    service = PlainService(CountingEnv)
    with openenv_server(service) as url:
        connection = _open_by_hand(url)
        wait_for(lambda: len(service.episodes) == 1)
        connection.sendall(b"\xff" * 100)
        wait_for(lambda: not service.episodes)
        connection.close()


async def test_a_peer_that_leaves_during_the_create_leaves_nothing():
    release = threading.Event()

    class SlowService(PlainService):
        async def create(self) -> str:
            episode = await super().create()
            await asyncio.to_thread(release.wait)
            return episode

    service = SlowService(CountingEnv)
    with openenv_server(service) as url:
        async with raw_socket(url):
            await asyncio.to_thread(wait_for, lambda: service.num_created == 1)
        assert service.episodes
        release.set()
        await asyncio.to_thread(wait_for, lambda: not service.episodes)


async def test_a_message_far_above_the_limit_ends_the_session_and_nothing_else(url: str):
    async with raw_socket(url) as session, raw_socket(url) as other:
        await other("reset", {"task": "trouble/4"})
        await session.socket.send_str("x" * 500_000)
        assert (await session.socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE
        assert session.socket.close_code == 1009
        assert (await other("step", "add 1"))["type"] == "observation"


async def test_frames_sent_ahead_are_answered_in_order(url: str):
    async with raw_socket(url) as session:
        await session.socket.send_str('{"type": "reset", "data": {"task": "trouble/18"}}')
        for _ in range(15):
            await session.socket.send_str('{"type": "step", "data": "add 1"}')
        texts = [
            json.loads(await session.socket.receive_str())["data"]["observation"]["text"]
            for _ in range(16)
        ]
        assert texts[1:] == [f"Count: {count}." for count in range(1, 16)]
    assert SERVICE.num_overlaps == 0


async def test_fifty_sessions_at_once_do_not_meet_and_leave_nothing():
    service = PlainService(CountingEnv)

    async def play(url: str, position: int) -> list[str]:
        async with raw_socket(url) as session:
            frames = [await session("reset", {"split": "train", "index": position})]
            while not frames[-1]["data"]["done"]:
                frames.append(await session("step", "add 1"))
            return [frame["data"]["observation"]["text"] for frame in frames]

    with openenv_server(service) as url:
        played = await asyncio.gather(*(play(url, number % 10) for number in range(50)))
        await asyncio.to_thread(wait_for, lambda: not service.episodes)
    for number, seen in enumerate(played):
        goal = 2 * (number % 10) + 1
        counts = [f"Count: {count}." for count in range(1, goal + 1)]
        assert seen == [f"Goal: {goal}. Count: 0.", *counts]


async def test_what_the_server_tells_over_http(url: str):
    async with aiohttp.ClientSession() as session:

        async def get(path: str) -> object:
            async with session.get(url + path) as response:
                assert response.status == 200
                return await response.json()

        assert await get("/health") == {"status": "healthy"}
        metadata = await get("/metadata")
        assert (metadata["name"], metadata["description"]) == ("trouble", "a fake")
        assert metadata["agentgym"]["splits"] == ["train", "test"]
        schema = await get("/schema")
        assert schema["action"]["required"] == ["action"]
        assert set(schema) == {"action", "observation", "state"}
        assert await get("/state") == {"episode_id": None, "step_count": 0}
        assert {"/reset", "/step", "/state"} <= set((await get("/openapi.json"))["paths"])
        assert await get("/list_environments") == ["trouble"]
        assert await get("/trouble/splits") == [
            {"name": "train", "type": "train"},
            {"name": "test", "type": "test"},
        ]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/trouble/num_tasks", {"split": "dev"}, 422),
        ("/trouble/num_tasks", {}, 422),
        ("/trouble/task", {"split": "test"}, 422),
        ("/trouble/task", {"split": "test", "index": 10}, 422),
        ("/chess/num_tasks", {"split": "test"}, 404),
        ("/reset", {"split": "dev"}, 422),
        ("/reset", [], 400),
        ("/step", {"action": {"action": "add 1"}}, 409),
        ("/step", {"action": {}}, 422),
    ],
)
async def test_refusals_over_http(url: str, path: str, body: object, status: int):
    async with aiohttp.ClientSession() as session, session.post(url + path, json=body) as response:
        assert response.status == status
        assert (await response.json())["detail"]


async def test_tasks_and_the_reset_over_http():
    service = PlainService(CountingEnv)
    with openenv_server(service) as url:
        async with aiohttp.ClientSession() as session:

            async def post(path: str, body: object = None) -> dict:
                async with session.post(url + path, json=body) as response:
                    assert response.status == 200
                    return await response.json()

            assert await post("/counting/num_tasks", {"split": "test"}) == {"num_tasks": 10}
            task = (await post("/Counting/task", {"split": "test", "index": 3}))["task"]
            assert (task["id"], task["index"], task["task"]["index"]) == ("counting/7", 3, 7)
            listed = await post("/counting/tasks", {"split": "test"})
            assert (listed["tasks"][3], listed["env_name"]) == (task, "counting")
            chosen = {"split": "test", "start": 3, "stop": 5}
            assert (await post("/counting/task_range", chosen))["tasks"] == listed["tasks"][3:5]
            outcome = await post("/reset", {"split": "test", "index": 3})
            assert outcome["observation"]["text"] == "Goal: 8. Count: 0."
            assert not outcome["done"]
            assert not service.episodes
            tools = await post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            assert tools == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}
            assert (await post("/mcp", {}))["error"]["code"] == -32600
