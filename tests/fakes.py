"""Small stand-ins for tests: environments with one trait each.

Also reached by name ("fakes:CountingEnv"), so that a server process can serve them.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.types import StepResult, Task

HANG_OVER = threading.Event()
"""Set by a test that wants the calls that hang in its process to return; cleared by it as well."""

HANGING: set[int] = set()
"""The threads of this process that hang now."""


def hang(file: str = "") -> None:
    """Wait for `HANG_OVER` or, where one is named, a file, by which another process can end it."""
    HANGING.add(threading.get_ident())
    try:
        while not HANG_OVER.wait(0.005 if file else None):
            if os.path.exists(file):
                return
    finally:
        HANGING.discard(threading.get_ident())


async def a_call_hangs() -> None:
    """Return as soon as a call hangs in this process."""
    async with asyncio.timeout(60):
        while not HANGING:
            await asyncio.sleep(0.005)


def end_hangs() -> None:
    """Have the calls that hang in this process return, and wait until they have."""
    HANG_OVER.set()
    while HANGING:
        time.sleep(0.001)
    HANG_OVER.clear()


def fake_spec(name: str, **changes: object) -> EnvSpec:
    """Return the spec of a fake; `changes` replace fields of EnvSpec."""
    fields: dict[str, object] = {
        "name": name,
        "summary": "a fake",
        "instructions": "Count up to the goal.",
        "example_action": "add 1",
        "splits": ("train", "test"),
        "categories": ("small", "large"),
        "max_rounds": 10,
    }
    return EnvSpec(**{**fields, **changes})


class CountingEnv(Environment):
    """Reach the goal by "add 1", "add 2", ...; a well-behaved environment with an expert.

    Task number n has goal n + 1; even numbers are train, odd ones test.
    """

    spec: ClassVar[EnvSpec] = fake_spec("counting")

    def __init__(self, *, largest: int = 3) -> None:
        self._largest = largest
        self._goal = 0
        self._count = 0
        self.num_closes = 0

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        first = cls.spec.splits.index(split)
        return [
            Task(cls.spec.name, split, index, category="small" if index < 10 else "large")
            for index in range(first, 20, 2)
        ]

    def reset(self, task: Task) -> str:
        self.require_split(task.split)
        if not 0 <= task.index < 1000:  # those beyond 20 are not listed, and harmless
            raise ValueError(f"there is no task {task.index}")
        self._goal, self._count = task.index + 1, 0
        return f"Goal: {self._goal}. Count: 0."

    def step(self, action: str) -> StepResult:
        if action not in self.available_actions():
            return StepResult(f"{action[:20]!r} is not an action.", valid_action=False)
        self._count += int(action.removeprefix("add "))
        is_over = self._count >= self._goal
        success = self._count == self._goal
        return StepResult(
            f"Count: {self._count}.",
            reward=1.0 if success else 0.0,
            terminated=is_over,
            success=success,
        )

    def available_actions(self) -> tuple[str, ...]:
        return tuple(f"add {number}" for number in range(1, self._largest + 1))

    def expert_action(self) -> str | None:
        return f"add {min(self._largest, self._goal - self._count)}"

    def close(self) -> None:
        self.num_closes += 1


class UntestedEnv(CountingEnv):
    """Has tasks for training only."""

    spec: ClassVar[EnvSpec] = fake_spec("untested", splits=("train",))


class TroubleEnv(CountingEnv):
    """Does what the action says, beyond counting.

    "raise" raises, "exit" raises SystemExit, "hang" and "hang FILE" do what `hang` does, "sleep
    0.1" takes its time, "stall 60" does so in C code that keeps the interpreter to itself, "die"
    kills the whole process, "pid" tells its number, "nan" gives a reward that is no number, "text"
    a str, and "mangled" raises with a message that UTF-8 cannot carry.
    """

    spec: ClassVar[EnvSpec] = fake_spec("trouble")

    def step(self, action: str) -> StepResult:
        word, _, rest = action.partition(" ")
        match word:
            case "raise":
                raise KeyError("the world is broken")
            case "exit":
                raise SystemExit(3)
            case "hang":
                hang(rest)
            case "sleep":
                time.sleep(float(rest))
            case "stall":
                ctypes.PyDLL(None).sleep(int(rest))
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "pid":
                return StepResult(str(os.getpid()))
            case "mangled":
                raise ValueError("a name with \udcff in it")
            case "nan":
                return StepResult("not a number", reward=float("nan"))
            case "text":
                return "not a result"  # type: ignore[return-value]  # what it is here to do
        return super().step("add 1" if word == "sleep" else action)


class SharedTroubleEnv(TroubleEnv):
    """The same for episodes that share a thread; "spin" computes for ever."""

    spec: ClassVar[EnvSpec] = fake_spec("shared-trouble")
    shares_thread: ClassVar[bool] = True

    def step(self, action: str) -> StepResult:
        while action == "spin":
            pass
        return super().step(action)


class BrokenResetEnv(CountingEnv):
    """Raises on every reset."""

    spec: ClassVar[EnvSpec] = fake_spec("broken-reset")

    def reset(self, task: Task) -> str:
        raise OSError("no data")


class BrokenStartEnv(CountingEnv):
    """Raises when constructed."""

    spec: ClassVar[EnvSpec] = fake_spec("broken-start")

    def __init__(self) -> None:
        raise RuntimeError("no display")


class ReportingEnv(CountingEnv):
    """Counts, and reports numbers of its own; its tasks carry a payload, which `reset` reads.

    "report WORD" reports something that breaks the contract.
    """

    spec: ClassVar[EnvSpec] = fake_spec("reporting", reward_range=(-1.0, 2.0))

    def __init__(self, *, largest: int = 3) -> None:
        super().__init__(largest=largest)
        self._num_steps = 0

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return [
            replace(task, payload={"goal": task.index + 1, "hints": [{"text": "zähle ☃"}, None]})
            for task in super().tasks(split)
        ]

    def reset(self, task: Task) -> str:
        self._num_steps = 0
        if "goal" not in task.payload:
            raise ValueError(f"task {task.id} has no goal in its payload")
        return f"{super().reset(task)} The payload says {task.payload['goal']}."

    def step(self, action: str) -> StepResult:
        word, _, rest = action.partition(" ")
        if word == "report":
            return _BROKEN_REPORTS[rest]
        self._num_steps += 1
        result = super().step(action)
        parts = {"goal": result.reward, "length": -0.25} if result.is_last else {}
        return replace(
            result,
            reward=sum(parts.values()),
            metrics={"count": self._count, "num_steps": self._num_steps},
            reward_parts=parts,
        )


_BROKEN_REPORTS = {
    "nan": StepResult("", metrics={"loss": float("nan")}),
    "many": StepResult("", metrics={f"n{number}": 1.0 for number in range(1000)}),
    "name": StepResult("", metrics={"a/b": 1.0}),
    "text": StepResult("", metrics={"count": "3"}),  # type: ignore[dict-item]  # what it is for
    "parts": StepResult("", reward=1.0, reward_parts={"goal": 0.5}),
}
