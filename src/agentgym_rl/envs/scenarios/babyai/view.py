"""What the agent sees, as things with names, and as text.

The field of view is minigrid's: 7 cells ahead, 3 to each side, walls and shut doors hide what is
behind them. Which actions follow from it is left to actions.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from minigrid.core.grid import Grid
from minigrid.core.world_object import Door, Wall, WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from agentgym_rl.envs.scenarios.babyai.simulator import HEADINGS, pose_of

_DEPTH = 7
_SIDES = range(-3, 4)
_OUTSIDE = Wall()
"""Stands for every cell beyond the border of the grid."""

KINDS = ("ball", "box", "key", "door")


class Cell(NamedTuple):
    """One visible cell; `ahead` and `right` are relative to the agent, `x` and `y` to the grid."""

    x: int
    y: int
    ahead: int
    right: int
    content: WorldObj | None


@dataclass(frozen=True, slots=True)
class Thing:
    """One visible object or door, with the name the agent knows it by.

    Example: Thing(name="red ball", number=2, cell=Cell(x=4, y=1, ahead=3, right=-1, ...), state="")
    is shown as "red ball 2: 3 ahead, 1 left".
    """

    name: str
    """Colour and kind."""
    number: int
    """Counts the visible things of equal name, nearest first, from 1."""
    cell: Cell
    state: str
    """"open", "closed" or "locked" for a door, empty otherwise."""

    @property
    def label(self) -> str:
        return f"{self.name} {self.number}"

    @property
    def kind(self) -> str:
        return self.name.rpartition(" ")[2]

    @property
    def is_door(self) -> bool:
        return bool(self.state)


@dataclass(frozen=True, slots=True)
class View:
    """Everything visible from one pose."""

    cells: tuple[Cell, ...]
    things: tuple[Thing, ...]
    """Nearest first."""


def look(simulator: RoomGridLevel) -> View:
    """Return what the agent sees now. Its own cell is among the cells, but holds no thing."""
    cells = visible_cells(simulator)
    objects = [
        cell
        for cell in cells
        if cell.content is not None and cell.content.type in KINDS and (cell.ahead or cell.right)
    ]
    objects.sort(key=lambda cell: (cell.ahead + abs(cell.right), abs(cell.right), cell.right))
    counts: Counter[str] = Counter()
    things = []
    for cell in objects:
        assert cell.content is not None
        name = name_of(cell.content)
        counts[name] += 1
        things.append(Thing(name, counts[name], cell, door_state(cell.content)))
    return View(tuple(cells), tuple(things))


def describe(view: View, carried: WorldObj | None) -> str:
    """Return the view as text: one line per thing, the wall straight ahead, what is carried."""
    lines = [_thing_line(thing) for thing in view.things] or ["no objects in view"]
    wall = _wall_distance(view)
    if wall is not None:
        lines.append(f"wall: {wall} ahead")
    lines.append(f"carrying: {name_of(carried) if carried else 'nothing'}")
    return "\n".join(lines)


def name_of(content: WorldObj) -> str:
    """Return colour and kind, e.g. "red ball"."""
    return f"{content.color} {content.type}"


def door_state(content: WorldObj) -> str:
    """Return "open", "closed" or "locked"; empty for anything that is not a door."""
    if not isinstance(content, Door):
        return ""
    if content.is_open:
        return "open"
    return "locked" if content.is_locked else "closed"


def visible_cells(simulator: RoomGridLevel) -> list[Cell]:
    """Return the visible cells of the grid, row by row from the agent's own.

    Light spreads as in minigrid's `Grid.process_vis`: along each row to the right, then to the
    left, and from each lit transparent cell to the next row. A test holds the two equal.
    """
    x, y, heading = pose_of(simulator)
    dx, dy = HEADINGS[heading]
    lit = [right == 0 for right in _SIDES]
    cells: list[Cell] = []
    for ahead in range(_DEPTH):
        places = [(x + dx * ahead - dy * right, y + dy * ahead + dx * right) for right in _SIDES]
        contents = [_content(simulator.grid, i, j) for i, j in places]
        lit, next_lit = _spread(lit, [c is None or c.see_behind() for c in contents])
        for right, (i, j), content, is_lit in zip(_SIDES, places, contents, lit, strict=True):
            if is_lit and content is not _OUTSIDE:
                cells.append(Cell(i, j, ahead, right, content))
        lit = next_lit
    return cells


def _content(grid: Grid, x: int, y: int) -> WorldObj | None:
    if 0 <= x < grid.width and 0 <= y < grid.height:
        return grid.grid[y * grid.width + x]
    return _OUTSIDE


def _spread(lit: list[bool], transparent: list[bool]) -> tuple[list[bool], list[bool]]:
    """Return which cells of this row and of the next one are lit, given those lit from below."""
    lit, beyond = lit.copy(), [False] * len(lit)
    last = len(lit) - 1
    for order, step in ((range(last), 1), (range(last, 0, -1), -1)):
        for i in order:
            if lit[i] and transparent[i]:
                lit[i + step] = beyond[i + step] = beyond[i] = True
    return lit, beyond


def _thing_line(thing: Thing) -> str:
    parts = [thing.state] if thing.state else []
    if thing.cell.ahead:
        parts.append(f"{thing.cell.ahead} ahead")
    if thing.cell.right:
        side = "right" if thing.cell.right > 0 else "left"
        parts.append(f"{abs(thing.cell.right)} {side}")
    return f"{thing.label}: {', '.join(parts)}"


def _wall_distance(view: View) -> int | None:
    """Return how many steps ahead the nearest visible wall is; None when none is in sight."""
    for cell in view.cells:
        if cell.right == 0 and cell.content is not None and cell.content.type == "wall":
            return cell.ahead
    return None
