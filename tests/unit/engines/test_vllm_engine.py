"""The vLLM engine against a real process that answers as vLLM does (`vllm_stand_in`)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from agentgym_rl.config import VllmEngineConfig
from agentgym_rl.engines.create import create_engine
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.process import ServerProcess
from agentgym_rl.engines.vllm.server import OwnServer
from agentgym_rl.errors import ConfigError, EngineError
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.types import Completion, SamplingParams
from engine_plays import endless_policy
from vllm_stand_in import StandIn
from waiting import wait_for

pytestmark = pytest.mark.slow  # every test starts a process or two

COMPLETIONS = "/v1/completions"
TWO = SamplingParams(1.0, 2)


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn.install(tmp_path / "stand-in")


@contextlib.contextmanager
def running(
    stand_in: StandIn, policy: Policy | None = None, **config: object
) -> Iterator[VllmEngine]:
    settings = {"python": stand_in.python, "timeout_s": 10.0} | config
    engine = VllmEngine(
        policy or endless_policy(),
        VllmEngineConfig.model_validate(settings),
        folder=stand_in.folder / "engine",
    )
    try:
        yield engine
    finally:
        engine.close()


def lora_policy() -> Policy:
    policy = endless_policy()
    add_lora(policy.model, rank=4, alpha=8, seed=0)
    return policy


def server_pid(engine: VllmEngine) -> int:
    assert isinstance(engine.server, OwnServer)
    return engine.server.pid


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def one_reply(engine: VllmEngine, key: int = 3) -> Completion:
    return await engine.session(key).generate([5, 6, 7], TWO)


async def test_the_whole_context_is_sent_in_exact_tokens(stand_in: StandIn):
    with running(stand_in) as engine:
        session = engine.session(3)
        first = await session.generate([5, 6, 7], TWO)
        second = await session.generate([9], TWO)
        same = await one_reply(engine)
        other = await one_reply(engine, key=4)
    assert first.token_ids == (118, 119)
    assert first.logprobs == (-1.5, -1.5)
    bodies = [call["body"] for call in stand_in.calls(COMPLETIONS)]
    assert bodies[0]["prompt"] == [5, 6, 7]
    assert bodies[1]["prompt"] == [5, 6, 7, 118, 119, 9]
    assert second.token_ids[0] == sum(bodies[1]["prompt"]) % 100 + 100
    assert [body["seed"] for body in bodies] == [None] * 4
    assert same == first and other.token_ids == first.token_ids


async def test_with_seeds_a_key_and_the_place_in_the_context_decide_the_noise(stand_in: StandIn):
    with running(stand_in, seeds=True) as engine:
        session = engine.session(3)
        await session.generate([5, 6, 7], TWO)
        await session.generate([9], TWO)
        await one_reply(engine)
        await one_reply(engine, key=4)
    seeds = [call["body"]["seed"] for call in stand_in.calls(COMPLETIONS)]
    assert seeds[0] == seeds[2] and len(set(seeds)) == 3


def test_the_command_line_says_what_the_recipe_says(stand_in: StandIn):
    with running(stand_in, tensor_parallel_size=2, args=("--max-model-len", "512")):
        pass
    (start,) = stand_in.starts()
    words = start["body"]["words"]
    pairs = dict(itertools.pairwise(words))
    assert words[:2] == ["-m", "vllm.entrypoints.openai.api_server"]
    assert pairs["--tensor-parallel-size"] == "2"
    assert pairs["--logprobs-mode"] == "processed_logprobs"
    assert pairs["--dtype"] == "float32"
    assert pairs["--max-model-len"] == "512"  # the last one counts
    assert "--enable-prefix-caching" in words and "--enable-lora" not in words
    assert "model.safetensors" in start["files"] and "tokenizer.json" in start["files"]


async def test_a_server_that_is_killed_is_started_anew_with_the_present_weights(stand_in: StandIn):
    with running(stand_in) as engine:
        engine.publish(4)
        first, child = server_pid(engine), stand_in.starts()[0]["body"]["child"]
        before = await one_reply(engine)
        os.kill(first, signal.SIGKILL)
        replies = await asyncio.gather(*(one_reply(engine) for _ in range(8)))
        assert replies == [before] * 8
        assert before.version == 4
        assert len(stand_in.starts()) == 2
        assert server_pid(engine) != first
        assert not is_alive(child)  # it would hold the GPU
        last = server_pid(engine)
    assert not is_alive(last)
    assert sorted(path.name for path in (stand_in.folder / "engine").iterdir()) == ["server.log"]


@pytest.mark.long
async def test_a_start_goes_on_when_who_waited_for_it_gives_up(stand_in: StandIn):
    with running(stand_in) as engine:
        os.kill(server_pid(engine), signal.SIGKILL)
        session = engine.session(0)
        task = asyncio.create_task(session.generate([5], TWO))
        while len(stand_in.starts()) < 2:
            await asyncio.sleep(0.001)  # before the reply comes
        session.close()
        with pytest.raises(EngineError, match="closed while its reply"):
            await task
        assert (await one_reply(engine)).token_ids == (118, 119)
    assert len(stand_in.starts()) == 2


async def test_a_server_that_dies_while_it_answers_is_asked_again(stand_in: StandIn):
    with running(stand_in) as engine:
        stand_in.behave(die_at=COMPLETIONS)
        assert (await one_reply(engine)).token_ids == (118, 119)
    assert len(stand_in.starts()) == 2


def test_a_server_that_does_not_start_says_why(stand_in: StandIn):
    stand_in.behave(start="exit")
    with pytest.raises(EngineError, match=r"ended with code 1.*(?s:.*)CUDA out of memory"):
        running(stand_in).__enter__()


@pytest.mark.parametrize("num_disturbed", [3, 4])
def test_a_start_that_another_program_disturbs_is_repeated(stand_in: StandIn, num_disturbed: int):
    stand_in.behave(disturbed=num_disturbed)
    if num_disturbed == 3:
        with running(stand_in):
            assert len(stand_in.starts()) == 4
    else:
        with pytest.raises(EngineError, match="Error in memory profiling"):
            running(stand_in).__enter__()
        assert len(stand_in.starts()) == 4


def test_a_warning_is_not_taken_for_the_cause(stand_in: StandIn):
    stand_in.behave(start="without ray")
    with pytest.raises(EngineError, match=r"ends:\n.*No module named 'ray'"):
        running(stand_in, args=("--weight-transfer-config", "{}")).__enter__()


def test_a_start_has_a_deadline(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch):
    stand_in.behave(start="slow")
    # The deadline passes as soon as the process is there.
    clock = SimpleNamespace(monotonic=lambda: 1801.0 if stand_in.starts() else 0.0)
    monkeypatch.setattr("agentgym_rl.engines.vllm.server.time", clock)
    with pytest.raises(EngineError, match="not ready within 1800 s"):
        running(stand_in).__enter__()
    (start,) = stand_in.starts()
    assert not is_alive(start["pid"]) and not is_alive(start["body"]["child"])


async def test_a_reply_has_a_deadline(stand_in: StandIn):
    with running(stand_in, timeout_s=0.5) as engine:
        stand_in.behave(hang=[COMPLETIONS])
        with pytest.raises(EngineError, match=r"no answer to POST /v1/completions within 0.5 s"):
            await one_reply(engine)


@pytest.mark.parametrize("status", [400, 500])
async def test_an_error_of_the_server_is_told_and_not_repeated(stand_in: StandIn, status: int):
    with running(stand_in) as engine:
        text = {"error": {"message": "Token id 800 is out of vocabulary", "code": status}}
        stand_in.behave(status={COMPLETIONS: [status, text]})
        with pytest.raises(EngineError, match=f"{status}: Token id 800 is out of vocabulary"):
            await one_reply(engine)
        stand_in.behave()
        assert (await one_reply(engine)).token_ids == (118, 119)
    assert len(stand_in.calls(COMPLETIONS)) == 2 and len(stand_in.starts()) == 1


async def test_a_context_without_room_is_refused_before_it_is_sent(stand_in: StandIn):
    with running(stand_in) as engine:
        with pytest.raises(EngineError, match="a context of 2048 tokens leaves no room"):
            await engine.session(0).generate([5] * 2048, TWO)
        with pytest.raises(
            EngineError, match="a context of 2047 tokens and a reply of 2 do not fit"
        ):
            await engine.session(0).generate([5] * 2047, TWO)
    assert stand_in.calls(COMPLETIONS) == []


async def test_closing_a_session_ends_its_reply(stand_in: StandIn):
    with running(stand_in) as engine:
        stand_in.behave(hang=[COMPLETIONS])
        session = engine.session(0)
        task = asyncio.create_task(session.generate([5], TWO))
        await asyncio.sleep(0.2)
        with pytest.raises(EngineError, match="published while replies"):
            engine.publish(1)
        session.close()
        with pytest.raises(EngineError, match="closed while its reply"):
            await task
        with pytest.raises(EngineError, match="closed session"):
            await session.generate([5], TWO)
        engine.publish(1)


async def test_weights_go_through_the_disk_while_nothing_is_computed(stand_in: StandIn):
    with running(stand_in) as engine:
        assert engine.take_metrics() == {
            "rollout/published_bytes": 0,
            "cluster/restarts_engine": 0,
            "cluster/time_lost_s": 0,
        }
        engine.publish(1)
        engine.publish(2)
        assert engine.take_metrics()["rollout/published_bytes"] > 0
        assert (await one_reply(engine)).version == 2
        folders = [path.name for path in (stand_in.folder / "engine").glob("model-*")]
        assert len(folders) == 1  # of the newest weights only
    update = ["/pause?mode=abort", "/collective_rpc", "/resume"]
    assert stand_in.paths() == ["start", "/v1/models", *update, *update, COMPLETIONS]
    first, second = stand_in.calls("/collective_rpc")
    assert first["body"]["method"] == "reload_weights"
    assert first["body"] != second["body"]
    assert "model.safetensors" in first["files"]


async def test_an_adapter_is_loaded_under_a_new_name_and_the_old_one_dropped(stand_in: StandIn):
    with running(stand_in, lora_policy()) as engine:
        engine.publish(1)
        assert (await one_reply(engine)).version == 1
        os.kill(server_pid(engine), signal.SIGKILL)
        assert (await one_reply(engine)).version == 1
    load, drop = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    paths = ["start", "/v1/models", load, load, drop, COMPLETIONS]
    assert stand_in.paths() == [*paths, "start", "/v1/models", load, COMPLETIONS]
    names = [call["body"]["lora_name"] for call in stand_in.calls(load)]
    assert len(set(names)) == 3
    assert stand_in.calls(drop)[0]["body"]["lora_name"] == names[0]
    assert [call["body"]["model"] for call in stand_in.calls(COMPLETIONS)] == names[1:]
    assert stand_in.calls(load)[0]["files"] == ["adapter_config.json", "adapter_model.safetensors"]
    words = stand_in.starts()[0]["body"]["words"]
    assert words[words.index("--max-lora-rank") + 1] == "8"


async def test_it_sleeps_while_the_learner_works_and_wakes_in_order(stand_in: StandIn):
    with running(stand_in) as engine:
        engine._is_colocated = True  # what a policy on a GPU makes it; the stand-in needs none
        engine.rest()
        engine.publish(1)
        engine.rest()
        await one_reply(engine)
        await one_reply(engine)
    assert stand_in.paths()[2:] == [
        "/sleep?level=1",
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/wake_up?tags=kv_cache",
        "/sleep?level=1",
        "/wake_up",
        COMPLETIONS,
        COMPLETIONS,
    ]


@contextlib.contextmanager
def sleeping(stand_in: StandIn, policy: Policy | None = None) -> Iterator[VllmEngine]:
    with running(stand_in, policy) as engine:
        engine._is_colocated = True  # what a policy on a GPU makes it; the stand-in needs none
        engine.publish(4)
        engine.rest()
        yield engine


FAILED = [500, {"error": {"message": "CUDA out of memory", "code": 500}}]


@pytest.mark.parametrize("make_policy", [endless_policy, lora_policy])
async def test_a_server_that_dies_in_its_sleep_is_started_anew(
    stand_in: StandIn, make_policy: Callable[[], Policy]
):
    with sleeping(stand_in, make_policy()) as engine:
        os.kill(server_pid(engine), signal.SIGKILL)
        replies = await asyncio.gather(*(one_reply(engine) for _ in range(4)))
        assert [(reply.token_ids, reply.version) for reply in replies] == [((118, 119), 4)] * 4
        assert len(stand_in.starts()) == 2
    assert len(stand_in.calls(COMPLETIONS)) == 4


@pytest.mark.long
async def test_a_server_that_does_not_wake_up_is_started_anew(stand_in: StandIn):
    with sleeping(stand_in) as engine:
        first = server_pid(engine)
        stand_in.behave(status={"/wake_up": FAILED})
        assert (await one_reply(engine)).version == 4
        assert not is_alive(first)
        stand_in.behave()
        engine.rest()
        await one_reply(engine)  # the new one sleeps and wakes as the first did
    assert len(stand_in.starts()) == 2


@pytest.mark.parametrize("make_policy", [endless_policy, lora_policy])
def test_weights_are_published_to_a_server_that_died_in_its_sleep(
    stand_in: StandIn, make_policy: Callable[[], Policy]
):
    with sleeping(stand_in, make_policy()) as engine:
        os.kill(server_pid(engine), signal.SIGKILL)
        engine.take_metrics()
        engine.publish(5)
        taken = engine.take_metrics()
        assert taken["cluster/restarts_engine"] == 1 and taken["rollout/published_bytes"] > 0
        assert asyncio.run(one_reply(engine)).version == 5
    assert len(stand_in.starts()) == 2


@pytest.mark.parametrize(
    "trouble", [{"status": {"/sleep?level=1": FAILED}}, {"hang": ["/sleep?level=1"]}]
)
@pytest.mark.parametrize("is_published", [False, True])
@pytest.mark.long
async def test_a_server_that_does_not_go_to_sleep_is_stopped_until_it_is_needed(
    stand_in: StandIn,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    trouble: dict[str, object],
    is_published: bool,
):
    with running(stand_in) as engine:
        engine._is_colocated = True
        first, child = server_pid(engine), stand_in.starts()[0]["body"]["child"]
        stand_in.behave(**trouble)
        with monkeypatch.context() as hasty:
            hasty.setattr(engine, "_config", engine._config.model_copy(update={"timeout_s": 0.5}))
            engine.rest()
        assert not is_alive(first) and not is_alive(child)  # they would hold the GPU
        assert "did not go to sleep" in caplog.text
        stand_in.behave()
        if is_published:
            engine.publish(1)
        assert (await one_reply(engine)).version == int(is_published)
    assert len(stand_in.starts()) == 2


@pytest.mark.long
async def test_a_new_server_without_the_adapter_is_not_asked(stand_in: StandIn):
    with running(stand_in, lora_policy()) as engine:
        os.kill(server_pid(engine), signal.SIGKILL)
        stand_in.behave(status={"/v1/load_lora_adapter": FAILED})
        with pytest.raises(EngineError, match="CUDA out of memory"):
            await one_reply(engine)
        stand_in.behave()
        assert (await one_reply(engine)).token_ids == (118, 119)
    assert len(stand_in.starts()) == 3


async def test_an_update_that_fails_starts_another_server(stand_in: StandIn):
    policy = endless_policy()
    with running(stand_in, policy) as engine:
        first = server_pid(engine)
        text = {"error": {"message": "Worker failed", "code": 500}}
        stand_in.behave(status={"/collective_rpc": [500, text]})
        with torch.no_grad():
            policy.model.get_input_embeddings().weight.add_(1.0)
        engine.publish(1)
        assert server_pid(engine) != first and not is_alive(first)
        assert (await one_reply(engine)).version == 1


def test_vllm_must_be_there():
    with pytest.raises(ConfigError, match=r"\[vllm\].*engine.python"):
        create_engine(endless_policy(), VllmEngineConfig())
    with pytest.raises(
        ConfigError, match=r"engine\.python=/nowhere/python is not a program; set it"
    ):
        create_engine(endless_policy(), VllmEngineConfig(python="/nowhere/python"))


ENDS_WITHOUT_A_WORD = """
import os, pathlib, sys
from agentgym_rl.engines.vllm.process import ServerProcess
log, kills_children = pathlib.Path(sys.argv[1]), len(sys.argv) > 2
child = 'sleep 600 & echo $!; wait'
process = ServerProcess(["sh", "-c", child], env={}, log=log)
while not log.read_text():
    pass
print(process.pid, log.read_text(), flush=True)
if kills_children:
    import psutil
    for child in psutil.Process().children():
        child.kill()
os._exit(9)
"""


@pytest.mark.parametrize("words", [(), ("children first",)])
def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path, words: tuple[str, ...]):
    # In a process of its own, which closes nothing; Ray kills the children of an actor first.
    done = subprocess.run(
        [sys.executable, "-c", ENDS_WITHOUT_A_WORD, str(tmp_path / "log"), *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 9, done.stderr
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    wait_for(lambda: not any(map(is_alive, pids)), timeout_s=10)


def test_the_last_words_of_a_server_have_the_cause_of_its_end(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("OSError: of the server before it\n")
    says = "print('(child) ValueError: the cause'); print(' trace\\n' * 900); print('done for')"
    process = ServerProcess([sys.executable, "-c", says], env={}, log=log)
    deadline = time.monotonic() + 30
    while process.exit_code is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.stop()
    words = process.last_words()
    assert words.startswith("(child) ValueError: the cause\n[...]\n")
    assert words.endswith("done for") and words.count("the cause") == 1


def test_connections_that_the_server_closed_meanwhile_are_not_its_death(stand_in: StandIn):
    # vLLM closes idle ones after five seconds; to save or hand over weights takes longer than
    # that, and keeps the engine's loop from seeing it.
    stand_in.behave(keep_alive=0.2)
    with running(stand_in) as engine:
        pid = server_pid(engine)
        for version in (1, 2):
            asyncio.run(one_reply(engine))
            engine._loop.call_soon_threadsafe(time.sleep, 0.6)
            engine.publish(version)
        assert server_pid(engine) == pid
        assert len(stand_in.starts()) == 1
