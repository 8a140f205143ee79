"""A solver that works in steps of the simulator: minigrid's BabyAIBot with its gaps closed.

minigrid's bot plans from the start of an episode only. `Bot` starts from any moment: it knows which
cells were seen, which parts of the mission are done and what is carried. Turning its steps into the
agent's actions is left to expert.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeGuard

from minigrid.core.actions import Actions
from minigrid.core.world_object import Door, WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    ActionInstr,
    AfterInstr,
    Instr,
    ObjDesc,
    PutNextInstr,
    SeqInstr,
)
from minigrid.utils.baby_ai_bot import (
    BabyAIBot,
    DropSubgoal,
    ExploreSubgoal,
    GoNextToSubgoal,
    OpenSubgoal,
    Subgoal,
)

from agentgym_rl.envs.scenarios.babyai.simulator import has_key_of
from agentgym_rl.envs.scenarios.babyai.view import visible_cells

_MAX_SEARCHES = 60
"""Searches for a way within one decision; more than this is a loop without end."""

_Place = tuple[int, int]
_Step = tuple[int, int, int, int]
"""A place and the direction in which it was entered."""
_Accept = Callable[[_Place, WorldObj | None], bool]


class StuckError(Exception):
    """The bot goes in circles without deciding on a step."""


class Bot(BabyAIBot):
    """Decides on steps that fulfil what is left of the simulator's mission.

    Keeps reading `simulator`, which the caller steps between two calls of `replan`.
    """

    def __init__(self, simulator: RoomGridLevel, seen: Iterable[tuple[int, int]]) -> None:
        super().__init__(simulator)
        for cell in seen:
            self.vis_mask[cell] = True
        self._process_obs()
        self._num_searches = 0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left on the plan."""
        return not self.stack

    def plan_only_drop(self) -> None:
        """Replace the plan: put down what is carried where it is not in the way."""
        place = self._find_drop_pos()
        self.stack = _Plan([DropSubgoal(self), GoNextToSubgoal(self, place)])

    def plan_only_open_box(self) -> None:
        """Replace the plan: find a box and open it."""
        box = ObjDesc("box")
        box.find_matching_objs(self.mission)
        self.stack = _Plan([_OpenBox(self), GoNextToSubgoal(self, box)])

    def replan(self, action_taken: Actions | None = None) -> Actions:
        """Return the next step; `Actions.done` when nothing is left on the plan."""
        self._num_searches = 0
        return super().replan(action_taken)

    # The names and shapes of the following methods are the base class's.

    def _breadth_first_search(
        self, initial_states: Iterable[_Step], accept_fn: _Accept, ignore_blockers: bool
    ) -> tuple[list[_Place] | None, _Place | None, dict[_Place, _Place | None]]:
        """Return the way to the nearest accepted place backwards, that place, and all ways.

        Finds what the base class finds, but on a queue that is not copied at every step: the
        search is most of the time of a decision.
        """
        self._num_searches += 1
        if self._num_searches > _MAX_SEARCHES:
            raise StuckError
        grid = self.mission.grid
        queue = deque((int(x), int(y), int(dx), int(dy)) for x, y, dx, dy in initial_states)
        previous: dict[_Place, _Place | None] = {(x, y): None for x, y, _, _ in queue}
        while queue:
            x, y, dx, dy = queue.popleft()
            content = grid.get(x, y)
            if accept_fn((x, y), content):
                return _way_back((x, y), previous), (x, y), previous
            if not self.vis_mask[x, y] or _is_obstacle(content, ignore_blockers):
                continue
            # Straight on first, so that among equal ways the one with fewer turns is found.
            for di, dj in ((dx, dy), (dy, dx), (-dy, -dx), (-dx, -dy)):
                place = (x + di, y + dj)
                if place not in previous:
                    previous[place] = (x, y)
                    queue.append((*place, di, dj))
        return None, None, previous

    def _process_instr(self, instr: Instr) -> None:
        self._num_searches = 0
        self.stack = _Plan()
        parts = pending_parts(instr)
        for part in reversed(parts):
            super()._process_instr(part)
        if parts and isinstance(parts[0], PutNextInstr) and self._carries(parts[0].desc_move):
            # The object to move is in hand: going to it and picking it up fall away.
            del self.stack[-2:]

    def _process_obs(self) -> None:
        for cell in visible_cells(self.mission):
            self.vis_mask[cell.x, cell.y] = True

    def _carries(self, description: ObjDesc) -> bool:
        return any(self.mission.carrying is obj for obj in description.obj_set)


def pending_parts(mission: Instr) -> list[ActionInstr]:
    """Return the parts of a mission that are not yet fulfilled, in the order to do them."""
    if not isinstance(mission, SeqInstr):
        assert isinstance(mission, ActionInstr)
        return [mission]
    halves = [(mission.instr_a, mission.a_done), (mission.instr_b, mission.b_done)]
    if isinstance(mission, AfterInstr):
        halves.reverse()
    return [part for half, done in halves if done != "success" for part in pending_parts(half)]


class _Plan(list[Subgoal]):
    """The bot's stack of subgoals. Puts our way of exploring in the place of minigrid's."""

    def append(self, subgoal: Subgoal) -> None:
        is_explore = type(subgoal) is ExploreSubgoal
        super().append(_Explore(subgoal.bot) if is_explore else subgoal)


class _Explore(ExploreSubgoal):
    """Explores; among locked doors, prefers one whose key is in hand or in sight.

    minigrid takes the nearest locked door, and never decides when its key is behind another one.
    """

    def replan_before_action(self) -> Actions | None:
        if self._sees(lambda pos, cell: not self.bot.vis_mask[pos]):
            return super().replan_before_action()
        if self._sees(lambda pos, cell: _is_shut(cell) and not cell.is_locked):
            return super().replan_before_action()
        _, place, _ = self.bot._shortest_path(
            lambda pos, cell: _is_shut(cell) and self._has_key(cell), try_with_blockers=True
        )
        if not place:
            return super().replan_before_action()
        door = self.bot.mission.grid.get(*place)
        in_hand = has_key_of(self.bot.mission, door)
        self.bot.stack.pop()
        self.bot.stack.append(OpenSubgoal(self.bot, reason="KeepKey" if in_hand else None))
        self.bot.stack.append(GoNextToSubgoal(self.bot, door, reason="Open"))
        return None

    def _sees(self, accept: _Accept) -> bool:
        return bool(self.bot._shortest_path(accept, try_with_blockers=True)[1])

    def _has_key(self, door: Door) -> bool:
        _, places = ObjDesc("key", door.color).find_matching_objs(self.bot.mission)
        in_sight = any(self.bot.vis_mask[place] for place in places)
        return in_sight or has_key_of(self.bot.mission, door)


class _OpenBox(Subgoal):
    """Opens the box in front."""

    def replan_before_action(self) -> Actions:
        return Actions.toggle

    def replan_after_action(self, action_taken: Actions | None) -> None:
        self.bot.stack.pop()


def _way_back(place: _Place, previous: dict[_Place, _Place | None]) -> list[_Place]:
    way: list[_Place] = []
    step: _Place | None = place
    while step is not None:
        way.append(step)
        step = previous[step]
    return way


def _is_obstacle(content: WorldObj | None, ignore_blockers: bool) -> bool:
    """Whether a search ends at this content. What can be carried away may be ignored."""
    if content is None:
        return False
    if isinstance(content, Door):
        return not content.is_open
    return content.type == "wall" or not ignore_blockers


def _is_shut(content: WorldObj | None) -> TypeGuard[Door]:
    return isinstance(content, Door) and not content.is_open
