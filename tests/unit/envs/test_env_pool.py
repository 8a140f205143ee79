"""Several environment servers as one source: real servers, some of which die, fill up or drain."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import psutil
import pytest

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.access import places
from agentgym_rl.envs.access.pool import EnvPool
from agentgym_rl.envs.access.sameness import spec_difference, tasks_difference
from agentgym_rl.envs.access.server_process import ServerOrder, ServerProcess, start_here
from agentgym_rl.envs.access.sources import make_source
from agentgym_rl.envs.client import EnvClient
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError, EnvAwayError, EnvBusyError, EnvError
from agentgym_rl.types import StepResult, Task
from chaos import FragileServer
from env_servers import server_process, server_thread
from fakes import CountingEnv

pytestmark = pytest.mark.slow

ENV = "fakes:CountingEnv"
TASK = Task("counting", "train", 8)
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what nobody waits for in a run come soon."""
    monkeypatch.setattr(places, "_CHECK_EVERY_S", 0.2)


@pytest.fixture
def servers() -> Iterator[list[FragileServer]]:
    """Two servers."""
    with ExitStack() as stack:
        found = [FragileServer(ENV, num_workers=0) for _ in range(2)]
        for server in found:
            server.start()
            stack.callback(server.stop)
        yield found


@asynccontextmanager
async def pool_of(*urls: str, env: str = ENV, timeout_s: float = 30.0) -> AsyncIterator[EnvPool]:
    source = make_source(EnvConfig(name=env, url=urls, timeout_s=timeout_s))
    assert isinstance(source, EnvPool)
    async with source:
        yield source


def url_of(server: FragileServer) -> str:
    return f"http://127.0.0.1:{server.port}"


async def begun(source: EnvPool, count: int) -> list[EnvClient]:
    """Return episodes that have had one round; by turns on one and on the other of two servers."""
    clients = [await source.open() for _ in range(count)]
    for client in clients:
        await client.reset(TASK)
        assert (await client.step("add 1")).observation == "Count: 1."
    return clients


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.02)


async def outcome(client: EnvClient) -> StepResult | EnvError:
    try:
        return await client.step("add 1")
    except EnvError as error:
        return error


async def test_a_dead_server_loses_only_its_own_episodes_and_is_used_again(
    servers: list[FragileServer],
):
    async with pool_of(*map(url_of, servers)) as source:
        clients = await begun(source, 8)
        assert source.take_metrics() == {
            "cluster/env_servers": 2,
            "cluster/episodes_lost": 0,
            "cluster/restarts_env": 0,
            "cluster/time_lost_s": 0,
            "cluster/episodes_server_0": 4,
            "cluster/episodes_server_1": 4,
        }
        servers[1].kill()
        started = asyncio.get_running_loop().time()
        results = await asyncio.gather(*map(outcome, clients))
        assert [type(result) for result in results] == [StepResult, EnvAwayError] * 4
        again = await begun(source, 4)
        # Not the two minutes for which a server that is alone is waited for.
        assert asyncio.get_running_loop().time() - started < 20
        metrics = source.take_metrics()
        assert (metrics["cluster/env_servers"], metrics["cluster/episodes_lost"]) == (1, 4)
        assert metrics["cluster/episodes_server_0"] == 4
        await asyncio.to_thread(servers[1].start)
        await until(lambda: source.take_metrics()["cluster/env_servers"] == 2)
        clients += again
        for client in clients[::2]:  # what is open on the other server
            await client.close()
        for client in await begun(source, 6):
            await client.close()
        await asyncio.gather(*(client.close() for client in clients))
        assert source.take_metrics()["cluster/restarts_env"] == 0  # others keep it alive
    with pytest.raises(EnvError, match="enter the source first"):
        await source.open()


@pytest.mark.long
async def test_with_all_servers_dead_new_episodes_wait(servers: list[FragileServer]):
    async with pool_of(*map(url_of, servers)) as source:
        for server in servers:
            server.kill()
        opening = asyncio.create_task(source.open())
        await until(lambda: source.take_metrics()["cluster/env_servers"] == 0)
        assert not opening.done()
        await asyncio.to_thread(servers[0].start)
        async with asyncio.timeout(DEADLINE_S):
            client = await opening
        assert await client.reset(TASK) == "Goal: 9. Count: 0."
        await client.close()


@pytest.mark.long
async def test_servers_that_stay_away_are_an_error_that_names_them(
    servers: list[FragileServer], monkeypatch: pytest.MonkeyPatch
):
    async with pool_of(*map(url_of, servers)) as source:
        monkeypatch.setattr(source, "_outage_s", 0.5)
        for server in servers:
            server.kill()
        await until(lambda: not any(place.is_serving for place in source._places))
        with pytest.raises(EnvAwayError, match=f"{servers[0].port}.*{servers[1].port}"):
            await source.open()


@pytest.mark.long
async def test_full_and_draining_servers_get_no_new_episodes():
    with (
        server_process(ENV, capacity=2) as (url, process),
        server_process(ENV, capacity=1) as (other, _),
    ):
        async with pool_of(url, other, timeout_s=2.0) as source:
            clients = await begun(source, 3)
            with pytest.raises(EnvBusyError):
                await source.open()
            await clients.pop(1).close()
            assert len(await begun(source, 1)) == 1
            await clients.pop(0).close()
            process.send_signal(signal.SIGTERM)  # it drains while an episode is open
            with pytest.raises(EnvBusyError):
                await source.open()
            assert isinstance(await outcome(clients[0]), StepResult)


async def test_servers_that_serve_something_else_are_refused():
    refused = pytest.raises(ConfigError, match=r"name is '\w+', not '\w+'")
    with server_thread(ENV) as url, server_thread("fakes:TroubleEnv") as other, refused:
        async with pool_of(url, other):
            raise AssertionError("it started")


def test_what_differs_between_servers_is_named():
    spec = CountingEnv.spec
    assert spec_difference(spec, replace(spec)) == ""
    other = replace(spec, splits=("train",), reward_range=(0.0, 2.0))
    told = spec_difference(spec, other)
    assert "splits is ('train',), not ('train', 'test')" in told and "reward_range" in told
    tasks = CountingEnv.tasks("train")
    assert tasks_difference("train", tasks, list(tasks)) == ""
    shorter = tasks_difference("train", tasks, tasks[:-1])
    assert shorter == f"split 'train' has {len(tasks) - 1} tasks, not {len(tasks)}"
    renamed = [*tasks[:-1], replace(tasks[-1], category="x", seed=7)]
    told = tasks_difference("train", tasks, renamed)
    assert told == f"task {tasks[-1].id} differs in category, seed"


@pytest.mark.long
async def test_a_server_that_comes_later_is_used_and_a_wrong_one_is_not(
    servers: list[FragileServer], caplog: pytest.LogCaptureFixture
):
    servers[1].kill()
    async with pool_of(*map(url_of, servers)) as source:
        assert len(await source.tasks("train")) > 1
        with server_process("fakes:TroubleEnv", port=servers[1].port):
            await until(lambda: "does not serve the same as" in caplog.text)
            assert source.take_metrics()["cluster/env_servers"] == 1
        await asyncio.to_thread(servers[1].start)
        await until(lambda: source.take_metrics()["cluster/env_servers"] == 2)


async def test_a_run_starts_replaces_and_stops_its_servers():
    started: list[ServerProcess] = []

    async def start(order: ServerOrder) -> ServerProcess:
        started.append(await start_here(order))
        return started[-1]

    source = make_source(EnvConfig(name=ENV), num_servers=2, start=start)
    assert isinstance(source, EnvPool)
    async with source:
        clients = await begun(source, 4)
        family = [psutil.Process(server.pid) for server in started]
        family += [child for one in family for child in one.children(recursive=True)]
        assert len(family) == 4  # each with a worker
        family[0].kill()
        results = await asyncio.gather(*map(outcome, clients))
        assert sorted(type(result).__name__ for result in results) == [
            *["EnvAwayError"] * 2,
            *["StepResult"] * 2,
        ]
        await until(lambda: all(place.is_serving for place in source._places))
        metrics = source.take_metrics()
        assert 0 < metrics.pop("cluster/time_lost_s") < 60
        assert metrics == {
            "cluster/env_servers": 2,
            "cluster/episodes_lost": 2,
            "cluster/restarts_env": 1,
            "cluster/episodes_server_0": 2,
            "cluster/episodes_server_1": 2,
        }
        await asyncio.gather(*(client.close() for client in clients))
        assert len(started) == 3
        family.append(psutil.Process(started[2].pid))
    _, alive = await asyncio.to_thread(psutil.wait_procs, family, 30)
    assert alive == []


@pytest.mark.long
async def test_a_hung_server_of_the_run_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(places, "_CHECK_EVERY_S", 0.1)
    monkeypatch.setattr(places, "_CHECK_TIMEOUT_S", 0.3)
    monkeypatch.setattr(places, "REST_S", 0.1)
    pids: list[int] = []

    async def start(order: ServerOrder) -> ServerProcess:
        server = await start_here(order)
        pids.append(server.pid)
        return server

    async with make_source(EnvConfig(name=ENV), num_servers=1, start=start) as source:
        psutil.Process(pids[0]).suspend()
        async with asyncio.timeout(DEADLINE_S):
            client = await source.open()
        assert await client.reset(TASK) == "Goal: 9. Count: 0."
        await client.close()
    assert len(pids) >= 2 and not any(map(psutil.pid_exists, pids))


@pytest.mark.long
async def test_what_cannot_be_started_says_why():
    for env, options, told in (
        ("no_such_env", {}, "unknown environment 'no_such_env'"),
        (ENV, {"speed": 3}, "no option 'speed'"),
    ):
        with pytest.raises(ValueError, match=told):
            async with make_source(EnvConfig(name=env, options=options), num_servers=2):
                raise AssertionError("it started")


class MendedEnv(CountingEnv):
    """Cannot begin until it is mended."""

    is_mended: ClassVar[bool] = False

    def reset(self, task: Task) -> str:
        if not MendedEnv.is_mended:
            raise OSError("no space left on device")
        return super().reset(task)


class ClosedBadly(LocalEnvSource):
    async def aclose(self) -> None:
        await super().aclose()
        raise OSError("the connection was lost")


class Stopped:
    """A server of the run, as far as its end goes."""

    url = token = ""
    is_stopped = False

    async def ended(self) -> str:
        await asyncio.Event().wait()
        raise AssertionError("it is cancelled")

    def kill(self) -> None:
        pass

    async def stop(self) -> None:
        self.is_stopped = True


class PlaceHere(places.Place):
    """Serves in this process."""

    starts_servers = False

    def __init__(self, source: LocalEnvSource, running: Stopped | None = None) -> None:
        super().__init__(type(source).__name__)
        self._source, self._running = source, running

    async def find(self, has_others: places.HasOthers) -> places.PooledServer:
        source = await self._source.__aenter__()
        return places.PooledServer(self.name, source, running=self._running, is_checked=False)


async def fails(source: EnvPool) -> bool:
    """Begin and close an episode; return whether it failed."""
    async with await source.open() as client:
        try:
            await client.reset(TASK)
        except EnvError:
            return True
    return False


async def test_a_server_on_which_episodes_do_not_begin_is_avoided_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(MendedEnv, "is_mended", False)
    monkeypatch.setattr(places, "REST_S", 30.0)
    here = [PlaceHere(LocalEnvSource(name)) for name in (f"{__name__}:MendedEnv", ENV)]
    async with EnvPool(here, timeout_s=5.0) as source:
        assert sum([await fails(source) for _ in range(10)]) == 1
        assert here[0].server is not None
        monkeypatch.setattr(places, "REST_S", 0.0)
        here[0].server._avoided_until = 0.0  # the pause is over
        assert await fails(source)
        monkeypatch.setattr(MendedEnv, "is_mended", True)
        clients = await begun(source, 4)
        assert [place.server.num_open for place in here if place.server] == [2, 2]
        await asyncio.gather(*(client.close() for client in clients))


async def test_all_that_episodes_begin_on_is_closed_and_what_fails_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def lost(server: places.PooledServer) -> None:
        raise KeyError("a bug of ours")

    running = [Stopped(), Stopped()]
    async with EnvPool([PlaceHere(ClosedBadly(ENV), each) for each in running], timeout_s=5.0):
        pass
    assert all(each.is_stopped for each in running)
    assert "the connection was lost" in caplog.text
    monkeypatch.setattr(places.PooledServer, "until_away", lost)
    async with EnvPool([PlaceHere(LocalEnvSource(ENV))], timeout_s=5.0):
        await until(lambda: "a bug of ours" in caplog.text)


def test_a_list_of_one_is_a_single_server():
    source = make_source(EnvConfig(url=["http://127.0.0.1:1"]))
    assert type(source) is type(make_source(EnvConfig(url="http://127.0.0.1:1")))
    assert not isinstance(source, EnvPool)
