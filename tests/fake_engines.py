"""Stand-ins for an engine: replies from a script, or drawn from a few words. No model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.limits import Limits
from agentgym_rl.config import AgentConfig
from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.sampling import uniform
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.tiny import train_tokenizer
from agentgym_rl.rollout.episode import Participants, TokenPolicy
from agentgym_rl.types import Completion, SamplingParams

Script = Sequence[str | float | Exception | asyncio.Event]
"""What a session does, item by item: reply a text, wait so many seconds, raise, wait for this."""

LOGPROB = -0.5
"""Of every token that a fake samples."""


@cache
def fake_renderer() -> ChatRenderer:
    """Return the renderer of a small real tokenizer; any text can be encoded with it."""
    return ChatRenderer(train_tokenizer(["add 1 Goal: 3. Count: 0."], vocab_size=300))


def make_limits(**changes: float) -> Limits:
    """Return limits that are out of the way; `changes` replace fields."""
    fields: dict[str, float] = {
        "max_rounds": 10,
        "max_tokens_per_round": 64,
        "max_tokens": 2048,
        "max_seconds": 30.0,
    }
    return Limits(**{**fields, **changes})


async def make_participants(
    source: EnvSource, engine: Engine, *, format_: str = "direct"
) -> Participants:
    """Return the participants of episodes without instructions in the prompt."""
    config = AgentConfig(format=format_, include_instructions=False)
    return Participants(
        source, Agent(config, await source.spec()), TokenPolicy(engine, fake_renderer())
    )


class FakeSession(EngineSession):
    """Keeps what it was given; the reply is the engine's affair."""

    def __init__(self, engine: FakeEngine, key: int, number: int) -> None:
        self._engine = engine
        self.key = key
        self.number = number
        self.num_replies = 0
        self.context: list[int] = []
        self.sampled: list[int] = []
        self.params: list[SamplingParams] = []
        self.is_closed = False

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        assert not self.is_closed, "a reply was asked of a closed session"
        self.context.extend(new_ids)
        self.params.append(params)
        ids = fake_renderer().reply(await self._engine.reply(self))
        cut = tuple(ids[: params.max_tokens])
        self.context.extend(cut)
        self.sampled.extend(cut)
        self.num_replies += 1
        return Completion(cut, (LOGPROB,) * len(cut), len(cut) == len(ids), self._engine.version)

    def close(self) -> None:
        self.is_closed = True


class FakeEngine(Engine):
    """Opens sessions and remembers them in the order of opening."""

    def __init__(self) -> None:
        self.sessions: list[FakeSession] = []
        self.version = 0
        self.max_open = 0
        """Most sessions that were open at a time."""

    async def reply(self, session: FakeSession) -> str:
        """Return what the session says next."""
        raise NotImplementedError

    def session(self, key: int) -> FakeSession:
        self.sessions.append(FakeSession(self, key, len(self.sessions)))
        num_open = sum(not session.is_closed for session in self.sessions)
        self.max_open = max(self.max_open, num_open)
        return self.sessions[-1]

    def publish(self, version: int) -> None:
        self.version = version

    def close(self) -> None:
        for session in self.sessions:
            session.close()


class ScriptedEngine(FakeEngine):
    """The n-th session opened plays the n-th script; the last script serves all later sessions.

    A script that is over goes on with its last reply.
    """

    def __init__(self, *scripts: Script) -> None:
        super().__init__()
        self._scripts = scripts
        self._places: dict[int, int] = {}

    async def reply(self, session: FakeSession) -> str:
        script = self._scripts[min(session.number, len(self._scripts) - 1)]
        while True:
            place = self._places.get(session.number, 0)
            item = script[min(place, len(script) - 1)]
            self._places[session.number] = place + 1
            match item:
                case str():
                    return item
                case Exception():
                    raise item
                case asyncio.Event():
                    await item.wait()
                case _:
                    await asyncio.sleep(item)


class KeyedEngine(FakeEngine):
    """Draws each reply from `words` by the session's key and the length of its context alone."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__()
        self._words = words

    async def reply(self, session: FakeSession) -> str:
        await asyncio.sleep(0)
        return self._words[int(uniform(session.key, len(session.context)) * len(self._words))]


class RestlessEngine(Engine, EngineSession):
    """Any number of sessions in one; replies after a time with the weights of its beginning."""

    def __init__(self, reply_s: float, token_ids: Sequence[int]) -> None:
        self._reply_s, self._ids, self.version = reply_s, tuple(token_ids), 0

    def session(self, key: int) -> EngineSession:
        return self

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        version = self.version
        await asyncio.sleep(self._reply_s)
        return Completion(self._ids, (LOGPROB,) * len(self._ids), True, version)

    def publish(self, version: int) -> None:
        self.version = version

    def close(self) -> None:
        """Nothing is held."""
