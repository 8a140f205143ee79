"""What an agent can say: `get`, `craft` and `inventory`, as text and as values.

`parse` knows the grammar only; whether an item exists or a recipe fits is for `crafting.py` to say.

    get        := "get" INT NAME
    craft      := "craft" [INT] NAME "using" INT NAME { "," INT NAME }
    inventory  := "inventory"

Decoration does not matter: case, extra blanks, quotes, backticks, asterisks and brackets, a final
period, "2x" for "2", "and" before a count, underscores for blanks, and the prefix "minecraft:" of
the game's ids.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from agentgym_rl.envs.scenarios.decoration import undecorated
from agentgym_rl.envs.scenarios.textcraft.recipes import shown

MAX_COUNT = 999
"""Greatest number in an action. No goal needs more than 99 of anything."""

_MAX_CHARS = 2000
_MAX_ECHO_CHARS = 60
_GET = re.compile(r"get ([0-9]+)x? (.+)")
_CRAFT = re.compile(r"craft (?:([0-9]+)x? )?(.+?) using (.+)")
_INGREDIENT = re.compile(r"([0-9]+)x? (.+)")
_NEXT_INGREDIENT = re.compile(r" ?, ?(?:and )?| and (?=[0-9])")


@dataclass(frozen=True, slots=True)
class Get:
    """Fetch `count` pieces of a base item."""

    item: str
    """An item, or a set of which any will do ("oak_logs")."""
    count: int

    @property
    def text(self) -> str:
        return f"get {self.count} {shown(self.item)}"


@dataclass(frozen=True, slots=True)
class Craft:
    """Make `count` pieces of `item` out of exactly these ingredients.

    Example: Craft(item="stick", count=4, ingredients=(("oak_planks", 2),))
    """

    item: str
    count: int | None
    """None where the agent left it to the recipe."""
    ingredients: tuple[tuple[str, int], ...]
    """Each item once."""

    @property
    def text(self) -> str:
        parts = ", ".join(f"{count} {shown(item)}" for item, count in self.ingredients)
        number = "" if self.count is None else f"{self.count} "
        return f"craft {number}{shown(self.item)} using {parts}"


@dataclass(frozen=True, slots=True)
class Inventory:
    """Look at what is held."""


@dataclass(frozen=True, slots=True)
class CraftingMistake:
    """The text is not an action; `reply` says why."""

    reply: str


@dataclass(frozen=True, slots=True)
class Examples:
    """One action of each kind, for replies to an agent that got the form wrong."""

    get: str = "get 1 oak log"
    craft: str = "craft 4 oak planks using 1 oak log"


MINECRAFT_EXAMPLES = Examples()

Action: TypeAlias = Get | Craft | Inventory


def parse(text: str, examples: Examples = MINECRAFT_EXAMPLES) -> Action | CraftingMistake:
    """Read any text; names come back as ids of items or sets, but need not exist."""
    if len(text) > _MAX_CHARS:
        return CraftingMistake(f"The action is too long: at most {_MAX_CHARS} characters.")
    plain = undecorated(text.lower().replace("'", " "))
    verb = plain.partition(" ")[0]
    if verb == "get":
        return _parse_get(plain, examples)
    if verb == "craft":
        return _parse_craft(plain, examples)
    if verb == "inventory":
        return Inventory()
    return CraftingMistake(f'"{echo(plain)}" is not an action. Use get, craft or inventory.')


def echo(text: str) -> str:
    """Return the agent's own text fit for a reply: short, and without unprintable characters."""
    head = "".join(char if char.isprintable() else "?" for char in text[:_MAX_ECHO_CHARS])
    return head if len(text) <= _MAX_ECHO_CHARS else head + "..."


def _parse_get(plain: str, examples: Examples) -> Get | CraftingMistake:
    match = _GET.fullmatch(plain)
    if match is None:
        return CraftingMistake(f'Say how many of what to get, for example "{examples.get}".')
    count = _read_count(match[1])
    return count if isinstance(count, CraftingMistake) else Get(_item_id(match[2]), count)


def _parse_craft(plain: str, examples: Examples) -> Craft | CraftingMistake:
    match = _CRAFT.fullmatch(plain)
    if match is None:
        return CraftingMistake(f'Say what to craft and from what, for example "{examples.craft}".')
    makes = None if match[1] is None else _read_count(match[1])
    if isinstance(makes, CraftingMistake):
        return makes
    ingredients: dict[str, int] = {}
    for part in _NEXT_INGREDIENT.split(match[3]):
        found = _INGREDIENT.fullmatch(part)
        if found is None:
            return CraftingMistake(f'The ingredient "{echo(part)}" needs a count and a name.')
        count = _read_count(found[1])
        if isinstance(count, CraftingMistake):
            return count
        item = _item_id(found[2])
        ingredients[item] = ingredients.get(item, 0) + count
    return Craft(_item_id(match[2]), makes, tuple(ingredients.items()))


def _read_count(digits: str) -> int | CraftingMistake:
    """Read a count. The length is looked at first: Python refuses to read very long numbers."""
    digits = digits.lstrip("0")
    if not digits:
        return CraftingMistake("A count must be at least 1.")
    if len(digits) > len(str(MAX_COUNT)) or int(digits) > MAX_COUNT:
        return CraftingMistake(f"A count can be at most {MAX_COUNT}.")
    return int(digits)


def _item_id(name: str) -> str:
    return name.strip().removeprefix("minecraft:").strip().replace(" ", "_")
