"""Your own environment in one class: guess a hidden number from "higher" and "lower".

agentgym check examples.guess_number:GuessNumber
agentgym play examples.guess_number:GuessNumber
agentgym train quickstart env.name=examples.guess_number:GuessNumber 'env.levels=[]'
"""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.types import StepResult, Task

_HIGHEST = 63
_TEST_EVERY = 4


class GuessNumber(Environment):
    """The task's index is the number; every fourth number is for testing only."""

    spec = EnvSpec(
        name="guess_number",
        summary="Find a hidden number between 0 and 63 by guessing.",
        instructions=f"A number between 0 and {_HIGHEST} is hidden. Guess it; you are told whether "
        "it is higher or lower.",
        example_action="32",
        splits=("train", "test"),
        categories=("low", "high"),
        max_rounds=7,
    )

    def __init__(self) -> None:
        self._number = 0
        self._lowest, self._highest = 0, _HIGHEST

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        is_test = split == "test"
        numbers = [n for n in range(_HIGHEST + 1) if (n % _TEST_EVERY == 0) == is_test]
        return [
            Task(cls.spec.name, split, n, category="low" if n <= _HIGHEST // 2 else "high")
            for n in numbers
        ]

    def reset(self, task: Task) -> str:
        self.require_split(task.split)
        if not 0 <= task.index <= _HIGHEST:
            raise ValueError(f"the number is between 0 and {_HIGHEST}, not {task.index}")
        self._number = task.index
        self._lowest, self._highest = 0, _HIGHEST
        return f"Your goal: guess the number between 0 and {_HIGHEST}."

    def step(self, action: str) -> StepResult:
        word = action.strip()
        if not (word.isascii() and word.isdigit() and len(word) <= 4):
            return StepResult(f"That is no number between 0 and {_HIGHEST}.", valid_action=False)
        guess = int(word)
        if guess == self._number:
            self._lowest = self._highest = guess
            return self._answer("Right.", is_right=True)
        if guess < self._number:
            self._lowest = max(self._lowest, guess + 1)
            return self._answer(f"It is higher than {guess}.")
        self._highest = min(self._highest, guess - 1)
        return self._answer(f"It is lower than {guess}.")

    def _answer(self, text: str, *, is_right: bool = False) -> StepResult:
        """Answer a guess; the metric says how many numbers the hidden one can still be."""
        return StepResult(
            text,
            reward=float(is_right),
            terminated=is_right,
            success=is_right,
            metrics={"candidates": self._highest - self._lowest + 1},
        )

    def expert_action(self) -> str:
        """Halve what is left."""
        return str((self._lowest + self._highest) // 2)
