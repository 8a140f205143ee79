"""SciWorld: experiments of primary-school science in a house of ten rooms (class `SciWorld`).

Runs an episode of ScienceWorld (arXiv:2203.07540). Tasks and splits are in tasks.py, the simulator
in simulator.py, the expert in gold.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.envs.scenarios.sciworld import gold, texts
from agentgym_rl.envs.scenarios.sciworld.java import require_java
from agentgym_rl.envs.scenarios.sciworld.jvm import package_folder
from agentgym_rl.envs.scenarios.sciworld.simulator import Simulation, SimulatorReply
from agentgym_rl.envs.scenarios.sciworld.tasks import (
    CATEGORIES,
    ENV_NAME,
    SPLITS,
    Variation,
    tasks_of,
    variation_of,
)
from agentgym_rl.envs.scenarios.sciworld.thoughts import Moment, thought
from agentgym_rl.errors import did_you_mean
from agentgym_rl.types import StepResult, Task

SIMPLIFICATIONS = (
    "teleportAction",
    "noElectricalAction",
    "openDoors",
    "openContainers",
    "selfWateringFlowerPots",
)
"""The simulator's; "easy" stands for a choice of them that suits the task."""

_INSTRUCTIONS = """\
You are in a house with several rooms and a garden, and carry out a science task. You see only the \
room you are in. Things act by themselves as time passes: liquids heat up, plants grow, animals \
wander. Your actions, with names of things as you see them in place of X and Y:
look around: see the room
look at X: see one thing closely
look in X: see what a container holds
inventory: see what you carry
task: read the task again
go to X: walk through an open door to the next room
open X, close X: for doors and containers
pick up X, put down X: into and out of your inventory
move X to Y: put X into or onto Y
pour X into Y: empty a container into another
dunk X into Y: dip a container into a liquid
mix X: mix what is in a container
use X on Y: apply a tool, such as a thermometer or a shovel
activate X, deactivate X: switch devices and taps
connect X to Y, disconnect X: wire electrical parts; a part has ends, such as "battery anode"
read X: read a note or a book
eat X, flush X: as they say
focus on X: declare that X is what the task asks for
wait, wait1: let ten steps of time pass, or one
reset task: start the count of your progress anew
"focus on" counts as an answer: on a wrong thing it can end the task at once. When a name fits \
several things you are shown a numbered list; your next action is the number alone.

An example of a whole task. You see:
Your task is to find a(n) non-living thing. First, focus on the thing. Then, move it to the red \
box in the kitchen.
This room is called the hallway. In it, you see:
	the agent
	a substance called air
	a picture
You also see:
	A door to the art studio (that is closed)
	A door to the bedroom (that is closed)
	A door to the greenhouse (that is closed)
	A door to the kitchen (that is closed)
	A door to the living room (that is closed)
	A door to the workshop (that is closed)
Your first action: focus on picture
You see: You focus on the picture.
Your next action: pick up picture
You see: You move the picture to the inventory.
Your next action: open door to kitchen
You see: The door is now open.
Your next action: go to kitchen
You see: You move to the kitchen.
Your next action: move picture to red box
You see: You move the picture to the red box."""


class SciWorld(Environment):
    """Boil, measure, wire, mix, grow and breed. The score counts the sub-goals reached, 0 to 100.

    The rewards of an episode sum to its last score / 100, or to 0 where that is negative (a wrong
    focus): each round pays the change. A horizon is not known here, so this is also the only way
    to pay for the score of an episode that the horizon cuts.
    """

    spec: ClassVar[EnvSpec] = EnvSpec(
        name=ENV_NAME,
        summary="Do primary-school science experiments in a text world (ScienceWorld, 30 tasks)",
        instructions=_INSTRUCTIONS,
        example_action="open door to kitchen",
        splits=SPLITS,
        categories=CATEGORIES,
        # Paths of the expert have up to some 320 actions (friction on named surfaces), most fewer
        # than 50; the paper trains with 20 and 30.
        max_rounds=400,
        success="the simulator's score is 100",
        replay_is_safe=True,
    )

    shares_thread: ClassVar[bool] = True

    def __init__(
        self,
        *,
        simplifications: str = "",
        dense_reward: bool = True,
        max_moves: int | None = None,
        gold_dir: str = "",
        show_object_tree: bool = False,
    ) -> None:
        """Create an environment without an episode; Java starts with the first reset.

        Args:
            simplifications: Names from SIMPLIFICATIONS with commas between, or "easy".
            dense_reward: Pay every change of the score when it happens. Otherwise only the round
                that ends the episode is paid, with the score; a horizon's cut then pays nothing.
            max_moves: Truncate when more units of the simulator's time have passed (AgentGym: 100).
                Looking takes none, waiting takes eleven; some tasks need hundreds.
            gold_dir: Where the expert's paths are kept; "" is a folder in the user's ~/.cache.
            show_object_tree: Put every object of the world into `details` (150 kB, 30 ms).
        """
        if max_moves is not None and max_moves < 1:
            raise ValueError(f"max_moves must be at least 1, got {max_moves}")
        # What is missing is named now, not at the first reset.
        package_folder()
        require_java()
        self._simplifications = _parse_simplifications(simplifications)
        self._dense_reward = dense_reward
        self._max_moves = max_moves
        self._show_object_tree = show_object_tree
        self._gold_folder = Path(gold_dir) if gold_dir else gold.default_folder()
        self._variation: Variation | None = None
        self._simulation: Simulation | None = None
        self._score = 0
        self._is_over = True
        self._is_asked = False
        self._done: list[str] = []
        self._read: list[str] = []
        """What the agent has been shown, the task first."""

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        """Return the simulator's own split; `Task.level` is the name of the task."""
        return tasks_of(split)

    def reset(self, task: Task) -> str:
        self.require_split(task.split)
        variation = variation_of(task.index)
        name = variation.topic.name
        if task.level not in ("", name):
            raise ValueError(f"sciworld task {task.index} is {name!r}, not {task.level!r}")
        if "noElectricalAction" in self._simplifications and variation.topic.id.startswith("3-"):
            raise ValueError(
                f"{name} cannot be solved without electrical actions: leave noElectricalAction out "
                'of simplifications, or use "easy"'
            )
        self.close()
        self._simulation = Simulation(variation, self._simplifications)
        self._variation = variation
        self._score = 0
        self._done.clear()
        self._is_over = self._is_asked = False
        seen = self._simulation.step("look around").text
        self._read[:] = [f"{self._simulation.description}\n{texts.show(seen)}"]
        return self._read[0]

    def step(self, action: str) -> StepResult:
        simulation = self._running()
        line = texts.clean_action(action)
        if line.lower() in ("help", "objects"):
            return StepResult(self._answer(line.lower()), metrics={"score": self._score})
        reply = simulation.step(line)
        is_understood = texts.is_understood(reply.text)
        if is_understood:
            self._done.append(line)
        # To a question that it does not understand the answer to, the simulator says nothing.
        is_cancelled = self._is_asked and not reply.text
        self._is_asked = texts.is_menu(reply.text)
        shown = texts.show(reply.text, is_cancelled=is_cancelled)
        if is_understood:
            self._read.append(shown)
        else:
            shown += texts.advise(line, simulation.action_templates(), simulation.visible_objects)
        return self._result(reply, shown, is_valid=is_understood and not is_cancelled)

    def available_actions(self) -> tuple[str, ...]:
        """Return all that the simulator would carry out, several hundred (about 50 ms)."""
        return () if self._is_over else self._running().valid_actions()

    def expert_action(self) -> str | None:
        """Return the next action of the solver's path; None when the episode has left it.

        Input that the simulator did not understand does not count as leaving it. The first call
        for a task on this machine may take 20 seconds.
        """
        coming = self._coming_actions()
        return coming[0] if coming else None

    def expert_thought(self) -> str | None:
        """Return what the expert looks for and why it acts so; None where it does not act."""
        coming = self._coming_actions()
        if not coming:
            return None
        return thought(
            Moment(self.simulation.description, coming[0], coming[1:], self._done, self._read)
        )

    def _coming_actions(self) -> Sequence[str]:
        """Return the rest of the solver's path; empty when the episode has left it."""
        if self._is_over or self._variation is None:
            return ()
        path = gold.gold_path(self._variation, self._simplifications, self._gold_folder)
        num_done = len(self._done)
        return path[num_done:] if list(path[:num_done]) == self._done else ()

    def details(self) -> Mapping[str, JsonValue]:
        """Return the score and what a viewer shows (about 10 ms); {} without an episode.

        `goal_progress` gives the solution away.
        """
        if self._simulation is None or self._variation is None:
            return {}
        simulation = self._simulation
        tree = {"object_tree": simulation.object_tree()} if self._show_object_tree else {}
        return {
            "task_name": self._variation.topic.name,
            "task_id": self._variation.topic.id,
            "variation": self._variation.number,
            "task_description": simulation.description,
            "simplifications": self._simplifications,
            "score": self._score,
            "moves": simulation.num_moves(),
            "look": simulation.look(),
            "inventory": simulation.inventory(),
            "goal_progress": simulation.goal_progress(),
            "possible_actions": simulation.action_templates(),
            "possible_objects": simulation.visible_objects(),
            **tree,
        }

    @property
    def simulation(self) -> Simulation:
        """The episode in the simulator, with questions that are slow or give the solution away."""
        if self._simulation is None:
            raise RuntimeError("no episode is running: call reset(task) first")
        return self._simulation

    def close(self) -> None:
        if self._simulation is not None:
            self._simulation.close()
        self._simulation = self._variation = None
        self._is_over = True

    def _running(self) -> Simulation:
        if self._is_over:
            raise RuntimeError("no episode is running: call reset(task) first")
        return self.simulation

    def _answer(self, word: str) -> str:
        """Answer the two questions that are no actions and take no time."""
        if word == "help":
            return "Actions:\n" + "\n".join(self.simulation.action_templates())
        return "Objects:\n" + "\n".join(self.simulation.visible_objects())

    def _result(self, reply: SimulatorReply, text: str, *, is_valid: bool) -> StepResult:
        before, self._score = self._score, reply.score
        terminated = reply.is_completed or reply.score < 0
        is_late = self._max_moves is not None and self.simulation.num_moves() > self._max_moves
        truncated = is_late and not terminated
        self._is_over = terminated or truncated
        # A score below 0 counts as 0 on both sides, so that the changes sum to a share in [0, 1].
        reward = max(reply.score, 0) / 100
        if self._dense_reward:
            reward -= max(before, 0) / 100
        elif not self._is_over:
            reward = 0.0
        return StepResult(
            text,
            reward,
            terminated=terminated,
            truncated=truncated,
            success=terminated and reply.score == 100,
            valid_action=is_valid,
            metrics={"score": reply.score},
        )


def _parse_simplifications(given: str) -> str:
    """Return the names in a fixed order, commas between. Raises ValueError for unknown ones."""
    names = {name.strip() for name in given.split(",")} - {""}
    for name in sorted(names):
        if name not in (*SIMPLIFICATIONS, "easy"):
            raise ValueError(
                f"sciworld has no simplification {name!r}{did_you_mean(name, SIMPLIFICATIONS)}; "
                f'it has {", ".join(SIMPLIFICATIONS)}, or "easy" for all that suit the task'
            )
    if "easy" in names and len(names) > 1:
        raise ValueError(f'"easy" cannot be combined with other simplifications, got {given!r}')
    return ",".join(sorted(names))
