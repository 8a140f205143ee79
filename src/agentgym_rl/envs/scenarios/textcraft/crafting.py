"""The episode of TextCraft: an inventory, a goal, and the rules of `get` and `craft`.

Which book and which goal a task means is for the subclasses to say (`env.py`, `generated_env.py`).
The idea and the layout of texts follow TextCraft (ADaPT, arXiv:2311.05772) as used by AgentGym.

Rules:
- `get` fetches base items, whose supply is unlimited; everything else must be crafted.
- `craft` takes any recipe of the book, shown or not. The ingredients must be the recipe's or one
  multiple of all its counts, and a number before the item, if any, must be what that makes.
- A generic slot is filled by one kind only: 8 planks are 8 oak planks, never 5 oak and 3 birch.
- A general name will do where it leaves nothing open. `get 2 oak logs` fetches the first kind that
  can be fetched, whose supply is as unlimited as the others'. `craft ... using 2 oak logs` uses the
  kind that is held in this number, and is refused where there are two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from agentgym_rl.envs.base import Environment, JsonValue
from agentgym_rl.envs.scenarios.textcraft.actions import (
    Craft,
    Examples,
    Get,
    Inventory,
    echo,
    parse,
)
from agentgym_rl.envs.scenarios.textcraft.draws import Draws
from agentgym_rl.envs.scenarios.textcraft.recipes import Recipe, RecipeBook, shown
from agentgym_rl.envs.scenarios.textcraft.world import CraftingWorld
from agentgym_rl.types import StepResult

_MAX_KINDS_TOLD = 16

RULES = """\
You start with empty hands and have to make one \
item. First you see a list of crafting commands, not all of which you need, and then the goal. \
Every round you do one of these actions:

get N ITEM
    Fetch N pieces of a raw item, one that cannot be crafted.
craft N ITEM using N INGREDIENT, N INGREDIENT
    Turn items that you hold into N pieces of a new item, by a crafting command with its numbers.
inventory
    See what you hold.

Always give quantities. To craft more at once, multiply every number of a command by the same \
factor. Anything that can be crafted cannot be fetched: gather what it is made of and craft it."""
"""What the instructions of every TextCraft share."""


class CraftingEnvironment(Environment):
    """Craft the goal item. Reward 1 when it is made, else 0.

    A subclass calls `_begin` from its `reset`.
    """

    examples: ClassVar[Examples]
    """Well-formed actions in the words of the subclass's items."""

    shares_thread: ClassVar[bool] = True

    def __init__(self, *, num_distractors: int = 10) -> None:
        """Show `num_distractors` commands that the goal does not need."""
        if num_distractors < 0:
            raise ValueError(f"num_distractors must be 0 or more, got {num_distractors}")
        self._num_distractors = num_distractors
        self._world: CraftingWorld
        self._goal = ""
        self._commands: tuple[Recipe, ...] = ()
        self._held: dict[str, int] = {}
        self._made: set[str] = set()
        self._num_reported = -1

    @property
    def _book(self) -> RecipeBook:
        return self._world.book

    def _begin(self, world: CraftingWorld, goal: str, seed: str) -> str:
        """Start with empty hands; the seed decides the distractors and the order of commands."""
        self._world = world
        self._goal = goal
        self._commands = world.draw_commands(
            goal, num_distractors=self._num_distractors, draws=Draws(seed)
        )
        self._held = {}
        self._made = set()
        self._num_reported = -1
        lines = "\n".join([recipe.text for recipe in self._commands])
        return f"Crafting commands:\n{lines}\n\nGoal: craft {shown(goal)}."

    def step(self, action: str) -> StepResult:
        """Do one action; the observation says what is wrong with it."""
        assert self._goal, "reset before the first step"
        result = self._do(action)
        if self._num_reported == len(self._made):  # what was reported last counts
            return result
        self._num_reported = len(self._made)
        depths = [self._book.depths[item] for item in self._made]
        metrics = {"items_crafted": len(self._made), "depth_reached": max(depths, default=0)}
        return replace(result, metrics=metrics)

    def _do(self, action: str) -> StepResult:
        command = parse(action, self.examples)
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
        return self._world.planner.plan(self._goal, self._held)[0].text

    def details(self) -> Mapping[str, JsonValue]:
        if not self._goal:
            return {}
        return {
            "goal": shown(self._goal),
            "depth": self._book.depths[self._goal],
            "commands": [recipe.text for recipe in self._commands],
            "inventory": {shown(item): count for item, count in self._held.items()},
        }

    def _get(self, command: Get) -> StepResult:
        name = self._book.find(command.item)
        if name is None:
            return _refuse(_no_item(command.item))
        kinds = self._book.generics.get(name, (name,))
        item = next((kind for kind in kinds if self._book.is_base(kind)), None)
        if item is None:
            return _refuse(f"You cannot get {shown(name)}: it has to be crafted.")
        self._add(item, command.count)
        return StepResult(f"Got {command.count} {shown(item)}.")

    def _craft(self, command: Craft) -> StepResult:
        item = self._book.find(command.item)
        if item is None:
            return _refuse(_no_item(command.item))
        if item in self._book.generics:
            told = self._kinds_of(item)
            return _refuse(f'"{shown(item)}" is a general name. Craft one of its kinds: {told}.')
        ingredients = self._fill(command.ingredients)
        if isinstance(ingredients, StepResult):
            return ingredients
        name = shown(item)
        if self._book.is_base(item):
            return _refuse(f"There is no recipe for {name}: get it instead.")
        match = self._book.match(item, ingredients)
        if match is None:
            return _refuse(f"No recipe for {name} uses exactly these ingredients and counts.")
        recipe, times = match
        makes = recipe.makes * times
        if command.count not in (None, makes):
            return _refuse(f"These ingredients make {makes} {name}, not {command.count}.")
        for kind, count in ingredients.items():
            held = self._held.get(kind, 0)
            if held < count:
                return _refuse(f"Not enough {shown(kind)}: you need {count} and have {held}.")
        for kind, count in ingredients.items():
            self._add(kind, -count)
        self._add(item, makes)
        return self._crafted(item, makes)

    def _fill(self, named: Sequence[tuple[str, int]]) -> dict[str, int] | StepResult:
        """Return how many of which items the names of ingredients mean, or the refusal."""
        items: dict[str, int] = {}
        for given, count in named:
            name = self._book.find(given)
            if name is None:
                return _refuse(_no_item(given))
            kinds = self._book.generics.get(name, (name,))
            if len(kinds) > 1:
                kinds = tuple(kind for kind in kinds if self._held.get(kind, 0) >= count)
            if not kinds:
                told = self._kinds_of(name)
                return _refuse(f"Not enough {shown(name)}: you need {count} of one kind ({told}).")
            if len(kinds) > 1:
                held = ", ".join(map(shown, kinds))
                return _refuse(f"Which {shown(name)}? You have enough of: {held}.")
            items[kinds[0]] = items.get(kinds[0], 0) + count
        return items

    def _crafted(self, item: str, count: int) -> StepResult:
        self._made.add(item)
        reply = f"Crafted {count} {shown(item)}."
        if item != self._goal:
            return StepResult(reply)
        return StepResult(f"{reply} The goal is reached.", 1.0, terminated=True, success=True)

    def _kinds_of(self, name: str) -> str:
        """Return the kinds of a set as one text."""
        kinds = self._book.generics[name]
        told = ", ".join(shown(kind) for kind in kinds[:_MAX_KINDS_TOLD])
        return told + ", and others" * (len(kinds) > _MAX_KINDS_TOLD)

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


def _refuse(reply: str) -> StepResult:
    return StepResult(reply, valid_action=False)


def _no_item(name: str) -> str:
    return f'There is no item called "{echo(shown(name))}".'
