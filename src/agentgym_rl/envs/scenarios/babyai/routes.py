"""Shortest ways for the agent over the free cells it has seen in this episode.

Free is an empty cell or an open door. Nothing moves but by the agent's own hand, so a cell that was
seen once is as it was left, and the simulator's grid may be read for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from minigrid.core.actions import Actions
from minigrid.core.grid import Grid

from agentgym_rl.envs.scenarios.babyai.simulator import HEADINGS, Pose

# A pose as a bare triple (x, y, heading): the search makes thousands of them.
_Triple = tuple[int, int, int]


class Routes:
    """Shortest ways from `start`, found by breadth-first search as far as questions need it."""

    def __init__(self, grid: Grid, start: Pose, seen: AbstractSet[tuple[int, int]]) -> None:
        self._grid = grid
        self._seen = seen
        # How each pose was reached first, and as which one: among ways of equal length the earliest
        # found is taken, so an answer does not depend on what was asked before.
        self._reached: dict[_Triple, tuple[_Triple, Actions, int] | None] = {start: None}
        self._queue: deque[_Triple] = deque([start])

    def to_face(self, x: int, y: int) -> tuple[Actions, ...] | None:
        """Return the shortest way to stand before a cell and look at it; None if there is none."""
        return self._shortest(
            (x - dx, y - dy, heading) for heading, (dx, dy) in enumerate(HEADINGS)
        )

    def to_enter(self, x: int, y: int) -> tuple[Actions, ...] | None:
        """Return the shortest way onto a cell, with any heading; None when there is none."""
        return self._shortest((x, y, heading) for heading in range(len(HEADINGS)))

    def _shortest(self, poses: Iterable[_Triple]) -> tuple[Actions, ...] | None:
        goals = set(poses)
        while not (found := goals & self._reached.keys()):
            if not self._queue:
                return None
            self._search_on(self._queue.popleft())
        return self._way(min(found, key=self._rank))

    def _search_on(self, pose: _Triple) -> None:
        x, y, heading = pose
        dx, dy = HEADINGS[heading]
        ahead = (x + dx, y + dy, heading)
        if ahead not in self._reached and self._is_free(x + dx, y + dy):
            self._reach(ahead, pose, Actions.forward)
        for action, turned in (
            (Actions.left, (heading - 1) % 4),
            (Actions.right, (heading + 1) % 4),
        ):
            if (x, y, turned) not in self._reached:
                self._reach((x, y, turned), pose, action)

    def _reach(self, pose: _Triple, previous: _Triple, action: Actions) -> None:
        self._reached[pose] = (previous, action, len(self._reached))
        self._queue.append(pose)

    def _is_free(self, x: int, y: int) -> bool:
        if (x, y) not in self._seen:
            return False
        content = self._grid.get(x, y)
        return content is None or content.can_overlap()

    def _rank(self, pose: _Triple) -> int:
        step = self._reached[pose]
        return step[2] if step else 0

    def _way(self, pose: _Triple) -> tuple[Actions, ...]:
        actions = []
        while step := self._reached[pose]:
            pose, action, _ = step
            actions.append(action)
        return tuple(reversed(actions))
