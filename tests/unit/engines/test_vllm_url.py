"""A vLLM server that a user runs: asked like our own, updated only where it allows that."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig, VllmEngineConfig, parse_config
from agentgym_rl.engines.create import check_engine
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError, EngineError
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TokenPolicy, run_episode
from agentgym_rl.types import Episode, SamplingParams, StopReason, Task
from engine_plays import endless_policy
from fake_engines import make_limits
from fakes import CountingEnv
from vllm_stand_in import StandIn

pytestmark = pytest.mark.slow  # every test starts a process or two

NOT_FOUND = [404, {"detail": "Not Found"}]


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn.install(tmp_path / "stand-in")


@contextlib.contextmanager
def served(stand_in: StandIn, port: int = 0) -> Iterator[str]:
    """Run a server as a user would; its model has a name of the user's choice."""
    words = [stand_in.python, "--port", str(port), "--served-model-name", "my-model"]
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        subprocess.run(["kill", "-KILL", "--", f"-{process.pid}"], check=False)
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def asking(url: str, folder: Path) -> Iterator[VllmEngine]:
    config = VllmEngineConfig(url=url, timeout_s=10)
    engine = VllmEngine(endless_policy(), config, folder=folder)
    try:
        yield engine
    finally:
        engine.close()


@contextlib.contextmanager
def nobody_there() -> Iterator[str]:
    """Give an address that is taken and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_it_is_asked_by_the_name_that_it_gives(stand_in: StandIn, tmp_path: Path):
    with served(stand_in) as url, asking(url, tmp_path) as engine:
        reply = await engine.session(0).generate([5, 6, 7], SamplingParams(1.0, 2))
        assert reply.token_ids == (118, 119)
        assert stand_in.calls("/v1/completions")[-1]["body"]["model"] == "my-model"
        engine.publish(3)
        assert stand_in.paths()[-3:] == ["/pause?mode=abort", "/collective_rpc", "/resume"]


async def test_it_is_given_the_weights_again_when_it_comes_back(stand_in: StandIn, tmp_path: Path):
    with contextlib.ExitStack() as stack:
        with served(stand_in) as url:
            engine = stack.enter_context(asking(url, tmp_path))
            engine.publish(3)
        session = engine.session(0)
        asked = asyncio.create_task(session.generate([5, 6, 7], SamplingParams(1.0, 2)))
        await asyncio.sleep(0.2)
        with served(stand_in, port=int(url.rpartition(":")[2])):
            reply = await asked
    assert reply.version == 3
    after = stand_in.calls()[[call["path"] for call in stand_in.calls()].index("start", 1) :]
    paths = ["start", "/v1/models", "/collective_rpc", "/v1/completions"]
    assert [call["path"] for call in after] == paths, "its limit may be another"


def test_one_that_does_not_let_weights_be_updated_says_how_it_would(
    stand_in: StandIn, tmp_path: Path
):
    stand_in.behave(status={"/pause?mode=abort": NOT_FOUND})
    with (
        served(stand_in) as url,
        asking(url, tmp_path) as engine,
        pytest.raises(EngineError, match=r"could not be updated.*404.*VLLM_SERVER_DEV_MODE=1"),
    ):
        engine.publish(1)


def test_one_whose_logprobs_are_of_another_distribution_is_refused(
    stand_in: StandIn, tmp_path: Path
):
    stand_in.behave(logprob=-3.2)
    with (
        served(stand_in) as url,
        pytest.raises(EngineError, match="--logprobs-mode processed_logprobs"),
    ):
        asking(url, tmp_path).__enter__()


def test_nobody_at_the_address(tmp_path: Path):
    with nobody_there() as url:
        words = rf"no vLLM server answers at engine\.url={url}; start one .*, or leave engine\.url"
        with pytest.raises(EngineError, match=rf"{words} empty"):
            asking(url, tmp_path).__enter__()


async def test_the_server_is_asked_before_a_run_begins(stand_in: StandIn):
    with nobody_there() as url, pytest.raises(EngineError, match="no vLLM server answers"):
        await check_engine(VllmEngineConfig(url=url))
    with served(stand_in) as url:
        await check_engine(VllmEngineConfig(url=url))


@pytest.mark.parametrize("url", ["10.0.0.7:8000", "ftp://10.0.0.7", "http://"])
def test_what_is_no_address_is_refused_with_the_recipe(url: str):
    words = rf"engine\.url: '{url}' is not the address .*http://10\.0\.0\.7:8000, or leave it empty"
    with pytest.raises(ConfigError, match=words):
        parse_config({}, ["engine.type=vllm", f"engine.url={url}"], source="test")


def test_the_recipe_chooses_the_engine():
    table: dict[str, object] = {"engine": {"compile": False}}
    config = parse_config(table, ["engine.type=vllm", "engine.timeout_s=9"], source="test")
    assert isinstance(config.engine, VllmEngineConfig)
    assert config.engine.timeout_s == 9
    with pytest.raises(ConfigError, match=r"engine\.memory_fractions: unknown key"):
        parse_config({}, ["engine.type=vllm", "engine.memory_fractions=0.3"], source="test")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            ["tensor_parallel_size"],
            "tensor_parallel_size would configure a server .* use the command line",
        ),
        (
            ["tensor_parallel_size", "memory_fraction"],
            "tensor_parallel_size, memory_fraction would configure a server .* command line",
        ),
    ],
)
def test_settings_of_our_own_server_are_not_of_a_users(keys: list[str], words: str):
    values = {"tensor_parallel_size": "2", "memory_fraction": "0.3"}
    settings = ["engine.type=vllm", "engine.url=http://a"]
    with pytest.raises(ConfigError, match=words):
        parse_config({}, settings + [f"engine.{key}={values[key]}" for key in keys], source="test")


async def play(engine: VllmEngine) -> Episode:
    policy = endless_policy()
    async with LocalEnvSource(CountingEnv, timeout_s=30.0) as source:
        agent = Agent(AgentConfig(format="direct", include_instructions=False), CountingEnv.spec)
        participants = Participants(source, agent, TokenPolicy(engine, policy.renderer))
        limits = make_limits(max_rounds=100, max_tokens_per_round=8, max_tokens=500, max_restarts=2)
        return await run_episode(
            EpisodeSpec(Task("counting", "train", 5), 0, ()), participants, limits
        )


async def test_an_episode_that_fills_a_shorter_context_is_truncated_and_has_not_failed(
    stand_in: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    stand_in.behave(max_model_len=150)
    with served(stand_in) as url, asking(url, tmp_path) as engine:
        assert engine.max_context == 150
        assert "accepts contexts of 150 tokens, the model 512" in caplog.text
        episode = await play(engine)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.MAX_TOKENS, 0)
    assert episode.reward == 0.0 and len(episode.rounds) > 1
    assert 130 < len(episode.samples[0].token_ids) <= 150


async def test_a_limit_that_only_the_servers_answer_tells_truncates_too(
    stand_in: StandIn, tmp_path: Path
):
    with served(stand_in) as url, asking(url, tmp_path) as engine:
        stand_in.behave(max_model_len=150)  # after it was asked
        assert engine.max_context == 2048
        episode = await play(engine)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.MAX_TOKENS, 0)
    assert episode.reward == 0.0 and len(episode.samples[0].token_ids) <= 150
