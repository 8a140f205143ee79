"""What experts think where they compare, count or remember: what the pages show, then what follows.

`Page.listed` reads what is compared from the screen, so that no thought says what is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from agentgym_rl.envs.scenarios.web.page import Page, Script

_MAX_TOLD = 12
_NUM_BEST = 3
"""Rows told of more than these."""
_MAX_CHARS = 180
"""Of all rows together; longer names are cut."""


def because(page: Page, thought: str, steps: Script) -> Script:
    """Take steps for a better reason than each of them has by itself, scrolling aside."""
    for action in steps:
        if not action.startswith("scroll"):
            page.thought = thought
        yield action


def told(
    rows: Iterable[Sequence[str]], rank: Callable[[Sequence[str]], float] | None = None
) -> str:
    """Return names with their values: "Once 2007; The Quiet Man 1952".

    Of many rows only the best are told: those of the lowest rank, or the first without one.
    """
    every = list(rows)
    best = sorted(every, key=rank) if rank else every
    some = best[:_NUM_BEST] if len(every) > _MAX_TOLD else every
    room = _MAX_CHARS // max(1, len(some))
    parts = [" ".join([_cut(name, room - len(" ".join(rest))), *rest]) for name, *rest in some]
    left = len(every) - len(some)
    return "; ".join([*parts, f"{left} others come after them"] if left else parts)


def counted(names: Sequence[str]) -> str:
    """Return names with their numbers: "101571 (1); 101573 (2)"."""
    room = _MAX_CHARS // max(1, len(names))
    return "; ".join(f"{_cut(name, room)} ({place})" for place, name in enumerate(names, 1))


def fact(page: Page, name: str) -> str:
    """Return what a row of a page's table of facts says: "Hours | 08:30-20:00"."""
    rows = page.listed(rf"^{name} \| (?:\[\d+\] link )?(.+)$")
    return rows[0][0] if rows else ""


def _cut(name: str, room: int) -> str:
    return name if len(name) <= max(room, 20) else name[: max(room, 20) - 3].rstrip() + "..."
