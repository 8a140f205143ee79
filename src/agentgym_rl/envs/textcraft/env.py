"""TextCraft: craft a Minecraft item from base items, by text commands.

One object holds an inventory and a goal; the recipe book and the planner are shared and immutable.
The idea and the layout of texts follow TextCraft (ADaPT, arXiv:2311.05772) as used by AgentGym.

Rules:
- `get` fetches base items, whose supply is unlimited; everything else must be crafted.
- `craft` takes any recipe of the book, shown or not. The ingredients must be the recipe's or one
  multiple of all its counts, and a number before the item, if any, must be what that makes.
- A generic slot is filled by one kind alone: 8 planks are 8 oak planks, never 5 oak and 3 birch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import ClassVar

from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.envs.textcraft.actions import Craft, Get, Inventory, echo, parse
from agentgym_rl.envs.textcraft.commands import draw_commands
from agentgym_rl.envs.textcraft.expert import Planner, load_planner
from agentgym_rl.envs.textcraft.minecraft import load_book
from agentgym_rl.envs.textcraft.recipes import Recipe, RecipeBook, shown
from agentgym_rl.envs.textcraft.splits import split_of_goals
from agentgym_rl.types import StepResult, Task

_MAX_KINDS_TOLD = 16

_INSTRUCTIONS = """\
You are a crafter in a world of Minecraft items. You start with empty hands and have to make one \
item. First you see a list of crafting commands, not all of which you need, and then the goal. \
Every round you do one of these actions:

get N ITEM
    Fetch N pieces of a raw item, one that cannot be crafted. Example: get 2 oak log
craft N ITEM using N INGREDIENT, N INGREDIENT
    Turn items that you hold into N pieces of a new item, by a crafting command with its exact \
numbers. Example: craft 8 oak planks using 2 oak log
inventory
    See what you hold.

Always give quantities. To craft more at once, multiply every number of a command by the same \
factor, as in the example, whose command reads: craft 4 oak planks using 1 oak logs.
Anything that can be crafted cannot be fetched: gather what it is made of and craft it.
Some ingredients in the commands are general, such as planks, oak logs, or coal or charcoal. Fill \
each with one kind that fits, under its own name (oak planks, oak log, coal), and do not mix kinds \
in one ingredient."""


class TextCraft(Environment):
    """Craft the goal item. Reward 1 when it is made, else 0."""

    spec: ClassVar[EnvSpec] = EnvSpec(
        name="textcraft",
        summary="Craft Minecraft items from raw materials with text commands.",
        instructions=_INSTRUCTIONS,
        example_action="get 2 oak log",
        splits=("train", "test"),
        categories=("depth 1", "depth 2", "depth 3", "depth 4"),
        max_rounds=30,
        success="the goal item is crafted",
    )

    shares_thread: ClassVar[bool] = True

    def __init__(self, *, num_distractors: int = 10) -> None:
        """Show `num_distractors` commands that the goal does not need."""
        if num_distractors < 0:
            raise ValueError(f"num_distractors must be 0 or more, got {num_distractors}")
        self._num_distractors = num_distractors
        self._book: RecipeBook = load_book()
        self._planner: Planner = load_planner()
        self._goal = ""
        self._commands: tuple[Recipe, ...] = ()
        self._held: dict[str, int] = {}

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        """Return the goals of a split, shallow first; `Task.level` is the item to craft."""
        if split not in cls.spec.splits:
            raise ValueError(f"TextCraft has the splits {cls.spec.splits}, not {split!r}")
        return _tasks(split)

    def reset(self, task: Task) -> str:
        """Start with empty hands. The task's seed decides the distractors and the order."""
        goals = self._book.goals
        if not 0 <= task.index < len(goals):
            raise ValueError(f"TextCraft has tasks 0 to {len(goals) - 1}, not {task.index}")
        self._goal = goals[task.index]
        if task.level not in ("", self._goal):
            raise ValueError(f"task {task.index} is {self._goal!r}, not {task.level!r}")
        rng = random.Random(f"textcraft {task.index} {task.seed}")
        self._commands = draw_commands(self._goal, num_distractors=self._num_distractors, rng=rng)
        self._held = {}
        lines = "\n".join(recipe.text for recipe in self._commands)
        return f"Crafting commands:\n{lines}\n\nGoal: craft {shown(self._goal)}."

    def step(self, action: str) -> StepResult:
        """Do one action; whatever is wrong with it is told in the observation."""
        assert self._goal, "reset before the first step"
        command = parse(action)
        if isinstance(command, Get):
            return self._get(command)
        if isinstance(command, Craft):
            return self._craft(command)
        if isinstance(command, Inventory):
            return StepResult(self._describe_inventory())
        return _refuse(command.reply)

    def available_actions(self) -> tuple[str, ...]:
        """Return gets for what the shown commands use, then the shown crafts possible now.

        Each at the counts of its command; `inventory` comes last.
        """
        gets = [
            Get(slot.kinds[0], slot.count).text
            for recipe in self._commands
            for slot in recipe.slots
            if self._book.is_base(slot.kinds[0])
        ]
        crafts = [craft.text for recipe in self._commands if (craft := self._ready(recipe))]
        return (*dict.fromkeys(gets), *crafts, "inventory")

    def expert_action(self) -> str:
        """Return the next action of a short plan from the present inventory."""
        return self._planner.plan(self._goal, self._held)[0].text

    def _get(self, command: Get) -> StepResult:
        if problem := self._find_item_problem(command.item):
            return _refuse(problem)
        name = shown(command.item)
        if not self._book.is_base(command.item):
            return _refuse(f"You cannot get {name}: it has to be crafted.")
        self._add(command.item, command.count)
        return StepResult(f"Got {command.count} {name}.")

    def _craft(self, command: Craft) -> StepResult:
        ingredients = dict(command.ingredients)
        for item in (command.item, *ingredients):
            if problem := self._find_item_problem(item):
                return _refuse(problem)
        name = shown(command.item)
        if self._book.is_base(command.item):
            return _refuse(f"There is no recipe for {name}: get it instead.")
        match = self._book.match(command.item, ingredients)
        if match is None:
            return _refuse(f"No recipe for {name} uses exactly these ingredients and counts.")
        recipe, times = match
        makes = recipe.makes * times
        if command.count not in (None, makes):
            return _refuse(f"These ingredients make {makes} {name}, not {command.count}.")
        for item, count in ingredients.items():
            held = self._held.get(item, 0)
            if held < count:
                return _refuse(f"Not enough {shown(item)}: you need {count} and have {held}.")
        for item, count in ingredients.items():
            self._add(item, -count)
        self._add(command.item, makes)
        return self._crafted(command.item, makes)

    def _crafted(self, item: str, count: int) -> StepResult:
        reply = f"Crafted {count} {shown(item)}."
        if item != self._goal:
            return StepResult(reply)
        return StepResult(f"{reply} The goal is reached.", 1.0, terminated=True, success=True)

    def _find_item_problem(self, item: str) -> str | None:
        """Return why the name is no item of the book, None when it is one."""
        if item in self._book.depths:
            return None
        kinds = self._book.generics.get(item)
        if kinds is None:
            return f'There is no item called "{echo(shown(item))}".'
        told = ", ".join(shown(kind) for kind in kinds[:_MAX_KINDS_TOLD])
        rest = ", and others" if len(kinds) > _MAX_KINDS_TOLD else ""
        return f'"{shown(item)}" is a general name. Use one of its kinds: {told}{rest}.'

    def _ready(self, recipe: Recipe) -> Craft | None:
        """Return the recipe done once with what is held, None where something is missing."""
        ingredients = []
        for slot in recipe.slots:
            kind = next((k for k in slot.kinds if self._held.get(k, 0) >= slot.count), None)
            if kind is None:
                return None
            ingredients.append((kind, slot.count))
        return Craft(recipe.output, recipe.makes, tuple(ingredients))

    def _describe_inventory(self) -> str:
        held = ", ".join(f"{count} {shown(item)}" for item, count in self._held.items())
        return f"Inventory: {held or 'empty'}."

    def _add(self, item: str, count: int) -> None:
        """Change what is held; an item of which none is left is not held at all."""
        self._held[item] = self._held.get(item, 0) + count
        if not self._held[item]:
            del self._held[item]


@cache
def _tasks(split: str) -> tuple[Task, ...]:
    book = load_book()
    return tuple(
        Task("textcraft", split, index, category=f"depth {book.depths[goal]}", level=goal)
        for index, (goal, side) in enumerate(zip(book.goals, split_of_goals(), strict=True))
        if side == split
    )


def _refuse(reply: str) -> StepResult:
    return StepResult(reply, valid_action=False)
