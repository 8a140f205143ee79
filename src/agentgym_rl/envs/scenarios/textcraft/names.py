"""Which item or set of items a name in an action means.

An exact name always means itself. Otherwise the number does not matter, where one reading is left:
"sticks" is the item "stick", "oak plank" is "oak planks". "Oak logs" is a name of its own, the set
of everything that the recipes take as oak logs.
"""

from __future__ import annotations

from agentgym_rl.envs.scenarios.textcraft.recipes import RecipeBook


def find_name(book: RecipeBook, name: str) -> str | None:
    """Return the id of the item or set that a name means; None where it means none or several.

    >>> find_name(load_book(), "torches")
    'torch'
    """
    if _is_known(book, name):
        return name
    readings = {other for other in _other_numbers(name) if _is_known(book, other)}
    return readings.pop() if len(readings) == 1 else None


def _is_known(book: RecipeBook, name: str) -> bool:
    return name in book.depths or name in book.generics


def _other_numbers(name: str) -> tuple[str, ...]:
    """Return the singulars that a plural may have, and the plural of a singular."""
    singulars = [name.removesuffix(ending) for ending in ("s", "es") if name.endswith(ending)]
    if name.endswith("ies"):
        singulars.append(f"{name.removesuffix('ies')}y")
    return (*singulars, f"{name}s")
