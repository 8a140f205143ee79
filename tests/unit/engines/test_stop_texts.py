"""A reply ends with the token that completes a stop text, and its session goes on exactly."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.interaction import Interaction
from agentgym_rl.config import AgentConfig, NativeEngineConfig
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.paged.engine import PagedEngine
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TokenPolicy, run_episode
from agentgym_rl.types import Completion, SamplingParams, Task
from engine_plays import PROMPT, endless_policy
from fake_engines import make_limits
from fakes import CountingEnv

NUM_TOKENS = 40
KEYS = range(12)
STOP = "a"
Make = Callable[[Policy, NativeEngineConfig], Engine]
ENGINES = {
    "native": NativeEngine,
    "paged": partial(PagedEngine, num_pages=64, max_rows=8),
    "paged, a token a launch": partial(PagedEngine, num_pages=64, max_rows=8, steps_per_launch=1),
}


@pytest.fixture(scope="module")
def policy() -> Policy:
    return endless_policy()


@contextlib.contextmanager
def running(make: Make, policy: Policy) -> Iterator[Engine]:
    engine = make(policy, NativeEngineConfig())
    try:
        yield engine
    finally:
        engine.close()


async def two_rounds(engine: Engine, key: int, stop: tuple[str, ...]) -> list[Completion]:
    """Return a reply that may end early and, after as many tokens as ever, another one."""
    session = engine.session(key)
    first = await session.generate(PROMPT, SamplingParams(1.0, NUM_TOKENS, stop=stop))
    second = await session.generate([21, 22, 23], SamplingParams(1.0, 6))
    session.close()
    return [first, second]


def text_within(policy: Policy, reply: Completion) -> str:
    """Return a text of several tokens from the middle of a reply."""
    decode = policy.renderer.decode_reply
    for length, start in itertools.product((3, 2), range(2, NUM_TOKENS - 3)):
        text = decode(reply.token_ids[start : start + length])
        if "\ufffd" not in text and text not in decode(reply.token_ids[: start + length - 1]):
            return text
    raise AssertionError("no reply is all parts of characters")


@pytest.mark.parametrize("make", [NativeEngine, ENGINES["paged"]], ids=["native", "paged"])
async def test_a_reply_ends_with_the_token_that_completes_a_stop_text(make: Make, policy: Policy):
    decode = policy.renderer.decode_reply
    with running(make, policy) as engine:
        whole = [await two_rounds(engine, key, ()) for key in KEYS]
        texts = [text_within(policy, first) for first, _ in whole]
        cut = await asyncio.gather(
            *(two_rounds(engine, key, ("never said", text)) for key, text in enumerate(texts))
        )
    for (full, _), (first, second), text in zip(whole, cut, texts, strict=True):
        number = len(first.token_ids)
        assert first.is_stopped and number < NUM_TOKENS
        assert first.token_ids == full.token_ids[:number]
        assert first.logprobs == pytest.approx(full.logprobs[:number], abs=1e-4)
        assert text in decode(first.token_ids)
        assert text not in decode(first.token_ids[:-1])
        assert len(second.token_ids) == 6 or second.is_stopped


@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
async def test_after_a_stop_text_the_context_is_what_was_kept(make: Make, policy: Policy):
    # What the device had sampled beyond the text is in nobody's context.
    with running(make, policy) as engine:
        (full, _) = await two_rounds(engine, 3, ())
        first, second = await two_rounds(engine, 3, (text_within(policy, full),))
    with running(make, policy) as engine:
        session = engine.session(3)
        context = [*PROMPT, *first.token_ids, 21, 22, 23]
        anew = await session.generate(context, SamplingParams(1.0, 6))
    assert second.token_ids == anew.token_ids
    assert second.logprobs == pytest.approx(anew.logprobs, abs=1e-4)


class StoppingAgent(Agent):
    """Lets the policy say no more than one thing."""

    async def play(self, interaction: Interaction) -> None:
        interaction.begin(self.first_prompt(await interaction.reset()))
        reply = await interaction.ask(stop=(STOP,))
        await interaction.act("add 1")
        interaction.tell(reply.text)
        await interaction.ask()
        await interaction.act("add 1")


async def test_an_agent_may_name_stop_texts(policy: Policy):
    source = LocalEnvSource(CountingEnv)
    agent = StoppingAgent(AgentConfig(), await source.spec())
    request = EpisodeSpec(Task("counting", "train", 8), 0, (0, "test"))
    with running(NativeEngine, policy) as engine:
        participants = Participants(source, agent, TokenPolicy(engine, policy.renderer))
        episode = await run_episode(request, participants, make_limits(max_tokens_per_round=200))
    assert not episode.is_failed, episode.error
    (sample,) = episode.samples
    first, second = (
        [token for token, _ in run]
        for is_sampled, run in itertools.groupby(
            zip(sample.token_ids, sample.loss_mask, strict=True), key=lambda pair: pair[1]
        )
        if is_sampled
    )
    decode = policy.renderer.decode_reply
    assert STOP in decode(first) and STOP not in decode(first[:-1])
    assert STOP in decode(second[:-1]), "only the first was to stop there"


@pytest.mark.parametrize("stop", [("",), "Observation:", ("a", "")])
def test_stop_texts_that_are_none_are_refused(stop: tuple[str, ...]):
    with pytest.raises(ValueError, match="stop must be a tuple of texts that are not empty"):
        SamplingParams(stop=stop)
