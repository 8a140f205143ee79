"""Build minigrid's simulator of a level: silent, without images, and solvable.

Owns everything that adapts minigrid itself. What the agent sees and does is in view.py and
actions.py; they read the simulator's grid directly.
"""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
from minigrid.core.actions import Actions
from minigrid.core.constants import DIR_TO_VEC
from minigrid.core.world_object import Key, WorldObj
from minigrid.envs.babyai.core import roomgrid_level
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import AfterInstr, BeforeInstr, PutNextInstr

from agentgym_rl.envs.scenarios.babyai.levels import Level


def _print_nothing(*_values: object) -> None:
    """Stand in for `print` where minigrid reports every rejected draw of a mission."""


# Shadowing the name in that one module is safe with threads; redirecting stdout would not be.
roomgrid_level.__dict__["print"] = _print_nothing

HEADINGS = tuple((int(dx), int(dy)) for dx, dy in DIR_TO_VEC)
"""Unit vector of each heading: east, south, west, north. The next one is a turn to the right."""


class Pose(NamedTuple):
    """Where the agent stands and which of `HEADINGS` it looks along."""

    x: int
    y: int
    heading: int

    def after(self, action: Actions) -> Pose:
        """Return the pose after a move that nothing blocks; other actions leave it as it is."""
        if action == Actions.left:
            return Pose(self.x, self.y, (self.heading - 1) % 4)
        if action == Actions.right:
            return Pose(self.x, self.y, (self.heading + 1) % 4)
        if action == Actions.forward:
            dx, dy = HEADINGS[self.heading]
            return Pose(self.x + dx, self.y + dy, self.heading)
        return self


def pose_of(simulator: RoomGridLevel) -> Pose:
    """Return the agent's pose in plain integers (the simulator mixes in numpy's)."""
    x, y = simulator.agent_pos
    return Pose(int(x), int(y), int(simulator.agent_dir))


def has_key_of(simulator: RoomGridLevel, door: WorldObj) -> bool:
    """Whether the agent carries a key of the door's colour."""
    carried = simulator.carrying
    return isinstance(carried, Key) and carried.color == door.color


def make_simulator(level: Level, seed: int) -> RoomGridLevel:
    simulator = gymnasium.make(level.gym_id, disable_env_checker=True).unwrapped
    assert isinstance(simulator, RoomGridLevel)
    # The image is most of a step's time and nobody reads it: view.py looks at the grid itself.
    simulator.__dict__["gen_obs"] = _no_image
    simulator.reset(seed=seed)
    _mend_strict_order(simulator)
    _mend_first_drop(simulator)
    return simulator


def dismantle(simulator: RoomGridLevel) -> None:
    """Take a simulator apart that is not used any more.

    Rooms refer to their neighbours and missions to the simulator, so that only Python's collector
    would free the hundreds of objects of each.
    """
    for room in (room for row in simulator.room_grid for room in row):
        room.neighbors.clear()
    simulator.__dict__.clear()


def _no_image() -> None:
    """Stand in for the simulator's drawing of its view."""


def _mend_strict_order(simulator: RoomGridLevel) -> None:
    """Make ordered missions with a strict second part solvable (OpenDoorsOrderN4Debug).

    minigrid shows the action that fulfils the first part to the second part too, and a strict
    second part takes it for opening a wrong door: no sequence of actions could succeed.
    """
    mission = simulator.instrs
    if isinstance(mission, BeforeInstr):
        mended: BeforeInstr | AfterInstr = _MendedBefore(mission.instr_a, mission.instr_b)
    elif isinstance(mission, AfterInstr):
        mended = _MendedAfter(mission.instr_a, mission.instr_b)
    else:
        return
    mended.strict = mission.strict
    simulator.instrs = mended
    mended.reset_verifier(simulator)


def _mend_first_drop(simulator: RoomGridLevel) -> None:
    """Let a drop count as the very first step where the agent starts with the object in hand.

    minigrid hands the object over only after it has told the mission what is carried.
    """
    if isinstance(simulator.instrs, PutNextInstr):
        simulator.instrs.preCarrying = simulator.carrying


class _MendedBefore(BeforeInstr):
    """A before B, where fulfilling A never fails B."""

    def verify(self, action: Actions) -> str:
        was_done = self.a_done == "success"
        status = super().verify(action)
        is_first_done = not was_done and self.a_done == "success"
        return "continue" if is_first_done and status == "failure" else status


class _MendedAfter(AfterInstr):
    """A after B, where fulfilling B never fails A."""

    def verify(self, action: Actions) -> str:
        was_done = self.b_done == "success"
        status = super().verify(action)
        is_first_done = not was_done and self.b_done == "success"
        return "continue" if is_first_done and status == "failure" else status
