"""A planner: the actions that lead from any inventory to a goal.

First it decides how each needed item is made, preferring what is held or planned anyway, so that
the plan has few different items. Then it adds up amounts from the goal downwards and emits one
`get` per base item and one `craft` per crafted item. Short plans, but not proven to be shortest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from types import MappingProxyType

from agentgym_rl.envs.scenarios.textcraft.actions import MAX_COUNT, Craft, Get
from agentgym_rl.envs.scenarios.textcraft.recipes import Recipe, RecipeBook, Slot


@dataclass(frozen=True, slots=True)
class Choice:
    """A recipe and the kind chosen for each of its slots, in their order."""

    recipe: Recipe
    kinds: tuple[str, ...]

    @property
    def amounts(self) -> tuple[tuple[str, int], ...]:
        """What one crafting consumes."""
        slots = self.recipe.slots
        return tuple((kind, slot.count) for kind, slot in zip(self.kinds, slots, strict=True))


class Planner:
    """Plans over one recipe book. Immutable after construction, so episodes may share it."""

    def __init__(self, book: RecipeBook) -> None:
        self._book = book
        self._options = MappingProxyType({item: _options(book, item) for item in book.goals})
        self._rank = _rank_items(self._options)

    def plan(self, goal: str, held: Mapping[str, int]) -> tuple[Get | Craft, ...]:
        """Return the actions that make one more `goal`; never empty."""
        choices = self.choose(goal, held)
        needed = Counter({goal: held.get(goal, 0) + 1})
        gets: list[Get] = []
        crafts: list[Craft] = []
        # Whatever consumes an item comes before it, so its need is complete when it is reached.
        for item in sorted(choices, key=self._rank.__getitem__, reverse=True):
            missing = needed[item] - held.get(item, 0)
            choice = choices[item]
            if missing <= 0:
                continue
            if choice is None:
                gets.append(Get(item, min(missing, MAX_COUNT)))
                continue
            times = -(-missing // choice.recipe.makes)
            amounts = tuple((kind, times * count) for kind, count in choice.amounts)
            needed.update(dict(amounts))
            crafts.append(Craft(item, times * choice.recipe.makes, amounts))
        return (*gets, *reversed(crafts))

    def choose(self, goal: str, held: Mapping[str, int]) -> dict[str, Choice | None]:
        """Return how to make the goal and everything below it; None stands for fetching.

        Items with a single way are settled first: what they need is then free for the others.
        """
        choices: dict[str, Choice | None] = {}
        waiting = {goal: None}
        while waiting:
            item = next((item for item in waiting if self._is_forced(item)), next(iter(waiting)))
            del waiting[item]
            choices[item] = choice = self._decide(item, held, choices.keys() | waiting.keys())
            if choice is not None:
                waiting.update(dict.fromkeys(k for k in choice.kinds if k not in choices))
        return choices

    def _is_forced(self, item: str) -> bool:
        options = self._options.get(item, ())
        return len(options) <= 1 and all(len(s.kinds) == 1 for r in options for s in r.slots)

    def _decide(self, item: str, held: Mapping[str, int], planned: set[str]) -> Choice | None:
        """Return the option that adds the fewest actions; the first of equals."""
        if self._book.is_base(item):
            return None
        known: dict[tuple[str, int], int] = {}

        def cost(kind: str, count: int) -> int:
            """Count the actions for this many of a kind, at most: shared parts count twice."""
            if kind in planned or held.get(kind, 0) >= count:
                return 0
            if (kind, count) not in known:
                options = self._options.get(kind, ())
                known[kind, count] = 1 + min((cost_of_recipe(r) for r in options), default=0)
            return known[kind, count]

        def cost_of_recipe(recipe: Recipe) -> int:
            return sum(min(cost(k, slot.count) for k in slot.kinds) for slot in recipe.slots)

        best = min(self._options[item], key=cost_of_recipe)
        kinds = (min(s.kinds, key=lambda k, n=s.count: cost(k, n)) for s in best.slots)
        return Choice(best, tuple(kinds))


def _options(book: RecipeBook, item: str) -> tuple[Recipe, ...]:
    """Return the item's recipes with only those kinds that are not deeper than the item.

    Deeper kinds are never needed, and the few circles in the book all lead through one
    ("sandstone slab" from "chiseled sandstone", which is made of slabs).
    """
    options = []
    for recipe in book.recipes_of[item]:
        slots = tuple(
            Slot(s.name, tuple(k for k in s.kinds if book.depths[k] <= book.depths[item]), s.count)
            for s in recipe.slots
        )
        if all(slot.kinds for slot in slots):
            options.append(Recipe(item, recipe.makes, slots))
    return tuple(options)


def _rank_items(options: Mapping[str, tuple[Recipe, ...]]) -> Mapping[str, int]:
    """Number the items so that ingredients come before what is made of them."""
    graph = {
        item: sorted({kind for recipe in recipes for slot in recipe.slots for kind in slot.kinds})
        for item, recipes in options.items()
    }
    order = TopologicalSorter(graph).static_order()
    return MappingProxyType({item: rank for rank, item in enumerate(order)})
