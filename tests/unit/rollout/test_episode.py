"""One episode: every way to end, every limit, and what a failure becomes."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterator

import pytest

from agentgym_rl.agents.limits import Limits
from agentgym_rl.engines.base import ContextFullError
from agentgym_rl.engines.clock import running_clock
from agentgym_rl.envs.execution.local import LocalEnvClient, LocalEnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.errors import EngineError
from agentgym_rl.rollout import episode as episode_module
from agentgym_rl.rollout.episode import EpisodeSpec, run_episode
from agentgym_rl.types import Episode, SegmentKind, StepResult, StopReason, Task
from env_servers import server_process
from fake_engines import (
    LOGPROB,
    FakeEngine,
    KeyedEngine,
    Script,
    ScriptedEngine,
    fake_renderer,
    make_limits,
    make_participants,
)
from fakes import HANG_OVER, BrokenResetEnv, BrokenStartEnv, CountingEnv, TroubleEnv

HASTE_S = 0.1


class WatchedEnv(TroubleEnv):
    """Remembers the objects made and the actions done."""

    made: list[WatchedEnv] = []  # noqa: RUF012 - emptied by a fixture

    def __init__(self) -> None:
        super().__init__()
        self.actions: list[str] = []
        WatchedEnv.made.append(self)

    def step(self, action: str) -> StepResult:
        self.actions.append(action)
        return super().step(action)


class ShortEnv(CountingEnv):
    """Cuts every episode itself after the first step."""

    def step(self, action: str) -> StepResult:
        return dataclasses.replace(super().step(action), truncated=True)


class TransientEnv(WatchedEnv):
    """Breaks in the second step of the first two objects made."""

    def step(self, action: str) -> StepResult:
        is_broken = WatchedEnv.made.index(self) < 2 and len(self.actions) == 1
        return super().step("raise" if is_broken else action)


class HastyClient(LocalEnvClient):
    """Waits no longer than `HASTE_S` for the action "hang", and as told for all else."""

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        if action == "hang":
            self._timeout_s = HASTE_S
        return await super()._do_step(round_index, action)


class HastySource(LocalEnvSource):
    """Opens hasty clients."""

    async def _new_client(self) -> HastyClient:
        return HastyClient(self.env_class.spec.name, self.env_class, timeout_s=self._timeout_s)


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    WatchedEnv.made.clear()
    yield
    HANG_OVER.set()  # let threads that hang go
    HANG_OVER.clear()


async def play(
    engine: FakeEngine,
    limits: Limits | None = None,
    *,
    env: type[CountingEnv] = WatchedEnv,
    goal: int = 5,
    format_: str = "direct",
    source_class: type[LocalEnvSource] = LocalEnvSource,
) -> Episode:
    """Run one episode of a fake: count to the goal."""
    source = source_class(env, timeout_s=30.0)
    request = EpisodeSpec(Task(env.spec.name, "train", goal - 1), 0, (0, "test"))
    return await run_episode(
        request, await make_participants(source, engine, format_=format_), limits or make_limits()
    )


async def play_script(*script: str | float | Exception, **limits: float) -> Episode:
    return await play(ScriptedEngine(script), make_limits(**limits))


def is_a_failure(episode: Episode, reason: StopReason) -> bool:
    """Whether the episode failed for this reason and left nothing that could be trained on."""
    return (
        episode.stop_reason is reason
        and episode.is_failed
        and episode.reward is None
        and episode.samples == ()
        and not episode.success
        and bool(episode.error)
    )


async def test_success_ends_an_episode_with_its_reward():
    episode = await play_script("add 2", "add 3")
    assert episode.stop_reason is StopReason.SUCCESS
    assert (episode.reward, episode.success, episode.error) == (1.0, True, None)
    assert [(r.action, r.observation, r.reward) for r in episode.rounds] == [
        ("add 2", "Count: 2.", 0.0),
        ("add 3", "Count: 5.", 1.0),
    ]
    assert [(m.role, m.content) for m in episode.messages] == [
        ("user", "Goal: 5. Count: 0."),
        ("assistant", "add 2"),
        ("user", "Count: 2."),
        ("assistant", "add 3"),
    ]
    assert episode.num_restarts == 0


async def test_the_sample_holds_exactly_what_the_engine_saw_and_said():
    engine = ScriptedEngine(["add 2", "add 3"])
    engine.publish(7)
    episode = await play(engine)
    (sample,) = episode.samples
    (session,) = engine.sessions
    renderer = fake_renderer()
    first, second = renderer.reply("add 2"), renderer.reply("add 3")
    assert list(sample.token_ids) == session.context
    assert session.context == [
        *renderer.prompt("Goal: 5. Count: 0."),
        *first,
        *renderer.turn("Count: 2.", reply_ids=first),
        *second,
    ]
    sampled = [t for t, m in zip(sample.token_ids, sample.loss_mask, strict=True) if m]
    assert sampled == [*first, *second]
    assert [lp for lp in sample.logprobs if lp] == [LOGPROB] * len(sampled)
    assert sample.rewards == (0.0,) * (len(sample.token_ids) - 1) + (1.0,)
    assert sample.version == 7
    kinds = [segment.kind for segment in sample.segments]
    assert kinds == [
        SegmentKind.PROMPT,
        SegmentKind.ACTION,
        SegmentKind.OBSERVATION,
        SegmentKind.ACTION,
    ]


async def test_an_end_without_success_is_terminated():
    episode = await play_script("add 3", "add 3")
    assert episode.stop_reason is StopReason.TERMINATED
    assert (episode.reward, episode.success, len(episode.rounds)) == (0.0, False, 2)


@pytest.mark.parametrize("max_rounds", [1, 3])
async def test_the_horizon_ends_an_episode(max_rounds: int):
    episode = await play_script("add 1", max_rounds=max_rounds)
    assert episode.stop_reason is StopReason.MAX_ROUNDS
    assert episode.stop_reason.is_truncation and not episode.is_failed
    assert (episode.reward, len(episode.rounds)) == (0.0, max_rounds)


async def test_success_in_the_last_round_is_success():
    episode = await play_script("add 2", "add 3", max_rounds=2)
    assert episode.stop_reason is StopReason.SUCCESS


async def test_a_limit_of_the_environment_counts_as_the_horizon():
    episode = await play(ScriptedEngine(["add 1"]), env=ShortEnv)
    assert (episode.stop_reason, len(episode.rounds)) == (StopReason.MAX_ROUNDS, 1)


async def test_a_reply_is_cut_at_the_tokens_of_a_round():
    engine = ScriptedEngine(["add 1 and much more than that"])
    episode = await play(engine, make_limits(max_tokens_per_round=3, max_rounds=2))
    (sample,) = episode.samples
    lengths = [s.end - s.start for s in sample.segments if s.kind is SegmentKind.ACTION]
    assert lengths == [3, 3]
    assert [params.max_tokens for params in engine.sessions[0].params] == [3, 3]
    # The end-of-turn token that closes a cut reply was not sampled: it belongs to what follows.
    stop = fake_renderer().stop_token_ids[0]
    cut = sample.segments[1]
    assert stop not in sample.token_ids[cut.start : cut.end]
    assert sample.token_ids[cut.end] == stop and sample.loss_mask[cut.end] == 0


async def test_no_episode_is_longer_than_its_tokens():
    whole = await play_script("add 1", max_rounds=4)
    full = len(whole.samples[0].token_ids)
    prompt = len(fake_renderer().prompt("Goal: 5. Count: 0."))
    for max_tokens in range(prompt + 1, full + 1):
        episode = await play_script("add 1", max_rounds=4, max_tokens=max_tokens)
        (sample,) = episode.samples
        assert len(sample.token_ids) <= max_tokens
        assert sample.token_ids == whole.samples[0].token_ids[: len(sample.token_ids)]
        assert sample.loss_mask[-1] == 1, "a sample ends with a sampled token"
        at_horizon = len(episode.rounds) == 4
        assert episode.stop_reason is (
            StopReason.MAX_ROUNDS if at_horizon else StopReason.MAX_TOKENS
        )
        assert episode.reward == 0.0 and not episode.is_failed


async def test_the_last_reply_gets_no_more_tokens_than_are_left():
    engine = ScriptedEngine(["add 1 and much more than that"])
    room = 5
    prompt = len(fake_renderer().prompt("Goal: 5. Count: 0."))
    episode = await play(engine, make_limits(max_tokens=prompt + room))
    assert engine.sessions[0].params[0].max_tokens == room
    assert len(episode.samples[0].token_ids) == prompt + room
    assert episode.stop_reason is StopReason.MAX_TOKENS


async def test_success_on_the_last_token_is_success():
    prompt = len(fake_renderer().prompt("Goal: 3. Count: 0."))
    reply = len(fake_renderer().reply("add 3"))
    episode = await play(ScriptedEngine(["add 3"]), make_limits(max_tokens=prompt + reply), goal=3)
    assert episode.stop_reason is StopReason.SUCCESS


async def test_a_prompt_without_room_for_a_reply_is_an_error_with_the_remedy():
    episode = await play_script("add 1", max_tokens=4)
    assert is_a_failure(episode, StopReason.ENV_ERROR)
    assert "no room for a reply within 4; raise rollout.max_tokens" in (episode.error or "")


class ShortEngine(ScriptedEngine):
    """An engine with a limit of its own on contexts."""

    @property
    def max_context(self) -> int:
        return 40


async def test_the_engines_own_limit_on_contexts_truncates():
    episode = await play(ShortEngine(["add 1"]), make_limits(max_restarts=2), goal=5)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.MAX_TOKENS, 0)
    assert len(episode.samples[0].token_ids) <= 40 and episode.reward == 0.0


async def test_a_context_that_the_engine_refuses_truncates_and_keeps_what_was_sampled():
    engine = ScriptedEngine(["add 1", "add 1", ContextFullError("too long")])
    episode = await play(engine, make_limits(max_restarts=2), goal=5)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.MAX_TOKENS, 0)
    assert len(episode.rounds) == 2 and episode.error is None
    assert episode.samples[0].num_action_tokens == 2 * len(fake_renderer().reply("add 1"))


async def test_a_first_prompt_that_the_engine_refuses_is_an_error_with_the_remedy():
    episode = await play_script(ContextFullError("too long"), max_restarts=2)
    assert is_a_failure(episode, StopReason.ENV_ERROR)
    assert episode.num_restarts == 0 and "longer context" in (episode.error or "")


async def test_invalid_actions_in_a_row_end_an_episode():
    episode = await play_script("bad", "add 1", "bad", "worse", "add 1", max_invalid_actions=2)
    assert episode.stop_reason is StopReason.INVALID_ACTIONS
    assert [r.valid_action for r in episode.rounds] == [False, True, False, False]
    assert (episode.reward, episode.num_invalid_actions) == (0.0, 3)


async def test_invalid_actions_end_nothing_without_a_limit():
    episode = await play_script("bad", max_rounds=4)
    assert (episode.stop_reason, episode.num_invalid_actions) == (StopReason.MAX_ROUNDS, 4)


async def test_a_reply_that_does_not_parse_is_a_round_that_the_environment_never_sees():
    engine = ScriptedEngine(
        ["I wonder.", "Action: add 2\nAction: add 3", "Thought: x\nAction: add 3"]
    )
    episode = await play(engine, goal=3, format_="react")
    unclear, doubled, good = episode.rounds
    assert (unclear.action, unclear.valid_action, unclear.reward) == (None, False, 0.0)
    assert unclear.observation.startswith("No action found.")
    assert doubled.action is None and doubled.observation.startswith("2 actions found.")
    assert (good.action, good.valid_action) == ("add 3", True)
    assert WatchedEnv.made[0].actions == ["add 3"]
    # What was wrong is what the model reads next.
    assert episode.messages[2].content == unclear.observation
    assert episode.stop_reason is StopReason.SUCCESS and episode.reward == 1.0


async def test_replies_that_do_not_parse_count_as_invalid_actions():
    episode = await play_script(" ", max_invalid_actions=2)
    assert (episode.stop_reason, len(episode.rounds)) == (StopReason.INVALID_ACTIONS, 2)
    assert WatchedEnv.made[0].actions == []


@pytest.mark.parametrize("action", ["raise", "exit", "nan", "text"])
async def test_an_environment_that_breaks_is_an_error_and_never_a_reward(action: str):
    episode = await play_script("add 1", action)
    assert is_a_failure(episode, StopReason.ENV_ERROR)
    assert len(episode.rounds) == 1, "what was played until then is kept to look at"


@pytest.mark.parametrize("env", [BrokenStartEnv, BrokenResetEnv])
async def test_an_environment_that_does_not_start_is_an_error(env: type[CountingEnv]):
    engine = ScriptedEngine(["add 1"])
    episode = await play(engine, make_limits(max_restarts=1), env=env)
    assert is_a_failure(episode, StopReason.ENV_ERROR)
    assert (episode.num_restarts, episode.rounds) == (1, ())
    assert all(session.is_closed for session in engine.sessions)


async def test_an_environment_that_hangs_past_its_deadline_is_an_error():
    engine = ScriptedEngine(["add 1", "hang"], ["add 2", "add 3"])
    episode = await play(engine, make_limits(max_restarts=0), source_class=HastySource)
    assert is_a_failure(episode, StopReason.ENV_ERROR)
    assert len(episode.rounds) == 1
    assert "step passed its deadline of 0.1 s" in (episode.error or "")
    recovered = await play(
        ScriptedEngine(["add 1", "hang"], ["add 2", "add 3"]),
        make_limits(max_restarts=1),
        source_class=HastySource,
    )
    assert (recovered.stop_reason, recovered.num_restarts) == (StopReason.SUCCESS, 1)


@pytest.mark.parametrize("script", [["add 1", 60.0, "add 1"], ["add 1", "hang"]])
async def test_an_episode_past_its_seconds_has_failed(script: Script):
    engine = ScriptedEngine(script)
    episode = await play(engine, make_limits(max_seconds=0.15, max_restarts=2))
    assert is_a_failure(episode, StopReason.TIMEOUT)
    assert episode.error == "not over within rollout.max_seconds=0.15"
    assert 0.1 < episode.seconds < 15.0
    # Another start has the same noise and would only run out of its time again.
    assert (episode.num_restarts, len(engine.sessions)) == (0, 1)


async def test_all_starts_of_an_episode_share_its_seconds(monkeypatch: pytest.MonkeyPatch):
    given = list[float]()

    def noting(max_seconds: float):
        given.append(max_seconds)
        return running_clock(max_seconds)

    monkeypatch.setattr(episode_module, "running_clock", noting)
    engine = ScriptedEngine([0.2, EngineError("lost")], [0.1, EngineError("lost")], ["add 3"])
    episode = await play(engine, make_limits(max_seconds=20.0, max_restarts=2), goal=3)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.SUCCESS, 2)
    assert given[0] == 20.0
    assert given[1] < 20.0 - 0.19 and given[2] < given[1] - 0.09


async def test_a_failure_of_the_engine_is_an_engine_error():
    engine = ScriptedEngine(["add 1", EngineError("out of memory")])
    episode = await play(engine, make_limits(max_restarts=1))
    assert is_a_failure(episode, StopReason.ENGINE_ERROR)
    assert (episode.error, episode.num_restarts) == ("out of memory", 1)
    assert [env.num_closes for env in WatchedEnv.made] == [1, 1]


async def test_a_bug_is_not_hidden_as_a_failed_episode():
    with pytest.raises(ZeroDivisionError):
        await play_script("add 1", ZeroDivisionError("a bug"))
    assert [env.num_closes for env in WatchedEnv.made] == [1]


async def test_a_failed_episode_is_started_anew_with_a_fresh_environment():
    engine = ScriptedEngine(["add 1", "raise"], ["add 3", "raise"], ["add 2", "add 3"])
    episode = await play(engine, make_limits(max_restarts=2))
    assert (episode.stop_reason, episode.reward) == (StopReason.SUCCESS, 1.0)
    assert (episode.num_restarts, episode.error) == (2, None)
    assert [r.action for r in episode.rounds] == ["add 2", "add 3"]
    assert [env.actions for env in WatchedEnv.made] == [
        ["add 1", "raise"],
        ["add 3", "raise"],
        ["add 2", "add 3"],
    ]
    assert len({session.key for session in engine.sessions}) == 1, "the noise stays the same"


@pytest.mark.parametrize("max_restarts", [0, 1, 2])
async def test_a_failed_episode_is_restarted_no_more_than_it_may(max_restarts: int):
    episode = await play_script("raise", max_restarts=max_restarts)
    assert is_a_failure(episode, StopReason.ENV_ERROR)
    assert episode.num_restarts == max_restarts == len(WatchedEnv.made) - 1


async def test_an_episode_that_did_not_fail_is_not_started_again():
    episode = await play_script("add 3", "add 3", max_restarts=2)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.TERMINATED, 0)
    assert len(WatchedEnv.made) == 1


async def test_a_retry_gives_the_transcript_of_an_undisturbed_run():
    words = ["add 1", "add 1", "bad"]
    disturbed = await play(KeyedEngine(words), make_limits(max_restarts=2), env=TransientEnv)
    undisturbed = await play(KeyedEngine(words), env=WatchedEnv)
    assert disturbed.num_restarts == 2 and undisturbed.num_restarts == 0
    for field in ("task", "stop_reason", "reward", "success", "rounds", "messages", "samples"):
        assert getattr(disturbed, field) == getattr(undisturbed, field), field
    assert len(undisturbed.rounds) > 2


async def closes() -> list[int]:
    """Return how often each environment was closed: one that is busy or failed, by its thread."""
    deadline = time.monotonic() + 10.0
    while not all(env.num_closes for env in WatchedEnv.made) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    return [env.num_closes for env in WatchedEnv.made]


@pytest.mark.parametrize(
    "script", [["add 2", "add 3"], ["raise"], ["bad"], [EngineError("no")]], ids=str
)
async def test_everything_is_given_back_however_the_episode_ends(script: Script):
    engine = ScriptedEngine(script)
    await play(engine, make_limits(max_restarts=1, max_rounds=3))
    assert all(session.is_closed for session in engine.sessions)
    assert set(await closes()) == {1}


async def test_a_cancelled_episode_gives_everything_back():
    engine = ScriptedEngine(["add 1", 60.0])
    task = asyncio.create_task(play(engine))
    while not (engine.sessions and engine.sessions[0].num_replies):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.sessions[0].is_closed
    assert await closes() == [1]


async def test_a_server_that_is_killed_mid_episode_is_an_error():
    engine = ScriptedEngine(["add 1", "die"], ["add 2", "add 3"])
    request = EpisodeSpec(Task("trouble", "train", 4), 0, (0, "test"))
    with server_process("fakes:TroubleEnv") as (url, process):
        async with HttpEnvSource(url, outage_s=0.2) as source:
            participants = await make_participants(source, engine)
            episode = await run_episode(request, participants, make_limits(max_restarts=1))
        assert process.wait(30) == -9
    assert is_a_failure(episode, StopReason.ENV_ERROR)
    assert episode.num_restarts == 1
    assert [session.num_replies for session in engine.sessions] == [2, 0]


async def test_an_environment_that_breaks_on_a_server_is_retried_there():
    engine = ScriptedEngine(["add 1", "raise"], ["add 1", "hang"], ["add 2", "add 3"])
    request = EpisodeSpec(Task("trouble", "train", 4), 0, (0, "test"))
    with server_process("fakes:TroubleEnv", call_timeout_s=0.5) as (url, _):
        async with HttpEnvSource(url) as source:
            participants = await make_participants(source, engine)
            episode = await run_episode(request, participants, make_limits(max_restarts=4))
    assert episode.stop_reason is StopReason.SUCCESS
    assert episode.num_restarts >= 2, "where the server stalls, its deadline costs another"
