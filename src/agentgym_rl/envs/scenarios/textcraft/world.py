"""A recipe book with what episodes need of it: the planner and the lists of commands.

Built once per book and shared by all episodes in it; nothing an episode does changes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.envs.scenarios.textcraft.commands import CommandLists
from agentgym_rl.envs.scenarios.textcraft.expert import Planner
from agentgym_rl.envs.scenarios.textcraft.recipes import RecipeBook


@dataclass(frozen=True, slots=True)
class CraftingWorld:
    """One recipe book. Build with `build_world`."""

    book: RecipeBook
    planner: Planner
    commands: CommandLists


def build_world(book: RecipeBook) -> CraftingWorld:
    """Return the book with its planner and lists of commands."""
    planner = Planner(book)
    return CraftingWorld(book, planner, CommandLists(book, planner))
