"""What every request passes first, and what the server tells of itself."""

from __future__ import annotations

import aiohttp
import pytest

from env_servers import raw_client, server_thread


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1", 403),
    ],
)
async def test_pages_of_other_origins_are_refused(origin: str | None, expected: int):
    with server_thread("fakes:CountingEnv") as url:
        headers = {} if origin is None else {"Origin": origin}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.get(f"{url}/spec") as answer:
                assert answer.status == expected
            if expected == 403:
                with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                    await session.ws_connect(f"{url}/openenv/ws")


async def test_a_page_of_the_server_itself_is_let_in():
    with server_thread("fakes:CountingEnv") as url:
        async with (
            aiohttp.ClientSession(headers={"Origin": url}) as session,
            session.get(f"{url}/spec") as answer,
        ):
            assert answer.status == 200


async def test_a_socket_needs_the_token_too():
    with server_thread("fakes:CountingEnv", token="sesame") as url:
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await session.ws_connect(f"{url}/openenv/ws")
        headers = {"Authorization": "Bearer sesame"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.ws_connect(f"{url}/openenv/ws") as socket,
        ):
            assert not socket.closed


@pytest.mark.parametrize("path", ["/reset", "/step", "/batch", "/openenv/reset"])
async def test_every_dialect_has_the_limit_on_bodies(path: str):
    with server_thread("fakes:CountingEnv") as url:
        async with raw_client(url) as api:
            status, _ = await api("POST", path, raw=b" " * (5 * 1024 * 1024))
            assert status == 413


async def test_metrics_count_what_happened():
    with server_thread("fakes:CountingEnv") as url:
        async with raw_client(url) as api:
            path = await api.start()
            for round_index in range(3):
                await api("POST", f"{path}/step", {"round": round_index, "action": "add 1"})
            await api("GET", "/nowhere")
        async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            lines = (await answer.text()).splitlines()
    counts = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert counts['agentgym_episodes{env="counting"}'] == "1.0"
    assert counts['agentgym_steps_total{env="counting"}'] == "3.0"
    assert counts['agentgym_http_requests_total{route="step",status="200"}'] == "3.0"
    assert counts['agentgym_http_requests_total{route="other",status="404"}'] == "1.0"
    assert counts['agentgym_http_request_seconds_count{route="step"}'] == "3.0"


async def test_details_and_pictures_travel():
    with server_thread("babyai") as url:
        async with raw_client(url) as api:
            _, created = await api("POST", "/episodes")
            path = f"/episodes/{created['episode']}"
            task = {"env": "babyai", "split": "test", "index": 1}
            await api("POST", f"{path}/reset", {"task": task})
            status, body = await api("GET", f"{path}/details")
            assert status == 200
            assert body["details"]["mission"]
            status, body = await api("GET", f"{path}/image")
            assert status == 200
            assert body["image"].startswith("iVBOR")  # a PNG's first bytes in base64
