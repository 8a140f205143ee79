"""Environments that break one law each, and nothing else.

`BROKEN` maps the law's name to the class. All are variations of `fakes.CountingEnv`, which breaks
none; reached by name as well ("broken_envs:Hashing"), so that a fresh process can play them.
"""

from __future__ import annotations

import random
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.types import StepResult, Task
from fakes import CountingEnv, fake_spec, hang


class Unfinished(CountingEnv, ABC):
    """Its author forgot a method."""

    reset = Environment.reset  # abstract, as if it had never been written
    __abstractmethods__: ClassVar[frozenset[str]] = frozenset({"reset"})


class Nameless(CountingEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", summary=" ")


class SplitInText(CountingEnv):
    """A comma is missing: ("train") is a text, and its letters are the splits."""

    spec: ClassVar[EnvSpec] = fake_spec("counting", splits=("train"))


class NoCategories(CountingEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", categories=None)


class NoRounds(CountingEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", max_rounds="ten")


class TurnedRange(CountingEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", reward_range=(1.0, 0.0))


class OddTags(CountingEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", action_tags=("Search", "think"))


class OddTools(CountingEnv):
    """Its example action is not a call of its tool."""

    spec: ClassVar[EnvSpec] = fake_spec(
        "counting",
        tools=({"type": "function", "function": {"name": "x", "parameters": {"type": "object"}}},),
    )


class NeedsMore(CountingEnv):
    def __init__(self) -> None:
        raise FileNotFoundError("the data are not on this machine")


class NoTests(CountingEnv):
    """Declares a split that its folder does not have."""

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        if split == "test":
            raise FileNotFoundError("test.json")
        return super().tasks(split)


class Shuffling(CountingEnv):
    """Lists its tasks in another order each time."""

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return random.sample(super().tasks(split), 10)


class Renamed(CountingEnv):
    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return [replace(task, env="count") for task in super().tasks(split)]


class NewCategory(CountingEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", categories=("small",))


class SameIndices(CountingEnv):
    """Numbers the tasks of each split from 0."""

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return [replace(task, index=task.index // 2) for task in super().tasks(split)]


class Welcoming(CountingEnv):
    """Starts whatever it is asked for."""

    def reset(self, task: Task) -> str:
        return super().reset(replace(task, split="train", index=task.index % 20))


class Silent(CountingEnv):
    def reset(self, task: Task) -> str:
        super().reset(task)
        return ""


class LateError(CountingEnv):
    """Raises in round 25 for a bad action."""

    def __init__(self) -> None:
        super().__init__()
        self._num_steps = 0

    def reset(self, task: Task) -> str:
        self._num_steps = 0
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        self._num_steps += 1
        if self._num_steps > 25:
            raise IndexError("list index out of range")
        return super().step(action)


class Flagless(CountingEnv):
    """As NumPy's flags are: no bool, though they look like it."""

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return replace(result, valid_action=int(result.valid_action))


class NotANumber(CountingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), reward=float("nan"))


class EndlessSuccess(CountingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), terminated=False)


class Punishing(CountingEnv):
    """Takes a little for every bad action, which adds up to more than it declares."""

    spec: ClassVar[EnvSpec] = fake_spec("counting", reward_range=(-1.0, 1.0), max_rounds=30)

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return result if result.valid_action else replace(result, reward=-0.05)


class OddMetrics(CountingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), metrics={"a/b": 1.0})


class LosesParts(CountingEnv):
    """Pays more than the sum of what it names."""

    def step(self, action: str) -> StepResult:
        result = super().step(action)
        return replace(result, reward_parts={"goal": 0.5}) if result.success else result


class LateDraws(CountingEnv):
    """Draws without a seed, from round 20 on."""

    def __init__(self) -> None:
        super().__init__()
        self._num_steps = 0

    def reset(self, task: Task) -> str:
        self._num_steps = 0
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        self._num_steps += 1
        result = super().step(action)
        if self._num_steps < 20:
            return result
        return replace(result, observation=f"{result.observation} {random.random()}")


class Hashing(CountingEnv):
    """Shows a set in the order in which this process has it."""

    _THINGS: ClassVar[set[str]] = {f"thing {number}" for number in range(20)}

    def reset(self, task: Task) -> str:
        return f"{super().reset(task)} You see {', '.join(self._THINGS)}."


class Impure(CountingEnv):
    """A look at it moves the world."""

    def details(self) -> Mapping[str, JsonValue]:
        self._count += 1
        return {}


class Sharing(CountingEnv):
    """Every object has the same counter."""

    _shared: ClassVar[list[int]] = [0]

    def reset(self, task: Task) -> str:
        self._shared[0] = 0
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        self._shared[0] += 1
        return replace(super().step(action), observation=str(self._shared[0]))


class OverlongList(CountingEnv):
    """Lists an action that it refuses."""

    def available_actions(self) -> tuple[str, ...]:
        return (*super().available_actions(), "jump")

    def step(self, action: str) -> StepResult:
        return super().step("no" if action == "jump" else action)


class LostExpert(CountingEnv):
    """Its expert goes beyond the goal."""

    def expert_action(self) -> str | None:
        return "add 3"


class UnwritableDetails(CountingEnv):
    def details(self) -> Mapping[str, JsonValue]:
        return {"seen": {self._count}}  # type: ignore[dict-item]  # the bug


class WrongPicture(CountingEnv):
    def render(self) -> bytes | None:
        return b"GIF89a"


class TouchyDetails(CountingEnv):
    """Cannot tell anything after the end."""

    def details(self) -> Mapping[str, JsonValue]:
        if self._count >= self._goal:
            raise KeyError("no episode")
        return {}


class ClosesOnce(CountingEnv):
    def close(self) -> None:
        super().close()
        if self.num_closes > 1:
            raise RuntimeError("closed twice")


class Stuck(CountingEnv):
    """Waits for ever for what it does not know."""

    def step(self, action: str) -> StepResult:
        if not action.startswith("add"):
            hang()
        return super().step(action)


BROKEN: Mapping[str, type[Environment]] = {
    "complete": Unfinished,
    "spec-texts": Nameless,
    "spec-splits": SplitInText,
    "spec-categories": NoCategories,
    "spec-rounds": NoRounds,
    "spec-rewards": TurnedRange,
    "spec-tags": OddTags,
    "spec-tools": OddTools,
    "constructs": NeedsMore,
    "splits-have-tasks": NoTests,
    "same-tasks": Shuffling,
    "task-names": Renamed,
    "known-categories": NewCategory,
    "unique-index": SameIndices,
    "refuses-unknown-tasks": Welcoming,
    "starts-every-task": Silent,
    "any-text-is-an-action": LateError,
    "step-result": Flagless,
    "finite-reward": NotANumber,
    "success-ends": EndlessSuccess,
    "rewards-in-range": Punishing,
    "named-numbers": OddMetrics,
    "reward-parts": LosesParts,
    "same-every-time": LateDraws,
    "same-in-every-process": Hashing,
    "looking-changes-nothing": Impure,
    "own-state": Sharing,
    "listed-actions": OverlongList,
    "expert-solves": LostExpert,
    "plain-details": UnwritableDetails,
    "picture-or-nothing": WrongPicture,
    "extras-do-not-raise": TouchyDetails,
    "closes-any-time": ClosesOnce,
    "calls-return": Stuck,
}
