"""Weights go to each release of vLLM as it takes them, and a failure leaves a known server.

`vllm_stand_in` refuses what the releases refuse. Nothing here is on a GPU: what would open a weight
in another process has the form of the real thing, and the stand-in opens nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import PreTrainedModel

from agentgym_rl.config import (
    FixedRoundsConfig,
    GRPOConfig,
    RolloutConfig,
    RunConfig,
    TrainingConfig,
    VllmEngineConfig,
)
from agentgym_rl.engines.vllm.client import AnswerError, ServerLostError, VllmClient
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.server import OwnServer
from agentgym_rl.engines.vllm.transfer import (
    Dialect,
    ExportedWeights,
    TransferRefusedError,
    WeightTransfer,
    dialect_of,
)
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import EngineError
from agentgym_rl.rollout.episode import TokenPolicy
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.make import rl_trainer
from agentgym_rl.training.run_parts import Listeners, RunEnv, RunParts
from agentgym_rl.types import SamplingParams
from engine_plays import endless_policy
from fake_engines import make_participants
from fakes import CountingEnv
from vllm_stand_in import StandIn, served_here

INIT, START = "/init_weight_transfer_engine", "/start_weight_update"
UPDATE, FINISH = "/update_weights", "/finish_weight_update"
SESSION = [START, UPDATE, FINISH]
CONFIGURED = ("--weight-transfer-config", '{"backend": "ipc"}')


def exported(model: PreTrainedModel) -> ExportedWeights:
    """Share nothing: `max` stands for torch's function, 8 numbers for its arguments."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    return ExportedWeights(weights, "GPU-1", [(max, tuple(range(8))) for _ in weights])


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setattr("agentgym_rl.engines.vllm.transfer.export_weights", exported)
    monkeypatch.setattr("agentgym_rl.engines.vllm.engine.can_transfer", lambda *_: True)
    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")  # a server has it from us
    return StandIn.install(tmp_path / "stand-in")


@pytest.fixture
def transfer() -> WeightTransfer:
    return WeightTransfer(endless_policy().model)


@contextlib.asynccontextmanager
async def asking(stand_in: StandIn, words: tuple[str, ...] = CONFIGURED):
    async with served_here(stand_in.folder, words) as socket:
        client = VllmClient(socket=socket)
        try:
            yield client
        finally:
            await client.close()


async def send(transfer: WeightTransfer, client: VllmClient, timeout_s: float = 10.0) -> int:
    return await transfer.send(client, timeout_s=timeout_s, quick_s=timeout_s)


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("0.20.0", Dialect(False, False)),
        ("0.20.2+cu130", Dialect(False, False)),
        ("0.21.0", Dialect(True, False)),
        ("0.22.0rc1.dev3+g12ab", Dialect(True, True)),
        ("0.33.0", Dialect(True, True)),
        ("v1.2", Dialect(True, True)),
        ("0.19.1", None),
        ("0.1.dev1+gdeadbeef", None),
        ("dev", None),
        ("9" * 5000 + ".1", None),
    ],
)
def test_the_version_says_how_weights_are_taken(version: str, dialect: Dialect | None):
    assert dialect_of(version) == dialect


@pytest.mark.parametrize(
    "version",
    ["0.20.0", "0.20.2", "0.21.0", "0.22.0", "0.23.0", "0.24.0", "0.25.1", "0.27.1", "0.33.0"],
)
async def test_every_release_takes_one_publication_after_another(
    stand_in: StandIn, transfer: WeightTransfer, version: str
):
    stand_in.behave(version=version)
    async with asking(stand_in) as client:
        sizes = {await send(transfer, client) for _ in range(2)}
    model = endless_policy().model
    assert sizes == {sum(weight.numel() * 4 for weight in model.parameters())}
    is_old = version.startswith("0.20")
    expected = ["/version", UPDATE, UPDATE] if is_old else ["/version", INIT, *SESSION, *SESSION]
    assert stand_in.paths() == expected
    body = stand_in.calls(UPDATE)[0]["body"]["update_info"]
    assert body["names"] == [name for name, _ in model.named_parameters()]
    assert set(body["dtype_names"]) == {"float32"}


@pytest.mark.parametrize(("version", "is_new"), [("0.20.0", False), ("0.33.0", True)])
async def test_a_build_without_a_release_is_known_by_its_routes(
    stand_in: StandIn, transfer: WeightTransfer, version: str, is_new: bool
):
    stand_in.behave(version=version, reports="0.1.dev1+gdeadbeef")
    async with asking(stand_in) as client:
        await send(transfer, client)
    rest = [INIT, *SESSION] if is_new else [UPDATE]
    assert stand_in.paths() == ["/version", "/openapi.json", *rest]


@pytest.mark.parametrize(
    "answers",
    [
        {"/version": [404, {"detail": "Not Found"}]},
        {"/version": [200, ["0.33.0"]], "/openapi.json": [200, "no object"]},
        {"/version": [200, {"version": 33}], "/openapi.json": [200, {"paths": []}]},
        {INIT: [500, {"error": {"message": "no such GPU", "code": 500}}]},
    ],
)
async def test_a_server_that_takes_no_weights_within_the_gpu_is_left_as_it_was(
    stand_in: StandIn, transfer: WeightTransfer, answers: dict[str, object]
):
    stand_in.behave(version="0.33.0", status=answers)
    async with asking(stand_in) as client:
        with pytest.raises(TransferRefusedError):
            await send(transfer, client)
    assert not set(SESSION) & set(stand_in.paths())


async def test_a_server_that_was_started_without_the_setting_is_left_as_it_was(
    stand_in: StandIn, transfer: WeightTransfer
):
    stand_in.behave(version="0.33.0")
    async with asking(stand_in, words=()) as client:
        with pytest.raises(TransferRefusedError, match=r"500: .*Weight transfer not configured"):
            await send(transfer, client)
    assert stand_in.paths() == ["/version", INIT]


@pytest.mark.parametrize(
    ("version", "wrong", "words"),
    [
        ("0.33.0", Dialect(False, False), "start_weight_update must be called before"),
        ("0.33.0", Dialect(True, False), "list assignment index out of range"),
        ("0.21.0", Dialect(True, True), "too many values to unpack"),
        ("0.20.0", Dialect(True, False), "404: .*Not Found"),
    ],
)
async def test_the_stand_in_refuses_the_way_of_another_release(
    stand_in: StandIn, transfer: WeightTransfer, version: str, wrong: Dialect, words: str
):
    stand_in.behave(version=version)
    transfer._dialect = wrong
    async with asking(stand_in) as client:
        with pytest.raises(AnswerError, match=words):
            await send(transfer, client)


@pytest.mark.parametrize(
    ("version", "after"),
    [("0.22.1", "already active"), ("0.23.0", ""), ("0.33.0", "")],
)
async def test_what_a_failed_update_leaves_behind_depends_on_the_release(
    stand_in: StandIn, version: str, after: str
):
    # Which is why a failed update is never finished: see WeightTransfer.send.
    stand_in.behave(version=version)
    async with asking(stand_in) as client:

        async def post(path: str, body: dict[str, object] | None = None) -> None:
            await client.call("POST", path, body, timeout_s=10)

        with pytest.raises(AnswerError, match=r"before finish_weight|without a matching start"):
            await post(FINISH)
        await post(START, {})
        handles = "gAMpLg=="  # an empty tuple
        info = {"names": ["a"], "dtype_names": [], "shapes": [], "ipc_handles_pickled": handles}
        with pytest.raises(AnswerError, match="same size as `names`: got 0 and 1"):
            await post(UPDATE, {"update_info": info})
        if after:
            with pytest.raises(AnswerError, match=after):
                await post(START, {})
            await post(FINISH)
        else:
            await post(START, {})


async def test_before_0_25_a_start_without_a_body_is_refused(stand_in: StandIn):
    stand_in.behave(version="0.24.0")
    async with asking(stand_in) as client:
        with pytest.raises(AnswerError, match="400: Invalid JSON format"):
            await client.call("POST", START, timeout_s=10)
        with pytest.raises(AnswerError, match="400: Missing 'init_info' in request body"):
            await client.call("POST", INIT, {}, timeout_s=10)


@pytest.mark.parametrize("path", ["/version", INIT, *SESSION])
async def test_every_call_has_a_deadline(stand_in: StandIn, transfer: WeightTransfer, path: str):
    stand_in.behave(version="0.33.0", hang=[path])
    async with asking(stand_in) as client:
        with pytest.raises(EngineError, match=f"no answer to (GET|POST) {path} within 0.1 s"):
            await send(transfer, client, timeout_s=0.1)


async def test_an_error_of_a_dying_server_is_its_death(stand_in: StandIn, transfer: WeightTransfer):
    dead = [500, {"error": {"message": "EngineCore encountered an issue", "code": 500}}]
    stand_in.behave(version="0.33.0", status={UPDATE: dead, "/health": dead})
    async with asking(stand_in) as client:
        with pytest.raises(ServerLostError, match="EngineCore encountered an issue"):
            await send(transfer, client)


# What the engine makes of it, with a server in a process of its own.


@contextlib.contextmanager
def running(stand_in: StandIn) -> Iterator[VllmEngine]:
    config = VllmEngineConfig(python=stand_in.python, timeout_s=10.0)
    engine = VllmEngine(endless_policy(), config, folder=stand_in.folder / "engine")
    try:
        yield engine
    finally:
        engine.close()


def kill_server(engine: VllmEngine) -> None:
    assert isinstance(engine.server, OwnServer)
    os.kill(engine.server.pid, signal.SIGKILL)


def one_reply(engine: VllmEngine) -> int:
    return asyncio.run(engine.session(3).generate([5, 6, 7], SamplingParams(1.0, 2))).version


def weight_calls(stand_in: StandIn) -> list[str]:
    known = {"start", INIT, *SESSION, "/collective_rpc"}
    return [path for path in stand_in.paths() if path in known]


@pytest.mark.slow
def test_a_new_server_is_asked_anew_and_may_be_of_another_release(stand_in: StandIn):
    stand_in.behave(version="0.33.0")
    with running(stand_in) as engine:
        engine.publish(1)
        engine.publish(2)
        taken = engine.take_metrics()
        assert taken["cluster/restarts_engine"] == 0
        size = sum(weight.numel() * 4 for weight in endless_policy().model.parameters())
        assert taken["rollout/published_bytes"] == 2 * size
        stand_in.behave(version="0.21.0")
        kill_server(engine)
        assert one_reply(engine) == 2
        engine.publish(3)
        assert one_reply(engine) == 3
        assert engine.take_metrics()["cluster/restarts_engine"] == 1
    two = [*SESSION, *SESSION]
    assert weight_calls(stand_in) == ["start", INIT, *two, "start", INIT, *SESSION]
    words = stand_in.starts()[0]["body"]["words"]
    assert json.loads(words[words.index("--weight-transfer-config") + 1]) == {"backend": "ipc"}


@pytest.mark.slow
def test_a_refused_transfer_goes_through_the_disk_without_a_restart(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
):
    refused = [500, {"error": {"message": "no such GPU", "code": 500}}]
    stand_in.behave(version="0.33.0", status={INIT: refused})
    with running(stand_in) as engine:
        engine.publish(1)
        engine.publish(2)
        taken = engine.take_metrics()
    assert weight_calls(stand_in) == ["start", INIT, "/collective_rpc", "/collective_rpc"]
    assert stand_in.paths().count("/resume") == 2
    assert taken["cluster/restarts_engine"] == 0 and taken["rollout/published_bytes"] > 0
    assert "through the disk from now on" in caplog.text and "no such GPU" in caplog.text


@pytest.mark.slow
def test_vllm_without_ray_starts_and_takes_weights_through_the_disk(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture
):
    stand_in.behave(version="0.26.0", start="without ray")
    with running(stand_in) as engine:
        engine.publish(1)
        assert one_reply(engine) == 1
        assert engine.take_metrics()["cluster/restarts_engine"] == 0
    first, second = (start["body"]["words"] for start in stand_in.starts())
    assert "--weight-transfer-config" in first and "--weight-transfer-config" not in second
    assert "-m pip install ray" in caplog.text and weight_calls(stand_in)[-1] == "/collective_rpc"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(START, marks=pytest.mark.long),
        UPDATE,
        pytest.param(FINISH, marks=pytest.mark.long),
    ],
)
def test_a_transfer_that_fails_midway_starts_one_server_with_the_present_weights(
    stand_in: StandIn, caplog: pytest.LogCaptureFixture, path: str
):
    failed = [500, {"error": {"message": "CUDA out of memory", "code": 500}}]
    stand_in.behave(version="0.33.0", status={path: failed})
    with running(stand_in) as engine:
        engine.publish(1)
        assert one_reply(engine) == 1
        engine.publish(2)
        assert engine.take_metrics()["cluster/restarts_engine"] == 1
    until = SESSION[: SESSION.index(path) + 1]
    assert weight_calls(stand_in) == ["start", INIT, *until, "start", "/collective_rpc"]
    assert "could not be updated in place" in caplog.text and "CUDA out of memory" in caplog.text


@pytest.mark.slow
def test_a_transfer_that_hangs_midway_starts_another_server(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
):
    stand_in.behave(version="0.33.0", hang=[UPDATE])
    with running(stand_in) as engine, monkeypatch.context() as hasty:
        hasty.setattr("agentgym_rl.engines.vllm.engine.START_TIMEOUT_S", 0.2)
        engine.publish(1)
        assert one_reply(engine) == 1
        assert engine.take_metrics()["cluster/restarts_engine"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("deaths", [1, pytest.param(2, marks=pytest.mark.long)])
def test_only_a_second_death_in_a_row_ends_transfers(stand_in: StandIn, deaths: int):
    with running(stand_in) as engine:
        for version in range(deaths):
            stand_in.behave(die_at=UPDATE)
            engine.publish(version)
            assert one_reply(engine) == version
        engine.publish(9)
        assert one_reply(engine) == 9
        assert engine.take_metrics()["cluster/restarts_engine"] == deaths
    last = UPDATE if deaths == 1 else "/collective_rpc"
    assert weight_calls(stand_in) == ["start", *[UPDATE, "start"] * deaths, last]


@pytest.mark.slow
async def test_a_training_run_publishes_after_each_step_to_one_server(
    stand_in: StandIn, tmp_path: Path
):
    stand_in.behave(version="0.33.0")
    config = RunConfig(
        algorithm=GRPOConfig(group_size=2),
        rounds=FixedRoundsConfig(rounds=1),
        training=TrainingConfig(steps=2, tasks_per_step=1),
        rollout=RolloutConfig(max_tokens_per_round=4, max_tokens=64, drop_without_spread=False),
    )
    with running(stand_in) as engine:
        policy, lines = engine._policy, list[Metrics]()
        made = await make_participants(LocalEnvSource(CountingEnv), engine)
        participants = replace(made, policy=TokenPolicy(engine, policy.renderer))
        tasks = CountingEnv.tasks("train")
        env = RunEnv(CountingEnv.spec.name, config, participants, tasks)
        listeners = Listeners(on_step=lines.append)
        parts = RunParts(config, policy, RunFolder(tmp_path / "run"), [env], listeners=listeners)
        await rl_trainer(parts).train()
    size = sum(weight.numel() * 4 for weight in policy.model.parameters())
    assert [line["rollout/published_bytes"] for line in lines] == [size, size]
    assert [line["cluster/restarts_engine"] for line in lines] == [0, 0]
    assert all(line["time/publish_s"] > 0 for line in lines)
    assert weight_calls(stand_in) == ["start", INIT, *SESSION, *SESSION]
