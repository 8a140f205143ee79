"""A recipe book with what episodes need of it: the planner, and lists of crafting commands.

A list has the commands that a goal needs among others. Needed is one way to make the goal and
everything below it, the planner's from an empty inventory. The rest are distractors: recipes that
use the same items first, then any.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.envs.scenarios.textcraft.draws import Draws
from agentgym_rl.envs.scenarios.textcraft.expert import Planner
from agentgym_rl.envs.scenarios.textcraft.recipes import Recipe, RecipeBook


@dataclass(frozen=True, slots=True)
class Related:
    """The recipes of a book as a goal divides them, each group in the order of texts."""

    needed: tuple[Recipe, ...]
    similar: tuple[Recipe, ...]
    """Not needed, but they make or use an item that the needed ones make or use."""
    others: tuple[Recipe, ...]


class CraftingWorld:
    """One recipe book. Episodes share it; it only remembers what it found."""

    def __init__(self, book: RecipeBook) -> None:
        self.book = book
        self.planner = Planner(book)
        self._related: dict[str, Related] = {}

    def draw_commands(self, goal: str, *, num_distractors: int, draws: Draws) -> tuple[Recipe, ...]:
        """Return the needed recipes and the distractors in random order.

        There are fewer distractors only where the book has no more recipes.
        """
        related = self._related.get(goal)
        if related is None:
            related = self._related[goal] = self._divide(goal)
        distractors = draws.shuffled(related.similar)[:num_distractors]
        if len(distractors) < num_distractors:
            others = draws.shuffled(related.others)
            distractors += others[: num_distractors - len(distractors)]
        return tuple(draws.shuffled((*related.needed, *distractors)))

    def _divide(self, goal: str) -> Related:
        """Find the needed recipes of a goal and those which are easily taken for needed."""
        choices = self.planner.choose(goal, {})
        needed = {choice.recipe.text for choice in choices.values() if choice is not None}
        near = {
            recipe.text: recipe
            for item in choices
            for recipe in (*self.book.recipes_of.get(item, ()), *self.book.uses_of.get(item, ()))
        }
        return Related(
            needed=tuple(near[text] for text in sorted(needed)),
            similar=tuple(near[text] for text in sorted(near.keys() - needed)),
            others=tuple(recipe for recipe in self.book.recipes if recipe.text not in near),
        )
