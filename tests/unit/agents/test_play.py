"""What the policy is shown and asked for, round by round, by the standard agent and its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pydantic import ValidationError

from agentgym_rl.agents.agent import Agent, make_agent
from agentgym_rl.agents.interaction import Interaction
from agentgym_rl.agents.requests import GO_ON, LEARNED, LEFT_OUT, PLAN, REFLECT, SUMMARIZE
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.demos.demonstration import demonstrate
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import AgentError
from agentgym_rl.rollout.demonstration import demonstrated_contexts
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TokenPolicy, run_episode
from agentgym_rl.types import Episode, SegmentKind, StepResult, StopReason, Task
from fake_engines import FakeEngine, ScriptedEngine, fake_renderer, make_limits
from fakes import CountingEnv, TroubleEnv

GOAL = "Goal: 5. Count: 0."


class PaidEnv(CountingEnv):
    """Pays for every step, so that tries that fail earn something too."""

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return replace(result, reward=result.reward + 0.25)


async def play(
    engine: FakeEngine,
    env: type[CountingEnv] = CountingEnv,
    rounds: int = 10,
    *,
    make: type[Agent] = Agent,
    max_tokens: int = 2048,
    **parts: object,
) -> Episode:
    config = AgentConfig.model_validate(
        {"format": "direct", "include_instructions": False, **parts}
    )
    source = LocalEnvSource(env)
    participants = Participants(
        source, make(config, await source.spec()), TokenPolicy(engine, fake_renderer())
    )
    request = EpisodeSpec(Task(env.spec.name, "train", 4), 0, (0, "test"))
    limits = make_limits(max_rounds=rounds, max_tokens=max_tokens, max_restarts=2)
    return await run_episode(request, participants, limits)


def said(episode: Episode) -> list[str]:
    return [message.content for message in episode.messages]


def replies_of(episode: Episode) -> list[list[tuple[str, int]]]:
    """The kinds of replies in each sample, with whether they are learned from."""
    return [
        [(str(s.kind), sample.loss_mask[s.start]) for s in sample.segments if s.kind.is_reply]
        for sample in episode.samples
    ]


def text_of(ids: Sequence[int]) -> str:
    return fake_renderer().decode_reply(ids)


async def test_a_plan_comes_before_the_first_action_and_stays_in_the_context():
    engine = ScriptedEngine(["1. two\n2. three", "add 2", "add 3"])
    episode = await play(engine, planning={"enabled": True})
    assert said(episode) == [
        f"{GOAL}\n\n{PLAN}", "1. two\n2. three", GO_ON, "add 2", "Count: 2.", "add 3",
    ]  # fmt: skip
    assert episode.success and len(episode.rounds) == 2, "a plan is not a round"
    assert replies_of(episode) == [[("plan", 1), ("action", 1), ("action", 1)]]
    (sample,) = episode.samples
    rounds = [s.round_index for s in sample.segments if s.kind.is_reply]
    assert rounds == [0, 0, 1], "the plan is of the round that it precedes"


async def test_plans_are_revised_after_some_rounds_and_on_a_stall():
    engine = ScriptedEngine(["plan a", "add 1", "add 1", "plan b", "add 1"])
    episode = await play(engine, rounds=3, planning={"enabled": True, "every": 2})
    kinds = ["plan", "action", "action", "plan", "action"]
    assert replies_of(episode) == [[(kind, 1) for kind in kinds]]
    engine = ScriptedEngine(["plan a", "bad", "bad", "plan b", "add 1"])
    episode = await play(engine, rounds=3, planning={"enabled": True, "on_stall": 2})
    assert replies_of(episode) == [[(kind, 1) for kind in kinds]]


async def test_a_failed_try_is_reflected_on_and_played_again():
    engine = ScriptedEngine(["add 3", "add 3", "too much"], ["add 2", "add 3"])
    episode = await play(engine, PaidEnv, reflection={"tries": 3})
    assert said(episode) == [
        GOAL, "add 3", "Count: 3.", "add 3", f"Count: 6.\n\n{REFLECT}", "too much",
        GO_ON, "add 2", "Count: 2.", "add 3",
    ]  # fmt: skip
    assert engine.sessions[1].context[: len(fake_renderer().prompt(f"{GOAL}\n\n{LEARNED}"))] == (
        fake_renderer().prompt(f"{GOAL}\n\n{LEARNED}")
    )
    assert replies_of(episode) == [
        [("action", 1), ("action", 1), ("reflection", 1)],
        [("reflection", 0), ("action", 1), ("action", 1)],
    ]
    assert (episode.reward, episode.success) == (1.5, True), "of the last try"
    assert [sample.try_index for sample in episode.samples] == [0, 1]
    assert [round_.try_index for round_ in episode.rounds] == [0, 0, 1, 1]
    # 0.25 a step, and the reflection takes back what its try had earned.
    assert [r for s in episode.samples for r in s.rewards if r] == [0.25, 0.25, -0.5, 0.25, 1.25]


async def test_with_credit_to_the_episode_failed_tries_earn_nothing():
    engine = ScriptedEngine(["add 3", "add 3", "too much"], ["add 2", "add 3"])
    episode = await play(engine, PaidEnv, reflection={"tries": 2, "credit": "episode"})
    assert [r for s in episode.samples for r in s.rewards if r] == [0.25, 1.25]


async def test_a_plan_after_a_reflection_is_the_only_request():
    engine = ScriptedEngine(["plan a", "add 3", "add 3", "too much"], ["plan b", "add 3", "add 2"])
    episode = await play(engine, reflection={"tries": 2}, planning={"enabled": True})
    assert said(episode)[-6:-2] == [PLAN, "plan b", GO_ON, "add 3"]


class Failing(Agent):
    """Fails as its play may."""

    error: Exception

    async def play(self, interaction: Interaction) -> None:
        interaction.begin(self.first_prompt(await interaction.reset()))
        await interaction.ask()
        raise self.error


class OtherMaker(Agent):
    def __init__(self, config: AgentConfig, spec: EnvSpec, depth: int) -> None:
        super().__init__(config, spec)
        self.depth = depth


class NoCoroutine(Agent):
    def play(self, interaction: Interaction) -> None:  # pyrefly: ignore[bad-override] - that is the mistake
        pass


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("no"), KeyError("no")])
async def test_a_mistake_of_an_agent_ends_everything_and_says_where(
    error: Exception, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Failing, "error", error, raising=False)
    with pytest.raises(AgentError, match=rf"Failing\.play raised {type(error).__name__}: .*no.*py"):
        await play(ScriptedEngine(["add 1"]), make=Failing)
    agent = Failing(AgentConfig(format="direct"), CountingEnv.spec)
    demo = demonstrate(CountingEnv(), Task("counting", "train", 4), max_rounds=9)
    assert demo is not None
    with pytest.raises(AgentError, match=r"Failing\.play raised"):
        demonstrated_contexts(demo, agent)


async def test_a_kind_that_does_not_exist_is_a_mistake_of_the_agent():
    class Odd(Agent):
        async def play(self, interaction: Interaction) -> None:
            interaction.begin(self.first_prompt(await interaction.reset()))
            await interaction.ask("critique")  # pyrefly: ignore[bad-argument-type] - that is the mistake

    with pytest.raises(AgentError, match="'critique' is not a valid SegmentKind"):
        await play(ScriptedEngine(["add 1"]), make=Odd)


def test_to_learn_from_nothing_is_refused():
    frozen = dict.fromkeys(("thought", "action"), 0)
    with pytest.raises(ValidationError, match="nothing would be learned"):
        AgentConfig.model_validate({"train": frozen})
    AgentConfig.model_validate({"train": frozen, "planning": {"enabled": True}})
    AgentConfig.model_validate({"train": frozen, "type": "mine:Agent"})


async def test_a_prompt_without_room_for_a_reply_is_tried_once():
    episode = await play(ScriptedEngine(["add 1"]), max_tokens=16)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.ENV_ERROR, 0)
    assert episode.reward is None and "raise rollout.max_tokens" in str(episode.error)


async def test_the_last_try_is_not_reflected_on():
    engine = ScriptedEngine(["add 3", "add 3", "first"], ["add 3", "add 3", "second"])
    episode = await play(engine, reflection={"tries": 2})
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 0.0)
    assert said(episode)[-1] == "add 3" and said(episode).count("add 3") == 4


async def test_a_window_keeps_the_task_and_the_newest_rounds():
    engine = ScriptedEngine(["add 1", "bad", "add 1"], ["add 1"])
    episode = await play(engine, rounds=4, memory={"type": "window", "rounds": 3})
    # After three rounds one (the newer half) stays: the third, before which the count was 1.
    renderer = fake_renderer()
    prompt = renderer.prompt(f"{GOAL}\n\n{LEFT_OUT}\n\n{episode.rounds[1].observation}")
    kept = renderer.reply("add 1")
    assert engine.sessions[1].context == [
        *prompt, *kept, *renderer.turn("Count: 2.", reply_ids=kept), *renderer.reply("add 1"),
    ]  # fmt: skip
    assert replies_of(episode) == [[("action", 1)] * 3, [("action", 0), ("action", 1)]]
    last = episode.samples[1].segments
    assert [s.round_index for s in last if s.kind.is_reply] == [2, 3]


async def test_a_summary_is_written_before_rounds_leave_and_read_after():
    engine = ScriptedEngine(["add 1", "add 1", "so far: 2"], ["add 3"])
    episode = await play(engine, memory={"type": "summary", "rounds": 2})
    renderer = fake_renderer()
    summary, kept = renderer.reply("so far: 2"), renderer.reply("add 1")
    assert episode.success
    assert engine.sessions[1].context == [
        *renderer.prompt(f"{GOAL}\n\n{SUMMARIZE}"),
        *summary,
        *renderer.turn(f"{LEFT_OUT}\n\nCount: 1.", reply_ids=summary),
        *kept,
        *renderer.turn("Count: 2.", reply_ids=kept),
        *renderer.reply("add 3"),
    ]
    assert replies_of(episode) == [
        [("action", 1), ("action", 1), ("summary", 1)],
        [("summary", 0), ("action", 0), ("action", 1)],
    ]


async def test_a_plan_is_repeated_in_a_new_context_as_it_was_sampled():
    engine = ScriptedEngine(["my plan", "add 1"], ["add 2"])
    episode = await play(
        engine, rounds=2, planning={"enabled": True}, memory={"type": "window", "rounds": 1}
    )
    plan = fake_renderer().reply("my plan")
    prompt = fake_renderer().prompt(f"{GOAL}\n\n{PLAN}")
    assert engine.sessions[1].context[: len(prompt) + len(plan)] == [*prompt, *plan]
    assert replies_of(episode) == [[("plan", 1), ("action", 1)], [("plan", 0), ("action", 1)]]


async def test_thoughts_are_told_from_actions_and_stripped_where_asked():
    replies = ["Thought: a\nAction: add 2", "Thought: b\nAction: add 3"]
    kept = await play(ScriptedEngine(replies), format="react")
    kinds = [("thought", 1), ("action", 1)]
    assert replies_of(kept) == [kinds * 2]
    engine = ScriptedEngine(replies[:1], replies[1:])
    episode = await play(engine, format="react", past_thoughts="strip")
    assert replies_of(episode) == [kinds, [("action", 0), *kinds]]
    second = episode.samples[1]
    shown = next(s for s in second.segments if s.kind is SegmentKind.ACTION)
    assert text_of(second.token_ids[shown.start : shown.end]).lstrip() == "Action: add 2"
    first = episode.samples[0]
    said_then = next(s for s in first.segments if s.kind is SegmentKind.ACTION)
    assert (
        first.token_ids[said_then.start : said_then.end]
        == second.token_ids[shown.start : shown.end]
    )


def test_tokens_before_a_character_end_before_it():
    renderer = fake_renderer()
    for text in ("Thought: é日本🙂\nAction: add 1", "add 1", ""):
        ids = renderer.reply(text)
        for end in range(len(text) + 1):
            number = renderer.num_tokens_before(ids, end)
            assert number < len(ids), "at least one token is the action's"
            assert text[:end].startswith(text_of(ids[:number]))
            longer = text_of(ids[: number + 1])
            is_last = number + 1 == len(ids)
            assert is_last or len(longer) > end or not text.startswith(longer)


def test_demonstrations_of_a_planning_agent_plan_what_the_expert_does():
    config = AgentConfig.model_validate(
        {"format": "direct", "include_instructions": False, "planning": {"enabled": True}}
    )
    demo = demonstrate(CountingEnv(), Task("counting", "train", 4), max_rounds=9)
    assert demo is not None
    (context,) = demonstrated_contexts(demo, Agent(config, CountingEnv.spec))
    messages = context.messages
    lines = [f"{place}. {action}" for place, action in enumerate(demo.actions, 1)]
    assert messages[0].content == f"{GOAL}\n\n{PLAN}"
    assert messages[1].content.splitlines() == lines[:5]
    assert [m.content for m in messages[2:4]] == [GO_ON, demo.actions[0]]


def test_agents_that_do_not_exist_are_refused_with_the_remedy():
    for name, complaint in (
        ("fancy", "neither"),
        ("no_such_module:Agent", "PYTHONPATH"),
        ("fakes:Nothing", "module 'fakes' has no 'Nothing'"),
        ("fakes:TroubleEnv", "not a subclass of Agent"),
        (":", "not of the form"),
        ("fakes:", "not of the form"),
        (f"{__name__}:OtherMaker", "made with AgentConfig and EnvSpec: missing"),
        (f"{__name__}:NoCoroutine", "must be an `async def`"),
    ):
        with pytest.raises(ValueError, match=complaint):
            make_agent(AgentConfig(type=name), TroubleEnv.spec)


async def test_memory_makes_room_for_a_reflection_too():
    renderer = fake_renderer()
    reply, observation = renderer.reply("bad"), "No such action: bad"
    request = len(renderer.turn(f"{observation}\n\n{REFLECT}", reply_ids=reply))
    prompt = len(renderer.prompt(f"{GOAL}\n\n{LEFT_OUT}"))
    for type_ in ("full", "window"):
        config = {
            "format": "direct",
            "include_instructions": False,
            "reflection": {"tries": 2},
            "memory": {"type": type_, "rounds": 50},
        }
        engine = ScriptedEngine(["bad"])
        source = LocalEnvSource(CountingEnv)
        agent = Agent(AgentConfig.model_validate(config), await source.spec())
        participants = Participants(source, agent, TokenPolicy(engine, renderer))
        limits = make_limits(
            max_rounds=12, max_tokens_per_round=16, max_tokens=prompt + request + 60
        )
        episode = await run_episode(
            EpisodeSpec(Task("counting", "train", 4), 0, (0,)), participants, limits
        )
        assert {round_.try_index for round_ in episode.rounds} == {0, 1}
        reflections = [reply for replies in replies_of(episode) for reply in replies]
        # Without memory the second try begins without a reflection.
        assert (("reflection", 1) in reflections) == (type_ == "window")
        assert all(len(s.token_ids) <= limits.max_tokens for s in episode.samples)
