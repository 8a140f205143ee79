"""TextCraft: craft a Minecraft item from base items, by text commands.

The recipes are those of the game (`minecraft.py`), a goal is any item that can be crafted, and how
an episode goes is in `crafting.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.scenarios.textcraft.actions import MINECRAFT_EXAMPLES, Examples
from agentgym_rl.envs.scenarios.textcraft.crafting import RULES, CraftingEnvironment
from agentgym_rl.envs.scenarios.textcraft.minecraft import load_book
from agentgym_rl.envs.scenarios.textcraft.splits import split_of_goals
from agentgym_rl.envs.scenarios.textcraft.world import CraftingWorld
from agentgym_rl.types import Task

_INSTRUCTIONS = f"""\
You are a crafter in a world of Minecraft items. {RULES} \
Some ingredients in the commands are general, such as planks, oak logs, or coal or charcoal. Fill \
each with one kind that fits, such as oak planks, and do not mix kinds in one ingredient.

An example of a whole task. You see:
Crafting commands:
craft 1 crafting table using 4 planks
craft 4 oak planks using 1 oak logs

Goal: craft crafting table.
Your first action: get 1 oak log
You see: Got 1 oak log.
Your next action: craft 4 oak planks using 1 oak log
You see: Crafted 4 oak planks.
Your next action: craft 1 crafting table using 4 oak planks
You see: Crafted 1 crafting table. The goal is reached."""


class TextCraft(CraftingEnvironment):
    """Craft the goal item. Reward 1 when it is made, else 0."""

    spec: ClassVar[EnvSpec] = EnvSpec(
        name="textcraft",
        summary="Craft Minecraft items from raw materials with text commands.",
        instructions=_INSTRUCTIONS,
        example_action=MINECRAFT_EXAMPLES.get,
        splits=("train", "test"),
        categories=("depth 1", "depth 2", "depth 3", "depth 4"),
        max_rounds=30,
        success="the goal item is crafted",
        replay_is_safe=True,
    )

    examples: ClassVar[Examples] = MINECRAFT_EXAMPLES

    def __init__(self, *, num_distractors: int = 10) -> None:
        """Show `num_distractors` commands that the goal does not need."""
        super().__init__(num_distractors=num_distractors)
        load_world()  # a missing package is found out before the first episode

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        """Return the goals of a split, shallow first; `Task.level` is the item to craft."""
        cls.require_split(split)
        return _tasks(split)

    def reset(self, task: Task) -> str:
        """Start with empty hands. The task's seed decides the distractors and the order."""
        self.require_split(task.split)
        world = load_world()
        goals = world.book.goals
        if not 0 <= task.index < len(goals):
            raise ValueError(f"TextCraft has tasks 0 to {len(goals) - 1}, not {task.index}")
        goal = goals[task.index]
        if task.level not in ("", goal):
            raise ValueError(f"task {task.index} is {goal!r}, not {task.level!r}")
        return self._begin(world, goal, f"textcraft {task.index} {task.seed}")


@cache
def load_world() -> CraftingWorld:
    """Return the world of the game's recipes; built once per process."""
    return CraftingWorld(load_book())


@cache
def _tasks(split: str) -> tuple[Task, ...]:
    book = load_book()
    return tuple(
        Task("textcraft", split, index, category=f"depth {book.depths[goal]}", level=goal)
        for index, (goal, side) in enumerate(zip(book.goals, split_of_goals(), strict=True))
        if side == split
    )
