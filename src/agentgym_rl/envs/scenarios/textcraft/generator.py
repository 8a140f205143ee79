"""Recipe books of invented items, made from nothing but a number.

A book has base items and, for every depth from 1 to 8, the same number of goals. Its number decides
everything in it, on any machine. Names are an invented word and a noun ("volorn coil"); the
invented words of training and of testing have nothing in common.

How hard a goal can be is bounded while its recipe is drawn: everything that could possibly go
into it, by any recipe and any kind, counts towards `max_plan_rounds`, and the amount of any one
item towards `MAX_AMOUNT`. A planner that never makes what it does not need keeps within both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache

from agentgym_rl.envs.scenarios.textcraft.draws import Draws
from agentgym_rl.envs.scenarios.textcraft.recipes import Recipe, Slot, build_book, shown
from agentgym_rl.envs.scenarios.textcraft.world import CraftingWorld

MAX_DEPTH = 8
GOALS_PER_DEPTH = 5
GOALS_PER_BOOK = MAX_DEPTH * GOALS_PER_DEPTH
NUM_BASE_ITEMS = 16
MAX_AMOUNT = 99
"""Most pieces of any one item that a goal can take."""

NUM_BOOKS = {"test": 50, "train": 150}
"""Books of each split, numbered on from one to the next: 2000 and 6000 goals."""

# Two syllables make an invented word; the lists avoid words that mean something.
_FIRST = (
    *("ba", "be", "bo", "do", "fe", "fo", "ga", "ha", "ja", "ke", "la", "lo", "lu", "ma", "me"),
    *("mo", "na", "no", "pa", "ra", "re", "ro", "sa", "so", "ta", "to", "va", "ve", "vo", "wa"),
    *("ze", "zo"),
)
_SECOND = (
    *("bor", "dal", "dren", "fal", "gan", "gor", "kesh", "lan", "lim", "lorn", "mar", "mir"),
    *("mund", "nath", "nel", "pell", "quin", "rask", "rel", "ris", "sel", "ston", "thor"),
    *("tol", "tum", "van", "vek", "wick", "zan"),
)
_NOUNS = (
    *("bark", "bead", "bell", "bolt", "brush", "cap", "chain", "clasp", "cloth", "coil", "cord"),
    *("core", "crate", "crown", "disc", "drum", "dust", "fibre", "frame", "gear", "glass"),
    *("hinge", "hook", "jar", "key", "lamp", "latch", "lens", "lever", "mask", "mesh", "moss"),
    *("needle", "oil", "panel", "paste", "pipe", "plate", "pump", "resin", "ring", "rod", "rope"),
    *("salt", "sand", "shell", "spool", "spring", "strap", "thread", "tile", "tube", "valve"),
    *("vane", "wax", "wheel", "wire", "yarn"),
)


def max_plan_rounds(depth: int) -> int:
    """Return the most rounds that a plan for a goal of this depth can take: 4, 7, ... 25."""
    return 3 * depth + 1


def split_of_book(number: int) -> str:
    """Return the split of a book. Raises ValueError where there is no such book."""
    first = 0
    for split, num_books in NUM_BOOKS.items():
        if first <= number < first + num_books:
            return split
        first += num_books
    raise ValueError(f"there are books 0 to {first - 1}, not {number}")


@lru_cache(maxsize=sum(NUM_BOOKS.values()))
def load_generated_world(number: int) -> CraftingWorld:
    """Return the world of a book; built when a process first asks for it."""
    draft = _Draft(number)
    for depth in range(1, MAX_DEPTH + 1):
        draft.add_goals(depth)
    return CraftingWorld(build_book(draft.recipes))


class _Draft:
    """A book while it is being drawn, from shallow to deep."""

    def __init__(self, number: int) -> None:
        self._draws = Draws(f"textcraft recipe book {number}")
        words = self._draws.shuffled(_words_of(split_of_book(number)))
        self._names = [f"{word}_{self._draws.choice(_NOUNS)}" for word in words]
        self._items_at: list[list[str]] = [self._take_names(NUM_BASE_ITEMS)]
        self._demands: dict[str, Counter[str]] = {item: Counter() for item in self._items_at[0]}
        """For each item, everything that could go into one piece, and at most how many."""
        self._depths = dict.fromkeys(self._items_at[0], 0)
        self.recipes: list[Recipe] = []

    def add_goals(self, depth: int) -> None:
        """Draw the goals of the next depth."""
        goals = self._take_names(GOALS_PER_DEPTH)
        for goal in goals:
            self._depths[goal] = depth
            self._demands[goal] = Counter()
            taken: set[str] = set()
            for _ in range(2 if self._draws.chance(0.2) else 1):
                self._add_recipe(goal, taken)
        self._items_at.append(goals)

    def _add_recipe(self, goal: str, taken: set[str]) -> None:
        """Draw a recipe for the goal, if its bounds leave room for one more.

        The first slot takes only kinds of the depth below, which makes the goal's depth exact.
        `taken` are the kinds that slots of the goal name already; no two slots share one.
        """
        slots: list[Slot] = []
        for place in range(self._draws.choice((1, 2, 2, 2, 3))):
            pool = self._items_at[-1] if place == 0 else self._shallower_items()
            slot = self._fitting_slot(goal, [item for item in pool if item not in taken])
            if slot is not None:
                slots.append(slot)
                taken.update(slot.kinds)
                self._demands[goal] = self._demand_with(goal, slot)
            elif place == 0:
                return
        makes = self._draws.choice((1, 1, 1, 2, 2, 3, 4))
        self.recipes.append(Recipe(goal, makes, tuple(slots)))

    def _fitting_slot(self, goal: str, items: Sequence[str]) -> Slot | None:
        """Draw a slot over the items; a single piece where more would break the bounds.

        A single piece of any item of the depth below always fits into the first recipe.
        """
        if not items:
            return None
        drawn = self._draw_slot(items)
        for slot in (drawn, _slot(drawn.kinds[:1], 1)):
            if self._is_within_bounds(goal, self._demand_with(goal, slot)):
                return slot
        return None

    def _shallower_items(self) -> list[str]:
        """Return base items or those of some depth below the goal's."""
        if self._draws.chance(0.6):
            return self._items_at[0]
        return self._draws.choice(self._items_at)

    def _draw_slot(self, items: Sequence[str]) -> Slot:
        """Draw one kind or, now and then, two kinds and a count."""
        kinds = self._draws.shuffled(items)[: 2 if self._draws.chance(0.2) else 1]
        kinds.sort(key=lambda kind: (self._depths[kind], kind))
        most = 4 if self._depths[kinds[-1]] == 0 else 2
        return _slot(kinds, self._draws.between(1, most))

    def _demand_with(self, goal: str, slot: Slot) -> Counter[str]:
        """Return the goal's demand when it has this slot too."""
        total = Counter(self._demands[goal])
        for kind in slot.kinds:
            total[kind] += slot.count
            for item, count in self._demands[kind].items():
                total[item] += slot.count * count
        return total

    def _is_within_bounds(self, goal: str, demand: Counter[str]) -> bool:
        """The goal itself takes one round, and so does each item of the demand."""
        num_rounds = 1 + len(demand)
        return (
            num_rounds <= max_plan_rounds(self._depths[goal]) and max(demand.values()) <= MAX_AMOUNT
        )

    def _take_names(self, number: int) -> list[str]:
        taken, self._names = self._names[:number], self._names[number:]
        return taken


@cache
def _words_of(split: str) -> tuple[str, ...]:
    """Return the invented words of a split: every split has its own."""
    words = Draws("textcraft invented words").shuffled([a + b for a in _FIRST for b in _SECOND])
    place = list(NUM_BOOKS).index(split)
    return tuple(words[place :: len(NUM_BOOKS)])


def _slot(kinds: Sequence[str], count: int) -> Slot:
    return Slot(" or ".join(shown(kind) for kind in kinds), tuple(kinds), count)
