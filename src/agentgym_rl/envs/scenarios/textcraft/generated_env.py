"""TextCraft in invented worlds: the same episode over recipe books that nobody has seen.

A model knows how Minecraft's items are made; here it has to read. Goals are up to 8 crafts deep,
as many at each depth, and testing is in books and words that training never shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.scenarios.textcraft.actions import Examples
from agentgym_rl.envs.scenarios.textcraft.crafting import RULES, CraftingEnvironment
from agentgym_rl.envs.scenarios.textcraft.generator import (
    GOALS_PER_BOOK,
    GOALS_PER_DEPTH,
    MAX_DEPTH,
    NUM_BOOKS,
    load_generated_world,
    split_of_book,
)
from agentgym_rl.types import Task

# The syllables of "pindle" and "orvel" are not the generator's, so that no book has these items.
_INSTRUCTIONS = f"""\
You are a crafter in a world of invented items. {RULES} \
Where a command says "A or B", take either of the two, under its own name, and do not mix them.

An example of a whole task. You see:
Crafting commands:
craft 1 orvel lamp using 2 pindle cord
craft 4 pindle cord using 1 pindle bark

Goal: craft orvel lamp.
Your first action: get 1 pindle bark
You see: Got 1 pindle bark.
Your next action: craft 4 pindle cord using 1 pindle bark
You see: Crafted 4 pindle cord.
Your next action: craft 1 orvel lamp using 2 pindle cord
You see: Crafted 1 orvel lamp. The goal is reached."""


class GeneratedTextCraft(CraftingEnvironment):
    """Craft the goal item of a generated book. Reward 1 when it is made, else 0."""

    spec: ClassVar[EnvSpec] = EnvSpec(
        name="textcraft_generated",
        summary="Craft invented items, up to 8 crafts deep, from generated recipe books.",
        instructions=_INSTRUCTIONS,
        example_action="get 1 pindle bark",
        splits=("train", "test"),
        categories=tuple(f"depth {depth}" for depth in range(1, MAX_DEPTH + 1)),
        max_rounds=30,
        success="the goal item is crafted",
        replay_is_safe=True,
    )

    examples: ClassVar[Examples] = Examples(
        get="get 1 pindle bark", craft="craft 4 pindle cord using 1 pindle bark"
    )

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        """Return the goals of a split, book by book and shallow first; `Task.level` is the book."""
        cls.require_split(split)
        return _tasks(split)

    def reset(self, task: Task) -> str:
        """Start with empty hands. The task's seed decides the distractors and the order."""
        self.require_split(task.split)
        number, place = divmod(task.index, GOALS_PER_BOOK)
        if task.level not in ("", f"book {number}"):
            raise ValueError(f"task {task.index} is of book {number}, not of {task.level!r}")
        split_of_book(number)  # refuses a number beyond the last book
        world = load_generated_world(number)
        goal = world.book.goals[place]
        return self._begin(world, goal, f"textcraft_generated {task.index} {task.seed}")


@cache
def _tasks(split: str) -> tuple[Task, ...]:
    return tuple(
        Task(
            GeneratedTextCraft.spec.name,
            split,
            index=number * GOALS_PER_BOOK + place,
            category=f"depth {place // GOALS_PER_DEPTH + 1}",
            level=f"book {number}",
        )
        for number in range(sum(NUM_BOOKS.values()))
        if split_of_book(number) == split
        for place in range(GOALS_PER_BOOK)
    )
