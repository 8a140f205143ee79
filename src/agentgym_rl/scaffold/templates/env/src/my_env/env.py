"""A corridor with a treasure: walk to it and dig. The rules to replace by your own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.types import StepResult, Task

LENGTH = 8
TEST_EVERY = 4
"""Every fourth task is for testing only."""


class MyEnv(Environment):
    """One walk. Reward 1 for digging where the treasure is, else 0."""

    spec: ClassVar[EnvSpec] = EnvSpec(
        name="my_env",
        summary="Find a treasure in a corridor.",
        instructions=f"You are in a corridor of {LENGTH} cells, numbered from 0. In one of them a "
        "treasure is buried. Your actions are: left, right, dig.",
        example_action="right",
        splits=("train", "test"),
        categories=("near", "far"),
        max_rounds=10,
        success="the treasure is dug out",
    )

    shares_thread: ClassVar[bool] = True

    def __init__(self, *, has_compass: bool = True) -> None:
        """With `has_compass`, every observation says where the treasure is."""
        self._has_compass = has_compass
        self._place = self._treasure = 0

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        """Return every pair of a start and a treasure elsewhere, as one number."""
        cls.require_split(split)
        pairs = [(start, end) for start in range(LENGTH) for end in range(LENGTH) if start != end]
        return [
            Task(
                cls.spec.name,
                split,
                start * LENGTH + treasure,
                category="near" if abs(start - treasure) <= 3 else "far",
            )
            for number, (start, treasure) in enumerate(pairs)
            if (number % TEST_EVERY == 0) == (split == "test")
        ]

    def reset(self, task: Task) -> str:
        """Go to the start of the task and return the first observation, which states the goal."""
        self.require_split(task.split)
        self._place, self._treasure = divmod(task.index, LENGTH)
        if not 0 <= self._place < LENGTH or self._place == self._treasure:
            raise ValueError(f"my_env has no task {task.index}")
        return f"Your goal: dig out the treasure. {self._describe()}"

    def step(self, action: str) -> StepResult:
        """Do one action; any other text is answered with what is wrong about it."""
        word = action.strip().lower()
        if word == "dig":
            if self._place == self._treasure:
                return StepResult("You found it.", reward=1.0, terminated=True, success=True)
            return StepResult(f"Nothing here. {self._describe()}")
        if word not in ("left", "right"):
            return StepResult("Your actions are: left, right, dig.", valid_action=False)
        wanted = self._place + (1 if word == "right" else -1)
        self._place = min(max(wanted, 0), LENGTH - 1)
        return StepResult(self._describe())

    def available_actions(self) -> tuple[str, ...]:
        return ("left", "right", "dig")

    def expert_action(self) -> str:
        """Walk to the treasure, then dig."""
        if self._place == self._treasure:
            return "dig"
        return "right" if self._place < self._treasure else "left"

    def _describe(self) -> str:
        text = f"You are in cell {self._place}."
        if not self._has_compass:
            return text
        where = {"left": "to your left", "right": "to your right", "dig": "right here"}
        return f"{text} The treasure is {where[self.expert_action()]}."
