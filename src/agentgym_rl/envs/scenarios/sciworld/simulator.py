"""One episode in the simulator (`Simulation`), and how many of them share a JVM.

The simulator has three pieces of state outside its objects: the counter behind the ids of objects,
the random generator, and the simplifications in force. Loading a task sets all three to values that
depend only on the task. When the JVM passes from one episode to another, they are read and kept
for the one and put back for the other, so that every episode runs as it would in a JVM of its own.

Steps go to the simulator's inner interface and not to the one made for Python, which spends a third
of its time on texts and histories that nobody reads, and holds 11 MB an episode.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentgym_rl.envs.base import JsonValue
from agentgym_rl.envs.scenarios.sciworld.jvm import Jvm, shared_jvm
from agentgym_rl.envs.scenarios.sciworld.tasks import Variation
from agentgym_rl.errors import EnvError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_SCRAMBLE = 0x5DEECE66D
"""`java.util.Random.setSeed(s)` sets the state to `s ^ _SCRAMBLE` (documented there)."""


@dataclass(frozen=True, slots=True)
class SimulatorReply:
    """What the simulator answers to an action."""

    text: str
    score: int
    """0 to 100; negative after a mistake that ends the task."""
    is_completed: bool


@dataclass(frozen=True, slots=True)
class _Globals:
    """What the simulator keeps outside its objects."""

    next_id: int
    random_state: int
    simplifications: str


class Simulation:
    """One episode. Any thread may call; calls to all episodes of a JVM take turns."""

    def __init__(self, variation: Variation, simplifications: str) -> None:
        self._simulator = _simulator()
        self.left_globals: _Globals | None = None
        """The state to put back when this episode continues."""
        with self._simulator.jvm.calls():
            self._interface = self._simulator.load(variation, simplifications)
            self._simulator.present = self
        # For an object that is dropped without close(); never calls Java from the collector.
        self._finalizer = weakref.finalize(self, self._simulator.jvm.free, self._interface)
        self.description = self._ask("getTaskDescription")

    def step(self, action: str) -> SimulatorReply:
        """Do one action: one line of plain text. Raises EnvError when the simulator is broken."""
        with self._entered():
            answer = self._interface.step(action)
            reply = answer.toString()
            self._simulator.jvm.gateway.detach(answer)
            # The tuple (text, score, completed); only the text may contain commas.
            text, score, is_completed = reply[1:-1].rsplit(",", 2)
            percent = round(100 * float(score))
            # After an internal exception the simulator answers with a score of -1 forever.
            if percent < 0 and self._interface.isInErrorState():
                raise EnvError(f"the ScienceWorld simulator failed: {text}")
        return SimulatorReply(text, percent, is_completed == "true")

    def num_moves(self) -> int:
        """Return how many units of time have passed. Looking takes none, waiting takes several."""
        with self._entered():
            return int(self._interface.getCurIterations())

    def inventory(self) -> str:
        return self._ask("freeActionInventory")

    def look(self) -> str:
        return self._ask("freeActionLook")

    def goal_progress(self) -> str:
        """Return the simulator's table of sub-goals; it gives the solution away."""
        return self._ask("getGoalProgressStr")

    def valid_actions(self) -> tuple[str, ...]:
        """Return the actions that the simulator would carry out now, sorted (about 60 ms).

        Its own list also names things in closed containers, which its parser then does not find.
        """
        listed = json.loads(self._ask("getValidActionObjectCombinationsJSON"))["validActions"]
        within_reach = self._ids_within_reach()
        return tuple(
            sorted(
                {entry["action"] for entry in listed if within_reach.issuperset(entry["obj_ids"])}
            )
        )

    def action_templates(self) -> tuple[str, ...]:
        """Return the forms of actions, e.g. "pour OBJ in OBJ", sorted."""
        listed = json.loads(self._ask("getPossibleActionsWithIDsJSON"))
        return tuple(sorted({entry["action_example"] for entry in listed}))

    def visible_objects(self) -> tuple[str, ...]:
        """Return the names of what the agent can refer to, sorted."""
        listed = json.loads(self._ask("getPossibleObjectReferentLUTJSON"))
        return tuple(sorted(set(listed.values())))

    def object_tree(self) -> JsonValue:
        """Return every object of the world with its properties (about 150 kB)."""
        with self._entered(), self._simulator.unchanged():
            universe = self._interface.universe()
            self._simulator.jvm.free(universe)
            return json.loads(universe.toJSON())

    def close(self) -> None:
        """Give the memory back. Safe to repeat, and when the JVM is gone."""
        self._finalizer()

    def _ids_within_reach(self) -> frozenset[int]:
        """Return the ids of all objects that the simulator's parser finds."""
        ids: set[int] = set()
        with self._entered(), self._simulator.unchanged():
            parser, agent = self._interface.inputParser(), self._interface.agent()
            visible = self._interface.getAgentVisibleObjects(True)
            room = visible._2()
            for place in (room, agent):
                listed = parser.getAllUniqueReferentsWithTypeLUTJSON(place, True, False)
                for by_id in json.loads(listed).values():
                    ids.update(int(key) for key in by_id if key != "desc")
            for used in (parser, agent, visible, room):
                self._simulator.jvm.free(used)
        return frozenset(ids)

    def _ask(self, method: str) -> str:
        """Call a method of the simulator that answers with text."""
        with self._entered(), self._simulator.unchanged():
            # The names are ours, listed above.
            return str(getattr(self._interface, method)())

    @contextmanager
    def _entered(self) -> Iterator[None]:
        """Hold the JVM with this episode's state in place."""
        simulator = self._simulator
        with simulator.jvm.calls():
            assert self._finalizer.alive, "a closed episode is asked nothing"
            if simulator.present is not self:
                simulator.leave_present()
                assert self.left_globals is not None, "left without its state"
                simulator.write_globals(self.left_globals)
                simulator.present = self
            yield


class _Simulator:
    """The simulator's classes in one JVM, and which episode its outer state belongs to."""

    def __init__(self, jvm: Jvm) -> None:
        self.jvm = jvm
        self.present: Simulation | None = None
        with jvm.calls():
            java = jvm.java
            self._loader = java.scienceworld.runtime.pythonapi.PythonInterface()
            self._ids = java.util.UniqueIdentifier
            self._simplifier = java.main.scala.scienceworld.runtime.SimplifierProcessor
            # Scala's singleton objects have names that are no Python identifiers.
            self._random = getattr(getattr(java.scala.util, "Random$"), "MODULE$").self()
            self._state_field = self._random.getClass().getDeclaredField("seed")
            self._state_field.setAccessible(True)
        self._simplifications = ""

    def load(self, variation: Variation, simplifications: str) -> JavaObject:
        """Return the interface of a new world; the outer state is then that world's."""
        self.leave_present()
        name, number = variation.topic.name, variation.number
        problem = self._loader.load(name, number, simplifications, False)
        if problem:
            raise EnvError(f"the simulator cannot load {name} {number}: {problem}")
        option = self._loader.agentInterface()
        interface = option.get()
        self.jvm.free(option)
        # Not the argument: "easy" stands for several, depending on the task.
        self._simplifications = str(interface.simplificationStr())
        return interface

    def find_gold_path(self, variation: Variation, simplifications: str) -> list[str]:
        """Return the actions of the simulator's own solver, which may take 20 seconds."""
        with self.jvm.calls():
            self.leave_present()
            interface = self.jvm.java.scienceworld.runtime.pythonapi.PythonInterface()
            interface.load(variation.topic.name, variation.number, simplifications, True)
            actions = interface.getGoldActionSequence()
            joined = self.jvm.java.java.lang.String.join("\n", actions)
            for used in (actions, interface):
                self.jvm.free(used)
            # It has changed them, and nothing says to what.
            self._simplifications = "?"
        return joined.split("\n") if joined else []

    def leave_present(self) -> None:
        """Keep the outer state for the episode that it belongs to."""
        if self.present is not None:
            self.present.left_globals = self.read_globals()
            self.present = None

    def read_globals(self) -> _Globals:
        state = self._state_field.get(self._random)
        return _Globals(self._ids.count(), state, self._simplifications)

    def write_globals(self, values: _Globals) -> None:
        getattr(self._ids, "count_$eq")(values.next_id)
        self._random.setSeed(values.random_state ^ _SCRAMBLE)
        if values.simplifications != self._simplifications:
            self.jvm.free(self._simplifier.parseSimplificationStr(values.simplifications))
            self._simplifications = values.simplifications

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Take back what a question does to the outer state: naming objects draws at random."""
        before = self.read_globals()
        try:
            yield
        finally:
            self.write_globals(before)


def find_gold_path(variation: Variation, simplifications: str) -> list[str]:
    """Return the actions of the simulator's own solver. Other episodes wait meanwhile."""
    return _simulator().find_gold_path(variation, simplifications)


_current: _Simulator | None = None
_current_lock = threading.Lock()


def _simulator() -> _Simulator:
    """Return the simulator in this process's JVM."""
    global _current
    with _current_lock:
        jvm = shared_jvm()
        if _current is None or _current.jvm is not jvm:
            _current = _Simulator(jvm)
        return _current
