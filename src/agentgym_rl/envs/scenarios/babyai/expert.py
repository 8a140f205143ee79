"""The expert: what a good player would do next, in the agent's own actions.

Solves the rest of the episode on a copy of the simulator (bot.py), then names the action that gets
furthest along that solution. The solution is kept, so that an expert who is followed plans once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from minigrid.core.actions import Actions
from minigrid.core.world_object import Box
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import Instr, SeqInstr

from agentgym_rl.envs.scenarios.babyai.actions import Scene, Steps
from agentgym_rl.envs.scenarios.babyai.bot import Bot, StuckError
from agentgym_rl.envs.scenarios.babyai.simulator import Pose, pose_of
from agentgym_rl.envs.scenarios.babyai.view import visible_cells

# minigrid's bot fails by its own assertions, and by using a place that it did not find.
_BOT_FAILURES = (StuckError, AssertionError, IndexError, TypeError)
_MOVES = (Actions.left, Actions.right, Actions.forward, Actions.done)

_Errand = Callable[[Bot], None]
_Progress = tuple[bool, ...]


class BabyAIExpert:
    """Advises through one episode; also when its advice is not followed."""

    def __init__(self) -> None:
        self._solution: _Solution | None = None

    def advise(
        self, simulator: RoomGridLevel, scene: Scene, seen: AbstractSet[tuple[int, int]]
    ) -> str | None:
        """Return the next action; None when no way to fulfil the mission is found."""
        here = self._solution.position(simulator) if self._solution else None
        if here is None:
            self._solution, here = _solve(simulator, seen), 0
        if self._solution is None:
            return None
        reached = {
            text: self._solution.position_after(here, steps)
            for text, steps in scene.available().items()
        }
        best = max(reached, key=lambda text: reached[text])
        return best if reached[best] > here else None


class _Solution:
    """The steps of one way to fulfil the mission, with every state on the way.

    Positions count the steps done. Where an action leads is worked out without simulating it: to a
    later position, if it ends in the pose held there and on the way handled (picked up, dropped,
    toggled) the same things, from the same poses and in the same order.
    """

    def __init__(self, simulator: RoomGridLevel) -> None:
        self._poses = [pose_of(simulator)]
        self._progress = [_progress(simulator.instrs)]
        self._handled: list[tuple[Actions, Pose]] = []
        self._num_handled = [0]
        self._positions = {_state(simulator): 0}

    def add(self, step: Actions, simulator: RoomGridLevel) -> None:
        """Append a step that `simulator` has just done."""
        if step not in _MOVES:
            self._handled.append((step, self._poses[-1]))
        self._poses.append(pose_of(simulator))
        self._progress.append(_progress(simulator.instrs))
        self._num_handled.append(len(self._handled))
        # A state met twice counts as its last occurrence, which cuts detours out.
        self._positions[_state(simulator)] = len(self._poses) - 1

    def position(self, simulator: RoomGridLevel) -> int | None:
        """Return the position whose state the simulator is in; None when it has left the way."""
        return self._positions.get(_state(simulator))

    def position_after(self, start: int, steps: Steps) -> int:
        """Return the last position that `steps` lead to from `start`; `start` if to none."""
        pose, handled = self._poses[start], []
        for step in steps:
            if step not in _MOVES:
                handled.append((step, pose))
            pose = pose.after(step)
        for position in range(self._next_milestone(start), start, -1):
            span = slice(self._num_handled[start], self._num_handled[position])
            if self._poses[position] == pose and self._handled[span] == handled:
                return position
        return start

    def _next_milestone(self, start: int) -> int:
        """Return the first position after `start` where a part of the mission becomes fulfilled.

        An action must not jump over it: another way to a later pose could miss that part.
        """
        last = len(self._poses) - 1
        changes = (i for i in range(start, last) if self._progress[i] != self._progress[start])
        return next(changes, last)


def _solve(simulator: RoomGridLevel, seen: AbstractSet[tuple[int, int]]) -> _Solution | None:
    """Return a way to fulfil the mission, explored from what was seen; None when none is found."""
    for errands in _openings(simulator):
        rehearsal = _Rehearsal(simulator, seen)
        if rehearsal.is_solved_by(errands):
            return rehearsal.solution
    return None


def _openings(simulator: RoomGridLevel) -> list[tuple[_Errand, ...]]:
    """Return the errands that may have to come before the mission, most likely first."""
    openings: list[tuple[_Errand, ...]] = [()]
    if simulator.carrying is not None:
        openings.append((Bot.plan_only_drop,))
    if any(isinstance(content, Box) for content in (*simulator.grid.grid, simulator.carrying)):
        openings += [(*errands, Bot.plan_only_open_box) for errands in openings]
    return openings


class _Rehearsal:
    """Plays the bot on a copy of the simulator and records what it does."""

    def __init__(self, simulator: RoomGridLevel, seen: AbstractSet[tuple[int, int]]) -> None:
        self._simulator = copy.deepcopy(simulator)
        self._seen = set(seen)
        self.solution = _Solution(self._simulator)
        self._is_over = False
        self._is_success = False

    def is_solved_by(self, errands: tuple[_Errand, ...]) -> bool:
        """Run the errands, then the mission; a bot that gives up on the way is replaced."""
        for errand in errands:
            self._run(errand)
        num_steps = -1
        while not self._is_over and num_steps < self._simulator.step_count:
            num_steps = self._simulator.step_count
            self._run(None)
        return self._is_success

    def _run(self, errand: _Errand | None) -> None:
        """Let a fresh bot run an errand or, without one, fulfil the mission, as far as it gets."""
        try:
            bot = Bot(self._simulator, self._seen)
            if errand is not None:
                errand(bot)
            while not self._is_over:
                step = bot.replan()
                if bot.is_done and errand is not None:
                    return
                self._do(step)
                if bot.is_done:
                    return
        except _BOT_FAILURES:
            return

    def _do(self, step: Actions) -> None:
        _, reward, terminated, truncated, _ = self._simulator.step(step)
        self._is_over = terminated or truncated
        self._is_success = terminated and float(reward) > 0
        self._seen.update((cell.x, cell.y) for cell in visible_cells(self._simulator))
        self.solution.add(step, self._simulator)


def _progress(mission: Instr) -> _Progress:
    """Return which parts of a mission are fulfilled."""
    if not isinstance(mission, SeqInstr):
        return ()
    halves = (mission.a_done == "success", mission.b_done == "success")
    return (*halves, *_progress(mission.instr_a), *_progress(mission.instr_b))


def _state(simulator: RoomGridLevel) -> tuple[object, ...]:
    """Return everything that decides what can still happen, comparable between copies."""
    contents = tuple(
        None if content is None else content.encode() for content in simulator.grid.grid
    )
    carried = None if simulator.carrying is None else simulator.carrying.encode()
    return pose_of(simulator), carried, contents, _progress(simulator.instrs)
