"""Shortest ways for the agent over the free cells it has seen in this episode.

Free is an empty cell or an open door. Nothing moves but by the agent's own hand, so a cell that was
seen once is as it was left, and the simulator's grid may be read for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Set as AbstractSet

from minigrid.core.actions import Actions
from minigrid.core.grid import Grid

from agentgym_rl.envs.babyai.simulator import HEADINGS, Pose

_MOVES = (Actions.forward, Actions.left, Actions.right)


class Routes:
    """Every pose that can be reached from `start`, and the shortest way to it."""

    def __init__(self, grid: Grid, start: Pose, seen: AbstractSet[tuple[int, int]]) -> None:
        self._grid = grid
        self._seen = seen
        self._steps: dict[Pose, tuple[Pose, Actions, int] | None] = {start: None}
        self._search(start)

    def to_face(self, x: int, y: int) -> tuple[Actions, ...] | None:
        """Return the shortest way to stand before a cell and look at it; None if there is none."""
        poses = (Pose(x - dx, y - dy, heading) for heading, (dx, dy) in enumerate(HEADINGS))
        return self._shortest(*poses)

    def to_enter(self, x: int, y: int) -> tuple[Actions, ...] | None:
        """Return the shortest way onto a cell, with any heading; None when there is none."""
        return self._shortest(*(Pose(x, y, heading) for heading in range(len(HEADINGS))))

    def _search(self, start: Pose) -> None:
        queue = deque([(start, 1)])
        while queue:
            pose, depth = queue.popleft()
            for action in _MOVES:
                following = pose.after(action)
                if following in self._steps:
                    continue
                if action == Actions.forward and not self._is_free(following):
                    continue
                self._steps[following] = (pose, action, depth)
                queue.append((following, depth + 1))

    def _is_free(self, pose: Pose) -> bool:
        cell = (pose.x, pose.y)
        if cell not in self._seen:
            return False
        content = self._grid.get(*cell)
        return content is None or content.can_overlap()

    def _shortest(self, *poses: Pose) -> tuple[Actions, ...] | None:
        reached = [pose for pose in poses if pose in self._steps]
        if not reached:
            return None
        return self._way(min(reached, key=self._depth))

    def _depth(self, pose: Pose) -> int:
        step = self._steps[pose]
        return step[2] if step else 0

    def _way(self, pose: Pose) -> tuple[Actions, ...]:
        actions = []
        while step := self._steps[pose]:
            pose, action, _ = step
            actions.append(action)
        return tuple(reversed(actions))
