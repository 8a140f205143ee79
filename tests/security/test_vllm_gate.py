"""The gate of a vLLM server: strangers reach neither the server nor a file of its machine."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from agentgym_rl.engines.vllm.client import AnswerError, VllmClient
from agentgym_rl.engines.vllm.gate import FILES, Gate
from far_servers import HERE
from vllm_stand_in import StandIn, served_here


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn.install(tmp_path / "stand-in")


@pytest_asyncio.fixture
async def gate(stand_in: StandIn, tmp_path: Path) -> AsyncIterator[tuple[Gate, str]]:
    (tmp_path / "there").mkdir()
    async with served_here(stand_in.folder) as socket:
        gate = Gate(socket, folder=tmp_path / "there")
        try:
            yield gate, await gate.open(HERE)
        finally:
            await gate.close()


@pytest.mark.parametrize("token", ["", "wrong", "\xe9"])
async def test_a_gate_passes_nothing_without_its_token(
    gate: tuple[Gate, str], stand_in: StandIn, tmp_path: Path, token: str
):
    client = VllmClient(gate[1], token=token)
    for path in ("/health", "/v1/models", "/collective_rpc"):
        with pytest.raises(AnswerError, match="the bearer token is missing or wrong"):
            await client.call("POST", path, {"method": "x"}, timeout_s=5)
    with pytest.raises(AnswerError, match="token"):
        await client.put(f"{FILES}model-1/x", io.BytesIO(b"x"), timeout_s=5)
    await client.close()
    assert stand_in.calls() == [] and list((tmp_path / "there").iterdir()) == []


async def test_a_gate_passes_requests_and_errors_as_they_are(gate: tuple[Gate, str]):
    client = VllmClient(gate[1], token=gate[0].token)
    assert await client.is_healthy()
    assert b"max_model_len" in await client.call("GET", "/v1/models", timeout_s=5)
    with pytest.raises(AnswerError, match=r"The model `x` does not exist\.") as refused:
        await client.call("POST", "/v1/completions", {"model": "x"}, timeout_s=5)
    assert refused.value.status == 404
    await client.close()


async def test_a_gate_says_that_its_server_is_gone(tmp_path: Path):
    gate = Gate(tmp_path / "no socket", folder=tmp_path)
    client = VllmClient(await gate.open(HERE), token=gate.token)
    assert not await client.is_healthy()
    with pytest.raises(AnswerError, match="502"):
        await client.call("POST", "/sleep?level=1", timeout_s=5)
    await client.close()
    await gate.close()


async def test_a_gate_keeps_the_newest_files_of_each_kind(gate: tuple[Gate, str], tmp_path: Path):
    client, there = VllmClient(gate[1], token=gate[0].token), tmp_path / "there"
    big = bytes(range(256)) * 10_000
    for name in ("model-1/a", "model-1/b", "adapter-1/a", "model-2/x/a"):
        told = await client.put(FILES + name, io.BytesIO(big), timeout_s=5)
        assert Path(told.decode()) == there / name.partition("/")[0]
    assert sorted(path.name for path in there.iterdir()) == ["adapter-1", "model-2"]
    assert (there / "model-2" / "x" / "a").read_bytes() == big
    for name in ("model-3%2F..%2F..%2Fx", "%2Fetc/x", "x", ""):
        with pytest.raises(AnswerError, match="400"):
            await client.put(FILES + name, io.BytesIO(b"x"), timeout_s=5)
    await client.close()
    assert sorted(path.name for path in tmp_path.rglob("x")) == ["x"]
