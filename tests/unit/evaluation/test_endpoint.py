"""An OpenAI-compatible endpoint as the model: episodes, failures, and a server killed for real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym_rl.cli.evaluate import EvalOptions, run_evaluation
from agentgym_rl.config import OpenAIEngineConfig, RunConfig, parse_config
from agentgym_rl.engines.base import ContextFullError
from agentgym_rl.engines.openai.answer import read_answer
from agentgym_rl.engines.openai.engine import OpenAIEngine
from agentgym_rl.errors import ConfigError, EngineError, RunError
from agentgym_rl.evaluation.journal import Journal
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.evaluation.run import evaluate
from agentgym_rl.evaluation.settings import Wanted
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.types import Episode, Message, ReplyUsage, SamplingParams, StopReason
from openai_stand_in import KEY, MODEL, StandIn

HELLO = [Message("user", "Goal: 3. Count: 0.")]
SHORT = SamplingParams(0.0, 32)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    started = StandIn.start(tmp_path_factory.mktemp("server"))
    yield started
    started.kill()


@pytest.fixture
def server(running: StandIn) -> StandIn:
    running.forget()
    return running


@pytest.fixture(autouse=True)
def no_long_pauses_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("agentgym_rl.engines.openai.engine._FIRST_PAUSE_S", 0.01)


def make_config(url: str, *overrides: str) -> RunConfig:
    words = ["env.name=fakes:CountingEnv", "engine.type=openai", f"engine.url={url}", *overrides]
    return parse_config({}, words, source="test")


def run(config: RunConfig, out: Path, progress: Progress | None = None, **wanted: object):
    return asyncio.run(evaluate(Wanted(MODEL, **wanted), config, out=out, progress=progress))


def ask(url: str, params: SamplingParams = SHORT, **settings: object):
    async def once():
        engine = OpenAIEngine(MODEL, OpenAIEngineConfig(url=url, **settings))
        try:
            return await engine.reply(HELLO, params, seed=2**63)
        finally:
            await engine.close()

    return asyncio.run(once())


def stored(out: Path) -> list[Episode]:
    return read_episodes(out / "eval-000000.parquet")


def test_an_endpoint_plays_the_same_episodes_as_an_engine(server: StandIn, tmp_path: Path):
    (report,) = run(make_config(server.url), tmp_path / "out")
    assert report.overall.episodes == 10 and report.overall.success_rate == 1.0
    assert report.overall.invalid_rate == 0.0
    assert report.overall.reply_tokens_mean == 7.0  # "Thought: 2 to go. Action: add 2"
    first = stored(tmp_path / "out")[0]
    assert first.samples == () and first.usage == ReplyUsage(7, -0.5)
    assert first.rounds[0].reply == "Thought: 2 to go.\nAction: add 2"
    assert [message.role for message in first.messages] == ["user", "assistant"]
    call = server.calls()[0]
    assert call["temperature"] == 1.0 and call["max_tokens"] == 256


def test_a_list_of_tasks_is_played_and_kept_with_the_evaluation(server: StandIn, tmp_path: Path):
    config, out = make_config(server.url), tmp_path / "out"
    (report,) = run(config, out, tasks=("counting_3", 1))
    assert report.overall.episodes == 2
    assert [episode.task.index for episode in stored(out)] == [3, 1]
    with pytest.raises(RunError, match=r"other settings .*tasks: "):
        run(config, out, tasks=(1,))


def test_each_request_has_the_whole_conversation_and_a_seed_of_its_own(
    server: StandIn, tmp_path: Path
):
    run(make_config(server.url, "eval.tasks=1", "agent.include_instructions=false"), tmp_path)
    calls = server.calls()
    assert [len(call["messages"]) for call in calls] == list(range(1, 2 * len(calls), 2))
    assert calls[-1]["messages"][:-2] == calls[-2]["messages"][: len(calls[-1]["messages"]) - 2]
    assert len({call["seed"] for call in calls}) == len(calls)


@pytest.mark.long
def test_planning_reflection_and_memory_work_with_an_endpoint(server: StandIn, tmp_path: Path):
    server.behave(stuck=True)
    config = make_config(
        server.url,
        "agent.reflection.tries=2",
        "agent.memory.type=window",
        "agent.memory.rounds=2",
        "agent.past_thoughts=strip",
        "eval.tasks=3",
    )
    (report,) = run(config, tmp_path / "out", horizons=(8,))
    assert report.reflection is not None
    assert [item.success_rate for item in report.reflection.values()] == [0.0, 1.0]
    assert "| 2 | 100.0% |" in report.to_markdown()
    assert all("Thought" not in m["content"] for m in _earlier_replies(server))
    planned = make_config(server.url, "agent.planning.enabled=true", "eval.tasks=2")
    (report,) = run(planned, tmp_path / "planned")
    assert report.overall.success_rate == 1.0


def _earlier_replies(server: StandIn) -> list[dict[str, str]]:
    return [m for c in server.calls() for m in c["messages"] if m["role"] == "assistant"]


def test_what_passes_is_asked_again_and_what_stays_is_an_engine_error(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    server.behave(errors=[[429, "slow down"], [503, "overloaded"], [500, "oops"]])
    assert ask(server.url).text.endswith("add 3")
    assert len(server.calls()) == 4
    server.behave(errors=[[500, "down for good"]] * 3)
    monkeypatch.setattr(OpenAIEngine, "max_retries", 2)
    with pytest.raises(EngineError, match=r"500: down for good, 3 times"):
        ask(server.url)
    server.behave(errors=[[500, "still down"]] * 1000)
    monkeypatch.setattr(OpenAIEngine, "max_retries", 0)
    config = make_config(server.url, "eval.tasks=2")
    (report,) = run(config, tmp_path / "out")
    assert (report.overall.episodes, report.overall.failed) == (0, 2)
    assert report.stop_reasons == {"engine_error": 2}
    assert all(episode.reward is None for episode in stored(tmp_path / "out"))


def test_stop_texts_are_sent_where_there_are_any(server: StandIn):
    ask(server.url)
    ask(server.url, SamplingParams(0.0, 32, stop=("Observation:",)))
    plain, stopping = server.calls()
    assert "stop" not in plain
    assert stopping["stop"] == ["Observation:"]


def test_a_deadline_passes(server: StandIn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(OpenAIEngine, "max_retries", 1)
    server.behave(delay_s=5.0)
    with pytest.raises(EngineError, match=r"no answer within 0\.05 s, 2 times"):
        ask(server.url, timeout_s=0.05)


def test_a_full_context_ends_the_episode_and_is_no_failure(server: StandIn, tmp_path: Path):
    server.behave(max_words=2)
    with pytest.raises(ContextFullError):
        ask(server.url)
    server.behave(max_words=30)
    config = make_config(server.url, "agent.include_instructions=false")
    (report,) = run(config, tmp_path / "out")
    assert report.overall.failed == 0
    assert report.stop_reasons["max_tokens"] == 10 - report.stop_reasons["success"] > 0


def test_a_limit_on_tokens_holds_without_the_endpoint_counting(server: StandIn, tmp_path: Path):
    server.behave(bare=True)
    config = make_config(
        server.url,
        "agent.include_instructions=false",
        "rollout.max_tokens=60",
        "rollout.max_tokens_per_round=20",
    )
    (report,) = run(config, tmp_path / "out")
    assert set(report.stop_reasons) == {"success", "max_tokens"}
    assert stored(tmp_path / "out")[0].usage == ReplyUsage(12)  # 31 characters / 4, and 4


@pytest.mark.parametrize(
    ("refused", "instead"),
    [("max_tokens", "max_completion_tokens"), ("logprobs", None), ("seed", None)],
)
def test_parameters_that_a_model_does_not_take_are_left_out(
    server: StandIn, refused: str, instead: str | None
):
    server.behave(refuses=refused)
    assert ask(server.url).text.endswith("add 3")
    assert refused not in server.calls()[-1]
    assert instead is None or server.calls()[-1][instead] == 32


def test_a_wrong_key_or_name_ends_the_evaluation(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert ask(server.url).text
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    with pytest.raises(ConfigError, match="the key in the variable OPENAI_API_KEY"):
        ask(server.url)
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match="'another' does not exist"):
        asyncio.run(evaluate(Wanted("another"), make_config(server.url), out=tmp_path / "out"))
    with pytest.raises(ConfigError, match="OPENAI_BASE_URL"):
        ask("")


@pytest.mark.parametrize("text", [b"", b"{}", b'{"choices": []}', b"<html>", b'{"choices": [{}]}'])
def test_an_answer_that_is_none_is_an_engine_error(text: bytes):
    with pytest.raises(EngineError, match="not a chat completion"):
        read_answer(text)


class _KillAfter(Progress):
    """Kills a server after so many episodes."""

    def __init__(self, server: StandIn, number: int) -> None:
        self._server, self._left = server, number
        self.played = list[Episode]()

    def on_episode(self, episode: Episode) -> None:
        self.played.append(episode)
        self._left -= 1
        if self._left == 0:
            self._server.kill()


def test_a_server_killed_in_the_middle_costs_no_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(OpenAIEngine, "max_retries", 1)
    server = StandIn.start(tmp_path / "server")
    settings = ("rollout.max_concurrency=1", "rollout.max_restarts=0")
    config, out = make_config(server.url, *settings), tmp_path / "out"
    (report,) = run(config, out, _KillAfter(server, 4))
    assert (report.overall.episodes, report.overall.failed) == (4, 6)
    assert {e.stop_reason for e in stored(out)} == {StopReason.SUCCESS, StopReason.ENGINE_ERROR}
    assert len(Journal(out).read()) == 4

    again = StandIn.start(tmp_path / "server", port=server.port)
    try:
        progress = _KillAfter(again, 0)
        (resumed,) = run(config, out, progress)
        assert len(progress.played) == 6, "those that were completed are not played again"
        (whole,) = run(config, tmp_path / "undisturbed")
    finally:
        again.kill()
    assert resumed == whole
    assert [_result(e) for e in stored(out)] == [
        _result(e) for e in stored(tmp_path / "undisturbed")
    ]


def _result(episode: Episode) -> object:
    return episode.task, episode.stop_reason, episode.rounds, episode.messages, episode.usage


def test_several_samples_without_log_probabilities(server: StandIn, tmp_path: Path):
    server.behave(bare=True)
    reports: list[EvalReport] = run(
        make_config(server.url, "eval.tasks=2"), tmp_path / "out", samples_per_task=2
    )
    assert reports[0].several is not None and reports[0].several.best_by_logprob is None


@pytest.mark.long
def test_several_environments_make_one_report(server: StandIn, tmp_path: Path):
    envs = ["fakes:CountingEnv", "fakes:TroubleEnv"]
    options = EvalOptions(envs, per_category=2, engine="openai", out=tmp_path / "out")
    run_evaluation(MODEL, options, [f"engine.url={server.url}"])
    data = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [report["env"] for report in data["reports"]] == ["counting", "trouble"]
    assert all(report["overall"]["episodes"] == 4 for report in data["reports"])
    assert data["missing"] == {}
    files = {"report.json", "report.md", "report.png", "eval-000000.parquet", "evaluation.json"}
    for env in ("fakes-CountingEnv", "fakes-TroubleEnv"):
        assert {file.name for file in (tmp_path / "out" / env).iterdir()} == files
    assert (tmp_path / "out" / "report.png").exists()


def test_an_evaluation_with_failed_episodes_is_an_error_beside_its_report(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(OpenAIEngine, "max_retries", 0)
    out = tmp_path / "out"
    options = EvalOptions(["fakes:CountingEnv"], limit=3, engine="openai", out=out)
    settings = [f"engine.url={server.url}", "rollout.max_restarts=0"]
    server.behave(errors=[[500, "down"]])
    with pytest.raises(RunError, match=rf"1 episodes failed.*500: down.*--out {out}"):
        run_evaluation(MODEL, options, settings)
    overall = json.loads((out / "report.json").read_text())["overall"]
    assert (overall["episodes"], overall["failed"]) == (2, 1)
    run_evaluation(MODEL, options, settings)
    assert json.loads((out / "report.json").read_text())["overall"]["failed"] == 0
