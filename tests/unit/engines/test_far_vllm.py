"""vLLM servers on other machines: their ends, and weights on the way to them.

Here the other machines are processes that share no folder, and vLLM is a process that answers as it
does (`vllm_stand_in`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.errors import EngineError
from agentgym_rl.models.lora import add_lora
from agentgym_rl.types import SamplingParams
from engine_plays import endless_policy
from far_servers import running_servers, server_of
from vllm_stand_in import StandIn
from waiting import wait_for

TWO = SamplingParams(1.0, 2)


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn.install(tmp_path / "stand-in")


Kill = Callable[[psutil.Process], None]


def kill_server(server: psutil.Process) -> None:
    server.kill()


def kill_host(server: psutil.Process) -> None:
    """Kill all children of the host and then the host, as Ray does it."""
    host = server.parent()
    assert host is not None
    for process in (*host.children(), host):
        process.kill()


async def play(pool: EnginePool[VllmEngine], num: int) -> set[int]:
    """Play this many episodes at once; return the versions of their weights."""
    sessions = [pool.session(key) for key in range(num)]
    replies = await asyncio.gather(*(session.generate([5, 6, 7], TWO) for session in sessions))
    for session in sessions:
        session.close()
    return {reply.version for reply in replies}


@pytest.mark.slow
@pytest.mark.parametrize(("kill", "shares_files"), [(kill_server, False), (kill_host, True)])
async def test_a_lost_server_costs_its_own_episodes_and_another_gets_the_present_weights(
    stand_in: StandIn, kill: Kill, shares_files: bool
):
    with running_servers(endless_policy(), stand_in, shares_files=shares_files) as pool:
        sessions = [pool.session(key) for key in range(4)]
        await asyncio.gather(*(session.generate([5, 6, 7], TWO) for session in sessions))
        asked = [call["pid"] for call in stand_in.calls("/v1/completions")]
        servers = [server_of(pool, number) for number in range(2)]
        assert sorted(asked.count(server.pid) for server in servers) == [2, 2]
        await asyncio.to_thread(pool.publish, 1)
        assert {call["pid"] for call in stand_in.calls("/collective_rpc")} == set(asked)
        lost = [s for s in sessions if s._place is pool._places[0]]
        seen = [process for server in servers for process in (server, *server.children())]

        kill(servers[0])
        for session in lost:
            with pytest.raises(EngineError, match=r"engine-0"):
                await session.generate([8], TWO)
        kept = [await s.generate([8], TWO) for s in sessions if s not in lost]
        assert {reply.version for reply in kept} == {1} and len(kept) == 2
        await asyncio.to_thread(wait_for, lambda: pool._places[0].is_serving)
        assert await play(pool, 4) == {1}
        assert server_of(pool, 0).pid in [c["pid"] for c in stand_in.calls("/v1/completions")[-4:]]
        seen += [server_of(pool, 0), *server_of(pool, 0).children()]
        metrics = pool.take_metrics()
        assert metrics["cluster/restarts_engine"] == 1.0
        assert metrics["cluster/episodes_lost"] == 2.0
        assert 0 < metrics["cluster/time_lost_s"] < 60
        await asyncio.to_thread(pool.publish, 2)
        assert await play(pool, 4) == {2}
    _, alive = psutil.wait_procs(seen, 10)
    assert alive == [] and len(seen) == 6
    assert not list((stand_in.folder / "engines").glob("*-scratch/*"))


@pytest.mark.slow
async def test_an_adapter_reaches_servers_elsewhere(stand_in: StandIn):
    policy = endless_policy()
    add_lora(policy.model, rank=4, alpha=8, seed=0)
    with running_servers(policy, stand_in, num_servers=1) as pool:
        assert await play(pool, 1) == {0}
        await asyncio.to_thread(pool.publish, 1)
        assert await play(pool, 1) == {1}
    loaded = stand_in.calls("/v1/load_lora_adapter")
    assert len(loaded) == 2
    assert all("adapter_model.safetensors" in call["files"] for call in loaded)
    assert all("engine-0-scratch" in call["body"]["lora_path"] for call in loaded)


@pytest.mark.slow
async def test_a_server_that_is_lost_during_an_update_waits_for_the_next_weights(
    stand_in: StandIn,
):
    with running_servers(endless_policy(), stand_in) as pool:
        sessions = [pool.session(key) for key in range(2)]
        await asyncio.gather(*(session.generate([5, 6, 7], TWO) for session in sessions))
        await asyncio.to_thread(pool.begin_update)
        (lost,) = [s for s in sessions if s._place is pool._places[0]]
        server_of(pool, 0).kill()
        with pytest.raises(EngineError, match=r"engine-0"):
            await lost.generate([8], TWO)
        assert await play(pool, 3) == {0}, "on the other one"
        await asyncio.to_thread(wait_for, lambda: pool._places[0].member is not None)
        assert not pool._places[0].is_serving
        await asyncio.to_thread(pool.publish, 1)
        assert await play(pool, 4) == {1}
        assert pool.take_metrics()["cluster/engines"] == 2.0


@pytest.mark.slow
async def test_a_server_that_hangs_is_replaced(stand_in: StandIn):
    with running_servers(endless_policy(), stand_in, timeout_s=2.0) as pool:
        stand_in.behave(hang=["/v1/completions"])
        engine, hanging = pool._places[0].member, server_of(pool, 0)
        with pytest.raises(EngineError, match="no answer to POST /v1/completions within 2 s"):
            await pool.session(1).generate([5], TWO)
        stand_in.behave()
        await asyncio.to_thread(wait_for, lambda: pool._places[0].member not in (None, engine))
        assert await play(pool, 2) == {0}
        _, alive = psutil.wait_procs([hanging], 10)
        assert alive == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "told"),
    [("", "CUDA out of memory, or so"), ("/nowhere/python", "/nowhere/python is not a program")],
)
def test_a_server_that_does_not_start_says_why(stand_in: StandIn, python: str, told: str):
    stand_in.behave(start="exit")
    with (
        pytest.raises(EngineError, match=told),
        running_servers(endless_policy(), stand_in, python=python),
    ):
        pass


@pytest.mark.slow
async def test_a_pool_that_is_closed_ends_a_server_that_is_being_started(stand_in: StandIn):
    with running_servers(endless_policy(), stand_in) as pool:
        stand_in.behave(start="slow")
        server_of(pool, 0).kill()
        await asyncio.to_thread(wait_for, lambda: len(stand_in.starts()) == 3)
        starting = psutil.Process(stand_in.starts()[-1]["pid"])
    _, alive = psutil.wait_procs([starting], 10)
    assert alive == []
