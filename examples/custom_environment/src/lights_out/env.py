"""Lights Out: turn all lamps of a square off, where a press switches a lamp and its neighbours.

On a 3 x 3 square every board can be solved in exactly one way, apart from the order, and pressing
a lamp twice does nothing. A task is therefore the set of lamps to press, as a number from 1 to 511
whose bit `3 * row + column` stands for a lamp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import ClassVar

from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.types import StepResult, Task

SIZE = 3
NUM_BOARDS = 2 ** (SIZE * SIZE)
TEST_EVERY = 5
"""Of the boards that differ by more than a turn or a mirror, every fifth is for testing."""

_PRESS = re.compile(r"press ([1-9]) ([1-9])", re.ASCII)
_INSTRUCTIONS = """\
You see nine lamps in three rows: * is on, . is off. Pressing a lamp switches it and the lamps \
next to it, above, below, left and right. Turn all lamps off. Your action is

press ROW COLUMN
    both from 1 to 3, counted from the top left. Example: press 1 3 presses the top right lamp."""


class LightsOut(Environment):
    """One board. Reward 1 when all lamps are off, else 0."""

    spec: ClassVar[EnvSpec] = EnvSpec(
        name="lights_out",
        summary="Turn all lamps of a 3 x 3 square off.",
        instructions=_INSTRUCTIONS,
        example_action="press 1 3",
        splits=("train", "test"),
        categories=("1-3 presses", "4-5 presses", "6-9 presses"),
        max_rounds=15,
        success="all lamps are off",
    )

    shares_thread: ClassVar[bool] = True

    def __init__(self, *, show_distance: bool = False) -> None:
        """With `show_distance`, tell in every observation how many presses are left."""
        self._show_distance = show_distance
        self._to_press = 0

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        """Return the boards of a split, by number."""
        cls.require_split(split)
        return [
            Task(cls.spec.name, split, number, category=_category(number))
            for number in range(1, NUM_BOARDS)
            if (number in _test_boards()) == (split == "test")
        ]

    def reset(self, task: Task) -> str:
        """Show the board; it has nothing random, so the task's seed changes nothing."""
        self.require_split(task.split)
        if not 0 < task.index < NUM_BOARDS:
            raise ValueError(f"lights_out has tasks 1 to {NUM_BOARDS - 1}, not {task.index}")
        self._to_press = task.index
        return f"Goal: turn all lamps off.\n{self._describe()}"

    def step(self, action: str) -> StepResult:
        """Press one lamp; any other text is answered with what is wrong about it."""
        match = _PRESS.fullmatch(" ".join(action.lower().split()))
        if match is None:
            return StepResult('Say which lamp, for example "press 1 3".', valid_action=False)
        row, column = int(match[1]), int(match[2])
        if row > SIZE or column > SIZE:
            reply = f"There are only {SIZE} rows and {SIZE} columns."
            return StepResult(reply, valid_action=False)
        self._to_press ^= 1 << (SIZE * (row - 1) + column - 1)
        if self._to_press == 0:
            return StepResult("All lamps are off.", reward=1.0, terminated=True, success=True)
        return StepResult(self._describe())

    def available_actions(self) -> tuple[str, ...]:
        return tuple(_press(place) for place in range(SIZE * SIZE))

    def expert_action(self) -> str:
        """Press the first lamp that has to be pressed."""
        return _press(next(_places(self._to_press)))

    def details(self) -> Mapping[str, JsonValue]:
        return {"to_press": [_press(place) for place in _places(self._to_press)]}

    def _describe(self) -> str:
        lamps = lit_lamps(self._to_press)
        cells = ["*" if lamps >> place & 1 else "." for place in range(SIZE * SIZE)]
        rows = "\n".join(" ".join(cells[start : start + SIZE]) for start in (0, SIZE, 2 * SIZE))
        hint = f"\nPresses left: {self._to_press.bit_count()}" if self._show_distance else ""
        return rows + hint


def lit_lamps(to_press: int) -> int:
    """Return the lamps that are on where these, and no others, have to be pressed."""
    lamps = 0
    for place in _places(to_press):
        row, column = divmod(place, SIZE)
        for near_row, near_column in (
            *((row, column), (row - 1, column), (row + 1, column)),
            *((row, column - 1), (row, column + 1)),
        ):
            if 0 <= near_row < SIZE and 0 <= near_column < SIZE:
                lamps ^= 1 << (SIZE * near_row + near_column)
    return lamps


def same_boards(number: int) -> Iterator[int]:
    """Yield the board as it is, turned and mirrored: eight numbers, some of them equal."""
    for _ in range(4):
        number = _moved(number, lambda row, column: (column, SIZE - 1 - row))
        yield number
        yield _moved(number, lambda row, column: (row, SIZE - 1 - column))


@cache
def _test_boards() -> frozenset[int]:
    families = sorted({min(same_boards(number)) for number in range(1, NUM_BOARDS)})
    return frozenset(board for family in families[::TEST_EVERY] for board in same_boards(family))


def _moved(number: int, move: Callable[[int, int], tuple[int, int]]) -> int:
    """Return the board with every lamp at the place that `move` gives for its row and column."""
    moved = 0
    for place in _places(number):
        row, column = move(*divmod(place, SIZE))
        moved |= 1 << (SIZE * row + column)
    return moved


def _places(number: int) -> Iterator[int]:
    return (place for place in range(SIZE * SIZE) if number >> place & 1)


def _press(place: int) -> str:
    row, column = divmod(place, SIZE)
    return f"press {row + 1} {column + 1}"


def _category(number: int) -> str:
    num_presses = number.bit_count()
    names = LightsOut.spec.categories
    return names[0] if num_presses <= 3 else names[1] if num_presses <= 5 else names[2]
