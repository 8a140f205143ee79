"""What is particular to the HTTP client: repeats, lost answers, dead servers, full ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.errors import EnvAwayError, EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import Task
from chaos import FragileServer
from env_servers import see_it_waited_for, server_process, server_thread

TASK = Task("trouble", "train", 4)


class Proxy:
    """Passes bytes to a server and loses the next answers on demand, as a bad network does."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self.num_answers_to_lose = 0
        self.num_lost = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        requests = asyncio.create_task(self._pass_on(reader, to_server))
        try:
            await self._pass_on(from_server, writer, is_lossy=True)
        finally:
            requests.cancel()
            writer.close()
            to_server.close()

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_lossy: bool = False
    ) -> None:
        while chunk := await source.read(65536):
            if is_lossy and self.num_answers_to_lose > 0:
                self.num_answers_to_lose -= 1
                self.num_lost += 1
                return
            sink.write(chunk)
        sink.close()


@asynccontextmanager
async def losing_proxy(upstream: str) -> AsyncIterator[tuple[str, Proxy]]:
    proxy = Proxy(int(upstream.rpartition(":")[2]))
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", proxy
    finally:
        server.close()


async def test_a_step_whose_answer_is_lost_is_done_once():
    with server_thread("fakes:TroubleEnv") as url:
        async with losing_proxy(url) as (proxied, proxy), HttpEnvSource(proxied) as source:
            env = await source.open()
            await env.reset(TASK)
            for count in (1, 2, 3):
                proxy.num_answers_to_lose = 1
                assert (await env.step("add 1")).observation == f"Count: {count}."
            proxy.num_answers_to_lose = 1
            assert await env.observation() == "Count: 3."
            proxy.num_answers_to_lose = 1
            assert await env.reset(TASK) == "Goal: 5. Count: 0."
            await env.close()
            assert proxy.num_lost == 5


async def test_a_create_whose_answer_is_lost_is_repeated_and_takes_one_place():
    with server_thread("fakes:TroubleEnv", num_workers=2) as url:
        async with (
            losing_proxy(url) as (proxied, proxy),
            HttpEnvSource(proxied) as source,
        ):
            await source.spec()
            proxy.num_answers_to_lose = 2
            env = await source.open()
            assert proxy.num_lost == 2
            assert await env.reset(TASK) == "Goal: 5. Count: 0."
            health = await source.health()
            assert (health.num_opened, health.num_episodes) == (1, 1)
            await env.close()


async def test_answers_that_are_always_lost_end_in_an_error():
    with server_thread("fakes:TroubleEnv") as url:
        async with (
            losing_proxy(url) as (proxied, proxy),
            HttpEnvSource(proxied) as source,
        ):
            env = await source.open()
            await env.reset(TASK)
            source._calls.outages._max_s = 1.0
            proxy.num_answers_to_lose = 1000
            started = time.monotonic()
            with pytest.raises(EnvError, match=r"round 0: step at .*Disconnected"):
                await env.step("add 1")
            assert time.monotonic() - started < 20
            proxy.num_answers_to_lose = 0
            await env.close()


async def test_a_server_that_is_killed_and_stays_away_is_an_error():
    with server_process("fakes:TroubleEnv") as (url, process):
        async with HttpEnvSource(url, outage_s=1.0) as source:
            env, other = await source.open(), await source.open()
            await env.reset(TASK)
            await other.reset(TASK)
            started = time.monotonic()
            failures = await asyncio.gather(
                env.step("die"), other.step("sleep 5"), return_exceptions=True
            )
            for failure in failures:
                assert type(failure) is EnvAwayError
                assert "task trouble/4, round 0: step at" in str(failure)
            assert await asyncio.to_thread(process.wait, 30) == -9
            await asyncio.gather(env.close(), other.close())
            assert time.monotonic() - started < 30


async def test_a_gateway_whose_server_is_away_is_waited_for():
    statuses = ["502 Bad Gateway", "503 Service Unavailable", "503 Service Unavailable"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        status = statuses.pop() if statuses else "401 Unauthorized"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    gateway = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with HttpEnvSource(f"http://127.0.0.1:{gateway.sockets[0].getsockname()[1]}") as source:
        with pytest.raises(EnvError, match="HTTP 401"):
            await source.spec()
    assert statuses == []
    gateway.close()


async def test_no_server_is_an_error_in_words():
    async with HttpEnvSource("http://127.0.0.1:9", outage_s=0.5) as source:
        with pytest.raises(EnvError, match=r"/spec at http://127.0.0.1:9"):
            await source.spec()
    with pytest.raises(ValueError, match="starts with http"):
        HttpEnvSource("localhost:8000")


async def test_a_server_that_comes_up_late_is_waited_for():
    with server_thread("fakes:TroubleEnv") as url:
        port = int(url.rpartition(":")[2])
    # The port is free now; a proxy will listen on it while the client is already trying.
    with server_thread("fakes:TroubleEnv") as real:
        proxy = Proxy(int(real.rpartition(":")[2]))
        async with HttpEnvSource(url) as source:
            opening = asyncio.create_task(source.open())
            await asyncio.sleep(0.3)
            server = await asyncio.start_server(proxy.handle, "127.0.0.1", port)
            env = await opening
            assert await env.reset(TASK) == "Goal: 5. Count: 0."
            await env.close()
            server.close()


async def test_a_full_server_is_waited_for_and_then_busy(monkeypatch: pytest.MonkeyPatch):
    with server_thread("fakes:TroubleEnv", limits=ServerLimits(capacity=1)) as url:
        async with HttpEnvSource(url, timeout_s=60.0) as source:
            await see_it_waited_for(source, monkeypatch, told="all 1 places are taken")


@pytest.mark.parametrize("num_workers", [0, 1])
async def test_a_restarted_server_plays_the_episode_again(num_workers: int):
    server = FragileServer("fakes:TroubleEnv", num_workers=num_workers)
    server.start()
    try:
        async with HttpEnvSource(f"http://127.0.0.1:{server.port}") as source:
            begun, waiting, strange = [await source.open() for _ in range(3)]
            assert await begun.reset(TASK) == "Goal: 5. Count: 0."
            assert (await begun.step("add 1")).observation == "Count: 1."
            assert not (await begun.step("jump")).valid_action
            await strange.reset(TASK)
            await strange.step("pid")  # tells something that another process does not repeat
            await asyncio.to_thread(server.kill_and_restart)
            assert (await begun.step("add 2")).observation == "Count: 3."
            assert await waiting.reset(TASK) == "Goal: 5. Count: 0."
            assert await begun.observation() == "Count: 3."
            with pytest.raises(EnvGoneError, match=r"restarted, and round 0 was another"):
                await strange.step("add 1")
            await asyncio.gather(begun.close(), waiting.close(), strange.close())
            assert (await source.health()).num_episodes == 0
    finally:
        assert await asyncio.to_thread(server.stop) == []


async def test_a_reaped_episode_is_gone(skip_time: Callable[[float], None]):
    with server_thread("fakes:TroubleEnv", limits=ServerLimits(lease_s=300)) as url:
        async with HttpEnvSource(url) as source:
            env = await source.open()
            await env.reset(TASK)
            skip_time(400)
            async with asyncio.timeout(60):
                while (await source.health()).num_reaped == 0:
                    await asyncio.sleep(0.02)
            with pytest.raises(EnvGoneError, match=r"task trouble/4, round 0.*no call for 300 s"):
                await env.step("add 1")
            await env.close()


async def test_the_deadline_of_the_server_is_a_timeout_here(patient_server: None):
    limits = ServerLimits(call_timeout_s=0.2)
    with server_thread("fakes:TroubleEnv", limits=limits) as url:
        async with HttpEnvSource(url) as source, await source.open() as env:
            await env.reset(TASK)
            with pytest.raises(EnvTimeoutError, match=r"step passed its deadline of 0.2 s"):
                await env.step("hang")


async def test_a_huge_action_spoils_only_its_own_episode():
    limits = ServerLimits(max_body_bytes=20_000)
    with server_thread("fakes:TroubleEnv", limits=limits) as url:
        async with HttpEnvSource(url) as source:
            envs = await asyncio.gather(*(source.open() for _ in range(6)))
            await asyncio.gather(*(env.reset(TASK) for env in envs))
            actions = ["add 1", "add 2", "\x00" * 15_000, "x" * 9_000, "x" * 9_000, "add 3"]
            outcomes = await asyncio.gather(
                *(env.step(action) for env, action in zip(envs, actions, strict=True)),
                return_exceptions=True,
            )
            assert isinstance(outcomes[2], EnvError) and "HTTP 413" in str(outcomes[2])
            assert [getattr(outcomes[place], "observation", None) for place in (0, 1, 5)] == [
                "Count: 1.",
                "Count: 2.",
                "Count: 3.",
            ]
            assert not isinstance(outcomes[3], Exception) and not isinstance(outcomes[4], Exception)
            await asyncio.gather(*(env.close() for env in envs))


async def test_a_server_that_never_answers_holds_no_connection_after_the_deadline():
    num_open = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_open
        num_open += 1
        while await reader.read(65536):
            pass
        num_open -= 1
        writer.close()

    silent = await asyncio.start_server(swallow, "127.0.0.1", 0)
    with server_thread("fakes:TroubleEnv") as url:
        async with HttpEnvSource(url) as source:
            env, other = await source.open(), await source.open()
            await asyncio.gather(env.reset(TASK), other.reset(TASK))
            source._calls._timeout_s, source._calls.outages._max_s = 0.5, 0.5
            port = silent.sockets[0].getsockname()[1]
            source._connections.url = f"http://127.0.0.1:{port}"  # as if the server went silent
            outcomes = await asyncio.gather(
                env.step("add 1"), other.step("add 1"), return_exceptions=True
            )
            assert [type(outcome) for outcome in outcomes] == [EnvTimeoutError] * 2
            async with asyncio.timeout(60):
                while num_open:
                    await asyncio.sleep(0.02)
    silent.close()


async def test_a_wrong_token_is_an_error_and_the_right_one_works():
    with server_thread("fakes:TroubleEnv", token="sesame") as url:
        async with HttpEnvSource(url) as source:
            with pytest.raises(EnvError, match="HTTP 401: the bearer token"):
                await source.spec()
        async with HttpEnvSource(url, token="sesame") as source, await source.open() as env:
            await env.reset(TASK)


async def test_another_kind_of_server_is_told_apart():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with HttpEnvSource(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as source:
        with pytest.raises(EnvError, match="unexpected answer: not JSON"):
            await source.spec()
    server.close()


def test_a_source_used_from_a_second_event_loop_says_so():
    with server_thread("fakes:TroubleEnv") as url:
        source = HttpEnvSource(url)
        with asyncio.Runner() as runner:
            runner.run(source.spec())
            with pytest.raises(RuntimeError, match="belongs to another event loop"):
                asyncio.run(source.health())
            runner.run(source.aclose())
