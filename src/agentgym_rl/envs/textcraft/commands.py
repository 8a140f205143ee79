"""The list of crafting commands that an episode shows: the needed ones among others.

Needed is one way to make the goal and everything below it, the planner's from an empty inventory.
The rest are distractors: recipes that use the same items first, then any.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from agentgym_rl.envs.textcraft.expert import load_planner
from agentgym_rl.envs.textcraft.minecraft import load_book
from agentgym_rl.envs.textcraft.recipes import Recipe


@dataclass(frozen=True, slots=True)
class Related:
    """The recipes around a goal, each group in the order of texts."""

    needed: tuple[Recipe, ...]
    similar: tuple[Recipe, ...]
    """Not needed, but they make or use an item that the needed ones make or use."""


@cache
def related_recipes(goal: str) -> Related:
    """Return the needed recipes of a goal and those which are easily taken for needed."""
    book = load_book()
    choices = load_planner().choose(goal, {})
    texts = {choice.recipe.text for choice in choices.values() if choice is not None}
    near = {
        recipe.text: recipe
        for item in choices
        for recipe in (*book.recipes_of.get(item, ()), *book.uses_of.get(item, ()))
    }
    return Related(
        needed=tuple(near[text] for text in sorted(texts)),
        similar=tuple(near[text] for text in sorted(near.keys() - texts)),
    )


def draw_commands(goal: str, *, num_distractors: int, rng: random.Random) -> tuple[Recipe, ...]:
    """Return the needed recipes and the distractors in random order.

    There are fewer distractors only where the book has no more recipes.
    """
    related = related_recipes(goal)
    distractors = _shuffled(related.similar, rng)[:num_distractors]
    if len(distractors) < num_distractors:
        others = _shuffled(_unrelated_recipes(goal), rng)
        distractors += others[: num_distractors - len(distractors)]
    return tuple(_shuffled((*related.needed, *distractors), rng))


@cache
def _unrelated_recipes(goal: str) -> tuple[Recipe, ...]:
    related = related_recipes(goal)
    taken = {recipe.text for recipe in (*related.needed, *related.similar)}
    return tuple(recipe for recipe in load_book().recipes if recipe.text not in taken)


def _shuffled(recipes: Sequence[Recipe], rng: random.Random) -> list[Recipe]:
    """Only `random()` is promised to stay the same over versions of Python, not `shuffle`."""
    keys = [rng.random() for _ in recipes]
    return [recipes[i] for i in sorted(range(len(recipes)), key=keys.__getitem__)]
