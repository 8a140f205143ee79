"""What a controller makes of an engine's answers, with a line that ends here."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.base import ContextFullError
from agentgym_rl.engines.pool import process
from agentgym_rl.engines.pool.engine_process import start_here
from agentgym_rl.engines.pool.line import OnEnd, OnMessages
from agentgym_rl.engines.pool.messages import Answer, Ask, EnginePlan, Value
from agentgym_rl.engines.pool.remote import RemoteEngine
from agentgym_rl.errors import EngineError
from agentgym_rl.types import Completion, SamplingParams

ONE = SamplingParams(1.0, 1)
GOOD = Completion((1,), (-1.0,), True, 0)
POISONED = EngineError("CUDA error: an illegal memory access was encountered")


class Plan:
    """As much of a plan as a controller looks at."""

    folder = Path("engine-7")
    engine = NativeEngineConfig()


PLAN = cast("EnginePlan", Plan())


class LineHere:
    """Gives the next of the answers to each request."""

    def __init__(self, on_answers: OnMessages) -> None:
        self._on_answers = on_answers
        self.answers: list[Value] = []
        self.is_held = self.is_killed = False
        self.asked: list[Ask] = []

    def send(self, *messages: object) -> None:
        (message,) = messages
        if isinstance(message, Ask):
            self.asked.append(message)
            if not self.is_held:
                self.answer()

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        self._on_answers([Answer(one.number, self.answers.pop(0)) for one in asked])

    def kill(self) -> None:
        self.is_killed = True

    def close(self) -> None:
        pass


def engine_and_line() -> tuple[RemoteEngine, LineHere]:
    def start(plan: EnginePlan, on_answers: OnMessages, on_end: OnEnd) -> LineHere:
        return LineHere(on_answers)

    engine = RemoteEngine(PLAN, start, on_end=lambda _: None)
    assert isinstance(engine.line, LineHere)
    return engine, engine.line


async def asked(engine: RemoteEngine) -> bool:
    """Return whether a new session gets a reply."""
    try:
        await engine.session(0).generate([1], ONE)
    except EngineError:
        return False
    return True


async def test_an_engine_that_fails_every_reply_is_ended():
    engine, line = engine_and_line()
    line.answers = [POISONED, POISONED, GOOD, ContextFullError("full"), POISONED, POISONED]
    found = [await asked(engine) for _ in range(6)]
    assert found == [False, False, True, False, False, False]
    assert engine.is_alive, "never three in a row"
    line.answers = [POISONED]
    assert not await asked(engine)
    assert line.is_killed
    assert not (engine.is_alive or engine.is_ready), "at once, before it has ended"
    with pytest.raises(EngineError, match="engine-7 has been ended"):
        await engine.session(0).generate([1], ONE)


async def test_replies_that_fail_together_count_once():
    engine, line = engine_and_line()
    line.is_held, line.answers = True, [POISONED] * 10
    replies = [asyncio.create_task(asked(engine)) for _ in range(10)]
    async with asyncio.timeout(30):
        while len(line.asked) < 10:
            await asyncio.sleep(0)
    line.answer()
    assert not any(await asyncio.gather(*replies))
    assert engine.is_alive


def test_a_process_that_cannot_be_made_is_an_engine_that_cannot(monkeypatch: pytest.MonkeyPatch):
    def fail(self: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(process.FORKS.Process, "start", fail)
    with pytest.raises(EngineError, match=r"no process for engine-7: .*temporarily unavailable"):
        start_here(PLAN)
