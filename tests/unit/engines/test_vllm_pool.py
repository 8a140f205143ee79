"""Several vLLM servers as one engine, against processes that answer as vLLM does."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym_rl.config import parse_config
from agentgym_rl.engines.clock import running_clock
from agentgym_rl.engines.pool.local import local_pool
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.vllm import engine as vllm_engine
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.server import OwnServer, ServerOptions
from agentgym_rl.errors import EngineError
from agentgym_rl.types import SamplingParams
from engine_plays import endless_policy
from vllm_stand_in import StandIn

pytestmark = pytest.mark.slow  # servers are processes

TWO = SamplingParams(1.0, 2)


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn.install(tmp_path / "stand-in")


@pytest.fixture
def pool(stand_in: StandIn) -> Iterator[EnginePool[VllmEngine]]:
    settings = ("cluster.type=local", "cluster.engines=2", "model.device=cpu", "engine.type=vllm")
    python = f"engine.python={stand_in.python}"
    config = parse_config({}, (*settings, python, "engine.timeout_s=10"), source="test")
    pool = local_pool(endless_policy(), config, folder=stand_in.folder / "engines")
    assert isinstance(pool, EnginePool)
    try:
        yield pool
    finally:
        pool.close()


async def test_servers_share_sessions_and_what_is_written_and_come_back(
    stand_in: StandIn, pool: EnginePool[VllmEngine]
):
    sessions = [pool.session(key) for key in range(6)]
    await asyncio.gather(*(session.generate([5, 6, 7], TWO) for session in sessions))
    asked = [call["pid"] for call in stand_in.calls("/v1/completions")]
    assert sorted(asked.count(pid) for pid in set(asked)) == [3, 3]
    await asyncio.to_thread(pool.publish, 1)
    rpc = stand_in.calls("/collective_rpc")
    assert {call["pid"] for call in rpc} == set(asked)
    folders = {call["body"]["kwargs"]["weights_path"] for call in rpc}
    assert len(folders) == 1, "the weights are written once"
    metrics = pool.take_metrics()
    (file,) = Path(folders.pop()).glob("*.safetensors")
    assert metrics["rollout/published_bytes"] == file.stat().st_size
    assert metrics["cluster/engines"] == 2.0
    server = pool._places[0].member.server
    assert isinstance(server, OwnServer)
    os.kill(server.pid, signal.SIGKILL)
    replies = await asyncio.gather(*(session.generate([8], TWO) for session in sessions))
    assert {reply.version for reply in replies} == {1}
    assert pool.take_metrics()["cluster/restarts_engine"] == 1.0
    pool.close()
    assert not list(Path(file.parent.parent).glob("model-*"))


async def test_a_server_that_is_lost_during_an_update_comes_back_with_whole_weights(
    stand_in: StandIn, pool: EnginePool[VllmEngine], monkeypatch: pytest.MonkeyPatch
):
    sessions = [pool.session(key) for key in range(2)]
    await asyncio.gather(*(session.generate([5, 6, 7], TWO) for session in sessions))
    await asyncio.to_thread(pool.begin_update)
    lost = pool._places[0].member
    assert lost is not None and isinstance(lost.server, OwnServer)
    os.kill(lost.server.pid, signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr(vllm_engine, "START_TIMEOUT_S", 0.1)
        with pytest.raises(EngineError, match=r"no update ended within 0\.1 s"):
            await asyncio.wait_for(lost.session(9).generate([5], TWO), 60)
    async with running_clock(60) as clock:
        waiting = asyncio.create_task(sessions[0].generate([8], TWO))
        while lost.is_ready or clock._deadline.when() is not None:  # it is not the episode's time
            await asyncio.sleep(0.01)
        assert (await sessions[1].generate([8], TWO)).version == 0, "the other one continues"
        assert not waiting.done()
        await asyncio.to_thread(pool.publish, 1)
        assert (await waiting).version == 1
        assert clock._deadline.when() is not None
    replies = await asyncio.gather(*(session.generate([9], TWO) for session in sessions))
    assert [reply.version for reply in replies] == [1, 1]
    assert pool.take_metrics()["cluster/restarts_engine"] == 1.0


def test_a_server_sees_its_own_gpus():
    options = ServerOptions(dtype="bfloat16", is_cuda=True, lora_rank=0, can_transfer=False)
    assert "CUDA_VISIBLE_DEVICES" not in options.environment()
    own = options.model_copy(update={"gpus": "2,3"})
    assert own.environment()["CUDA_VISIBLE_DEVICES"] == "2,3"
