"""The recipe book: which items exist, how each is made, and how deep it lies.

A book is built once per process and never changes, so all episodes share it. Where recipes come
from is for `minecraft.py` and `generator.py` to say; inventories belong to `crafting.py`.

An item is named by an id without blanks ("oak_planks", as in the game) and shown with blanks
("oak planks"). A base item has no recipe; its depth is 0 and its supply unlimited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Slot:
    """One ingredient of a recipe: `count` pieces of one of the `kinds`, all of the same kind.

    Example: Slot(name="coal or charcoal", kinds=("coal", "charcoal"), count=1)
    """

    name: str
    """As shown to the agent: the item, or the name of the set where several kinds will do."""
    kinds: tuple[str, ...]
    """Shallowest first, then in an order of the book's own (the game's numbers, the alphabet)."""
    count: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """`makes` pieces of `output` from one filling of every slot. No two slots share a kind."""

    output: str
    makes: int
    slots: tuple[Slot, ...]
    text: str = field(init=False, repr=False, compare=False)
    """The command that agents are shown, e.g. "craft 4 stick using 2 planks"."""

    def __post_init__(self) -> None:
        # Kept rather than computed on demand: a list of commands is written at every reset.
        parts = ", ".join(f"{slot.count} {slot.name}" for slot in self.slots)
        text = f"craft {self.makes} {shown(self.output)} using {parts}"
        object.__setattr__(self, "text", text)


@dataclass(frozen=True, slots=True)
class RecipeBook:
    """All recipes with what follows from them. Build with `build_book`; immutable."""

    recipes: tuple[Recipe, ...]
    """In the order of their texts."""
    recipes_of: Mapping[str, tuple[Recipe, ...]]
    """Recipes by output; only craftable items are keys."""
    uses_of: Mapping[str, tuple[Recipe, ...]]
    """Recipes in which an item can be an ingredient."""
    depths: Mapping[str, int]
    """Depth of every item; 0 for base items."""
    generics: Mapping[str, tuple[str, ...]]
    """Kinds of each set by its name with underscores, e.g. "coal_or_charcoal"."""
    goals: tuple[str, ...]
    """Craftable items, shallow first and then by id: the canonical order of tasks."""

    def is_base(self, item: str) -> bool:
        """Whether the item has no recipe and can be fetched. The item must exist."""
        return self.depths[item] == 0

    def find(self, name: str) -> str | None:
        """Return the id of the item or set that a name means; None where it means none or several.

        An exact name always means itself. Otherwise singular and plural do not matter, where one
        reading is left: "sticks" is the item "stick", "oak plank" is "oak planks". "Oak logs" is
        itself a name, the set of everything that the recipes take as oak logs.
        """
        if self._has(name):
            return name
        others = [name.removesuffix(ending) for ending in ("s", "es") if name.endswith(ending)]
        if name.endswith("ies"):
            others.append(f"{name.removesuffix('ies')}y")
        readings = {other for other in (*others, f"{name}s") if self._has(other)}
        return readings.pop() if len(readings) == 1 else None

    def _has(self, name: str) -> bool:
        return name in self.depths or name in self.generics

    def match(self, output: str, ingredients: Mapping[str, int]) -> tuple[Recipe, int] | None:
        """Return the recipe that uses exactly these ingredients, and how many times.

        Every ingredient fills one slot alone and all counts are the same multiple of the
        recipe's; None where no recipe fits.
        """
        for recipe in self.recipes_of.get(output, ()):
            times = _times(recipe, ingredients)
            if times is not None:
                return recipe, times
        return None


def shown(item: str) -> str:
    """Return the item's name as agents see it."""
    return item.replace("_", " ")


def build_book(recipes: Sequence[Recipe]) -> RecipeBook:
    """Return the book of these recipes; it does not depend on their order.

    Raises ValueError when an item can never be made or two sets share a name.
    """
    ordered = tuple(sorted(recipes, key=lambda recipe: recipe.text))
    depths = find_depths(ordered)
    recipes_of: dict[str, list[Recipe]] = {}
    uses_of: dict[str, list[Recipe]] = {}
    for recipe in ordered:
        recipes_of.setdefault(recipe.output, []).append(recipe)
        for slot in recipe.slots:
            for kind in slot.kinds:
                uses_of.setdefault(kind, []).append(recipe)
    return RecipeBook(
        recipes=ordered,
        recipes_of=_freeze(recipes_of),
        uses_of=_freeze(uses_of),
        depths=MappingProxyType(depths),
        generics=MappingProxyType(_named_sets(ordered)),
        goals=tuple(sorted(recipes_of, key=lambda item: (depths[item], item))),
    )


def find_depths(recipes: Sequence[Recipe]) -> dict[str, int]:
    """Return the depth of every item: the least number of crafts on its longest branch.

    A base item has depth 0, a recipe 1 + the greatest depth among its slots, a slot the least depth
    among its kinds, an item the least among its recipes. Raising the bound one level at a time
    gives the least fixed point, so recipes that lead back to their own output do no harm.
    """
    outputs = {recipe.output for recipe in recipes}
    used = {kind for recipe in recipes for slot in recipe.slots for kind in slot.kinds}
    depths = dict.fromkeys(sorted(used - outputs), 0)
    waiting = list(recipes)
    level = 0
    while waiting:
        level += 1
        ready = {
            recipe.output
            for recipe in waiting
            if all(any(kind in depths for kind in slot.kinds) for slot in recipe.slots)
        }
        if not ready:
            raise ValueError(
                f"no way to make {sorted({r.output for r in waiting})} from base items"
            )
        depths.update(dict.fromkeys(sorted(ready), level))
        waiting = [recipe for recipe in waiting if recipe.output not in depths]
    return depths


def _times(recipe: Recipe, ingredients: Mapping[str, int]) -> int | None:
    """Return how many times the recipe is done by exactly these ingredients, None if it is not."""
    if len(recipe.slots) != len(ingredients):
        return None
    times = 0
    for slot in recipe.slots:
        counts = [count for kind, count in ingredients.items() if kind in slot.kinds]
        if len(counts) != 1:
            return None
        slot_times, rest = divmod(counts[0], slot.count)
        if rest or slot_times < 1 or times not in (0, slot_times):
            return None
        times = slot_times
    return times


def _named_sets(recipes: Sequence[Recipe]) -> dict[str, tuple[str, ...]]:
    sets: dict[str, tuple[str, ...]] = {}
    for slot in (slot for recipe in recipes for slot in recipe.slots if len(slot.kinds) > 1):
        kinds = sets.setdefault(slot.name.replace(" ", "_"), slot.kinds)
        if kinds != slot.kinds:
            raise ValueError(f"two different sets are called {slot.name!r}")
    return sets


def _freeze(index: dict[str, list[Recipe]]) -> Mapping[str, tuple[Recipe, ...]]:
    return MappingProxyType({item: tuple(recipes) for item, recipes in index.items()})
