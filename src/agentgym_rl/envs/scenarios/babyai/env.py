"""BabyAI: one agent in a grid of rooms, with missions in words (class `BabyAI`).

Runs an episode over minigrid's simulator. Levels and splits are in levels.py, what is seen in
view.py, what an action means in actions.py, the expert in expert.py.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import ClassVar

from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from PIL import Image

from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.envs.scenarios.babyai.actions import Refusal, Scene, Steps
from agentgym_rl.envs.scenarios.babyai.expert import BabyAIExpert
from agentgym_rl.envs.scenarios.babyai.levels import (
    CATEGORIES,
    ENV_NAME,
    SPLIT_SEEDS,
    level_of,
    seed_of,
    tasks_of,
)
from agentgym_rl.envs.scenarios.babyai.simulator import dismantle, make_simulator
from agentgym_rl.envs.scenarios.babyai.view import describe, look, name_of
from agentgym_rl.types import StepResult, Task

_TILE_PIXELS = 48

_INSTRUCTIONS = """\
You are in a grid of rooms and look in one direction. You see the things before you, named by \
colour, kind and number, with their distance; "1 ahead" is directly in front of you. Walls and \
shut doors hide what is behind them. Your actions:
turn left
turn right
move forward
go to <thing>
pick up <thing>
drop
open <door or box>
go through <door>
toggle and go through <door>
toggle
You can carry one object; "drop" puts it into the free cell in front of you. A locked door opens \
only while you carry the key of its colour. "toggle" opens or shuts what is directly in front.

An example of a whole task. You see:
Your goal: open the door
yellow key 1: 1 left
purple ball 1: 2 ahead, 1 left
yellow door 1: locked, 3 ahead, 2 left
wall: 4 ahead
carrying: nothing
Your first action: pick up yellow key 1
You see:
purple ball 1: 1 ahead, 2 right
yellow door 1: locked, 2 ahead, 3 right
wall: 2 ahead
carrying: yellow key
Your next action: open yellow door 1
You see: The task is completed."""


class BabyAI(Environment):
    """Reach objects, open doors and move things in a grid of rooms that is seen only in part.

    The reward of a solved task is 1 - 0.9 * (simulator steps / the level's limit on them); an
    unsolved one has 0. One action may take many simulator steps.
    """

    spec = EnvSpec(
        name=ENV_NAME,
        summary="Follow instructions in a grid world seen from inside (BabyAI, 40 levels)",
        instructions=_INSTRUCTIONS,
        example_action="pick up yellow key 1",
        splits=tuple(SPLIT_SEEDS),
        categories=CATEGORIES,
        # For the mazes of several rooms; the paper's horizon is 20, enough for the other levels.
        max_rounds=60,
        success="the simulator confirms that the mission is fulfilled",
        replay_is_safe=True,
    )

    shares_thread: ClassVar[bool] = True

    def __init__(self, *, repeat_goal: bool = False, show_actions: bool = False) -> None:
        """Create an environment without an episode.

        Args:
            repeat_goal: Start every observation, not only the first, with the goal.
            show_actions: End every observation with the list of available actions.
        """
        self._repeat_goal = repeat_goal
        self._show_actions = show_actions
        self._simulator: RoomGridLevel | None = None
        self._scene: Scene | None = None
        self._seen: set[tuple[int, int]] = set()
        self._expert = BabyAIExpert()
        self._index = 0

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return tasks_of(split)

    def reset(self, task: Task) -> str:
        self.require_split(task.split)
        level = level_of(task.index)
        if task.level not in ("", level.name):
            raise ValueError(f"babyai task {task.index} is {level.name!r}, not {task.level!r}")
        self.close()
        self._index = task.index
        self._simulator = make_simulator(level, seed_of(task.index))
        self._seen = set()
        self._expert = BabyAIExpert()
        scene = self._look(self._simulator)
        return self._frame(describe(scene.view, self._simulator.carrying), has_goal=True)

    def step(self, action: str) -> StepResult:
        simulator, scene = self._running()
        steps = scene.expand(action)
        if isinstance(steps, Refusal):
            text = self._frame(steps.reason, has_goal=self._repeat_goal)
            return StepResult(text, valid_action=False)
        return self._execute(simulator, steps)

    def available_actions(self) -> tuple[str, ...]:
        return tuple(self._scene.available()) if self._scene else ()

    def expert_action(self) -> str | None:
        simulator, scene = self._running()
        return self._expert.advise(simulator, scene, self._seen)

    def details(self) -> Mapping[str, JsonValue]:
        """Return the mission, where the task comes from, what is carried and the steps used."""
        if self._simulator is None:
            return {}
        carried = self._simulator.carrying
        return {
            "mission": str(self._simulator.mission),
            "level": level_of(self._index).name,
            "seed": seed_of(self._index),
            "carrying": name_of(carried) if carried else "",
            "steps": int(self._simulator.step_count),
            "max_steps": int(self._simulator.max_steps),
        }

    def render(self) -> bytes | None:
        """Return the whole grid from above, with what the agent sees made lighter."""
        if self._simulator is None:
            return None
        png = io.BytesIO()
        Image.fromarray(self._simulator.get_frame(tile_size=_TILE_PIXELS)).save(png, format="PNG")
        return png.getvalue()

    def close(self) -> None:
        if self._simulator is not None:
            dismantle(self._simulator)
        self._simulator = self._scene = None

    def _running(self) -> tuple[RoomGridLevel, Scene]:
        if self._simulator is None or self._scene is None:
            raise RuntimeError("no episode is running: call reset(task) first")
        return self._simulator, self._scene

    def _execute(self, simulator: RoomGridLevel, steps: Steps) -> StepResult:
        """Do the steps of one action, as far as the episode lasts."""
        scene = None
        for step in steps:
            _, reward, is_terminated, is_truncated, _ = simulator.step(step)
            if is_terminated or is_truncated:
                self._scene = None
                return _last_result(float(reward), is_terminated=is_terminated)
            # Looking after every step, not only the last, is what fills the map of seen cells.
            scene = self._look(simulator)
        assert scene is not None, "an action stands for at least one step"
        text = describe(scene.view, simulator.carrying)
        return StepResult(self._frame(text, has_goal=self._repeat_goal))

    def _look(self, simulator: RoomGridLevel) -> Scene:
        view = look(simulator)
        self._seen.update((cell.x, cell.y) for cell in view.cells)
        self._scene = Scene(simulator, view, self._seen)
        return self._scene

    def _frame(self, text: str, *, has_goal: bool) -> str:
        """Add the goal and, where the option asks for them, the available actions."""
        simulator, _ = self._running()
        if has_goal:
            text = f"Your goal: {simulator.mission}\n{text}"
        if self._show_actions:
            text = f"{text}\navailable actions: {', '.join(self.available_actions())}"
        return text


def _last_result(reward: float, *, is_terminated: bool) -> StepResult:
    """Return the end of an episode, given what the simulator said of its last step."""
    if not is_terminated:
        return StepResult("Out of steps: the episode is over.", truncated=True)
    if reward <= 0:
        return StepResult("The mission has failed.", terminated=True)
    return StepResult("The task is completed.", min(reward, 1.0), terminated=True, success=True)
