"""Demonstrations are what the agent would have been shown and said, context by context."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools

import pytest
from examples.custom_agent import DoubleCheckAgent

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.interaction import Interaction
from agentgym_rl.agents.requests import LEFT_OUT, SUMMARIZE
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs.demos.demonstration import Demonstration
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import AgentError
from agentgym_rl.rollout.demonstration import UndemonstratedError, demonstrated_contexts
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TokenPolicy, run_episode
from agentgym_rl.training.data.conversations import from_demonstration, to_sample
from agentgym_rl.types import Task
from fake_engines import ScriptedEngine, fake_renderer, make_limits
from fakes import CountingEnv

TASK = Task("counting", "train", 8)
ACTIONS = ("add 2", "add 1", "add 2", "add 1", "add 1", "add 2")
COUNTS = (0, 2, 3, 5, 6, 7)
DEMO = Demonstration(
    TASK, ("Goal: 9. Count: 0.", *(f"Count: {count}." for count in COUNTS[1:])), ACTIONS
)


def make_agent(kind: type[Agent] = Agent, **parts: object) -> Agent:
    config = {"format": "direct", "include_instructions": False, **parts}
    return kind(AgentConfig.model_validate(config), CountingEnv.spec)


@pytest.mark.parametrize(
    ("format_", "planning", "memory", "past", "kind"),
    [
        *itertools.product(
            ("direct", "react", "tags", "function_call", "code"),
            ({"enabled": False}, {"enabled": True}, {"enabled": True, "every": 2}),
            (
                {"type": "full"},
                {"type": "window", "rounds": 1},
                {"type": "window", "rounds": 4},
                {"type": "summary", "rounds": 2},
            ),
            ("keep", "strip"),
            (Agent,),
        ),
        ("direct", {}, {}, "keep", DoubleCheckAgent),
    ],
)
async def test_a_policy_that_says_the_same_makes_the_same_samples(
    format_: str,
    planning: dict[str, object],
    memory: dict[str, object],
    past: str,
    kind: type[Agent],
):
    agent = make_agent(kind, format=format_, planning=planning, memory=memory, past_thoughts=past)
    conversations = from_demonstration(DEMO, agent)
    scripts = [
        [m.content for m, learned in zip(c.messages, c.is_learned, strict=True) if learned]
        for c in conversations
    ]
    source = LocalEnvSource(CountingEnv)
    participants = Participants(
        source, agent, TokenPolicy(ScriptedEngine(*scripts), fake_renderer())
    )
    request = EpisodeSpec(TASK, 0, (0, "test"))
    limits = make_limits(max_tokens=9000, max_tokens_per_round=400)
    episode = await run_episode(request, participants, limits)
    assert episode.success and [round_.action for round_ in episode.rounds] == list(ACTIONS)
    shown = [to_sample(conversation, fake_renderer()) for conversation in conversations]
    assert [sample.token_ids for sample in shown] == [s.token_ids for s in episode.samples]
    assert [sample.loss_mask for sample in shown] == [s.loss_mask for s in episode.samples]


def test_a_window_leaves_rounds_out_and_a_summary_says_what_was_done():
    window = from_demonstration(DEMO, make_agent(memory={"type": "window", "rounds": 4}))
    assert [sum(c.is_learned) for c in window] == [4, 2]
    assert LEFT_OUT in window[1].messages[0].content
    assert [m.content for m in window[1].messages[1::2]] == [*ACTIONS[2:4], *ACTIONS[4:]]
    summary = from_demonstration(DEMO, make_agent(memory={"type": "summary", "rounds": 4}))
    request, written = summary[0].messages[-2:]
    assert request.content.endswith(SUMMARIZE)
    assert written.content == "Done: add 2; add 1; add 2; add 1"


def test_an_action_that_the_format_cannot_carry_is_refused():
    demo = Demonstration(TASK, ("Goal: 9. Count: 0.",), ("add 9\nadd 1",))
    with pytest.raises(ValueError, match=r"took 'add 9' for the expert's action 'add 9\\nadd 1'"):
        demonstrated_contexts(demo, make_agent(format="react"))


def test_an_agent_that_waits_for_something_else_is_refused():
    class Sleeper(Agent):
        async def play(self, interaction: Interaction) -> None:
            await asyncio.sleep(0)

    with pytest.raises(ValueError, match="waited for something other than its interaction"):
        demonstrated_contexts(DEMO, make_agent(Sleeper))


def test_an_agent_that_stops_before_the_expert_is_refused():
    class Quitter(Agent):
        async def play(self, interaction: Interaction) -> None:
            interaction.begin(self.first_prompt(await interaction.reset()))
            await interaction.act(self.parse((await interaction.ask()).text).action)

    with pytest.raises(UndemonstratedError, match="stopped before the expert had succeeded"):
        demonstrated_contexts(DEMO, make_agent(Quitter))


def test_stop_texts_that_no_engine_takes_are_refused():
    class Stopper(Agent):
        async def play(self, interaction: Interaction) -> None:
            interaction.begin(self.first_prompt(await interaction.reset()))
            await interaction.ask(stop=("",))

    told = r"tuple of texts that are not empty, got \(''.*test_demonstration\.py, line"
    with pytest.raises(AgentError, match=told):
        demonstrated_contexts(DEMO, make_agent(Stopper))


def test_replies_give_the_expert_s_reasons():
    demo = dataclasses.replace(DEMO, thoughts=("Two are possible.", *[""] * 5))
    (context,) = demonstrated_contexts(demo, make_agent(format="react"))
    replies = [message.content for message in context.messages if message.role == "assistant"]
    assert replies[0] == "Thought: Two are possible.\nAction: add 2"
    assert replies[1] == "Thought: I do the next step.\nAction: add 1"
