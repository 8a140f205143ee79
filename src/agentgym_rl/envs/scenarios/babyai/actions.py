"""The agent's actions: from text to steps of the simulator, or to the reason why not.

A `Scene` is one moment of an episode. Executing the steps is left to env.py. There is no action for
goal tiles or lava, which no level of BabyAI has.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from minigrid.core.actions import Actions
from minigrid.core.constants import COLOR_NAMES
from minigrid.core.world_object import WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from agentgym_rl.envs.scenarios.babyai.routes import Routes
from agentgym_rl.envs.scenarios.babyai.simulator import has_key_of, pose_of
from agentgym_rl.envs.scenarios.babyai.view import KINDS, Thing, View, door_state, name_of
from agentgym_rl.envs.scenarios.decoration import undecorated

_MAX_ACTION_CHARS = 200
_THING_VERBS = ("toggle and go through", "go through", "go to", "pick up", "pickup", "open")
_REFERENCE = re.compile(
    rf"(?:(?:the|a) )?(?:({'|'.join(COLOR_NAMES)}) )?(?:(?:open|closed|locked) )?"
    rf"({'|'.join(KINDS)})(?: ([0-9]{{1,3}}))?"
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an action cannot be done; a sentence for the agent."""

    reason: str


Steps = tuple[Actions, ...]
"""Steps of the simulator, e.g. (Actions.left, Actions.forward, Actions.pickup)."""


class Scene:
    """What the agent sees at one moment and can do about it.

    Valid until the next step of the simulator, whose grid it reads.
    """

    def __init__(
        self, simulator: RoomGridLevel, view: View, seen: AbstractSet[tuple[int, int]]
    ) -> None:
        self.view = view
        self._simulator = simulator
        self._seen = seen

    def expand(self, action: str) -> Steps | Refusal:
        """Return the steps that an action stands for; at least one."""
        text = _normalise(action)
        if text in _PLAIN:
            return _PLAIN[text](self)
        for verb in _THING_VERBS:
            if text.startswith(verb + " "):
                thing = self._find(text[len(verb) + 1 :])
                return thing if isinstance(thing, Refusal) else _ON_THING[verb](self, thing)
        return Refusal(_unknown(action))

    def available(self) -> dict[str, Steps]:
        """Return every action that can be done now with its steps, in a fixed order."""
        texts = [*_PLAIN]
        for thing in self.view.things:
            verbs = _DOOR_VERBS if thing.is_door else _OBJECT_VERBS
            texts += [f"{verb} {thing.label}" for verb in verbs]
        expansions = {text: self.expand(text) for text in texts}
        return {text: steps for text, steps in expansions.items() if not isinstance(steps, Refusal)}

    # One method an action: its steps, or why it cannot be done.

    def turn_left(self) -> Steps | Refusal:
        return (Actions.left,)

    def turn_right(self) -> Steps | Refusal:
        return (Actions.right,)

    def move_forward(self) -> Steps | Refusal:
        front = self._front
        if front is not None and not front.can_overlap():
            return Refusal(f"Cannot move forward: {_blocker(front)} is in the way.")
        return (Actions.forward,)

    def drop(self) -> Steps | Refusal:
        if self._carried is None:
            return Refusal("Cannot drop: you carry nothing.")
        if self._front is not None:
            return Refusal(f"Cannot drop here: {_blocker(self._front)} is in front of you.")
        return (Actions.drop,)

    def toggle(self) -> Steps | Refusal:
        front = self._front
        if front is None or front.type not in ("door", "box"):
            return Refusal("Cannot toggle: no door or box is directly in front of you.")
        return self._locked_refusal(front) or (Actions.toggle,)

    def go_to(self, thing: Thing) -> Steps | Refusal:
        way = self._way_to_face(thing)
        # Already there: the simulator checks the mission only after a step, so take an idle one.
        return (Actions.done,) if way == () else way

    def pick_up(self, thing: Thing) -> Steps | Refusal:
        if thing.is_door:
            return Refusal(f"Cannot pick up a door: {thing.label}.")
        if self._carried is not None:
            return Refusal(f"Cannot pick up: you already carry the {name_of(self._carried)}.")
        return self._face_and(thing, Actions.pickup)

    def open(self, thing: Thing) -> Steps | Refusal:
        if thing.kind not in ("door", "box"):
            return Refusal(f"Cannot open {thing.label}: it is neither a door nor a box.")
        if thing.state == "open":
            return Refusal(f"The {thing.label} is already open.")
        return self._locked_refusal(thing.cell.content) or self._face_and(thing, Actions.toggle)

    def go_through(self, thing: Thing) -> Steps | Refusal:
        if not thing.is_door:
            return _not_a_door(thing)
        if thing.state != "open":
            return Refusal(f"Cannot go through {thing.label}: it is {thing.state}.")
        way = self._routes.to_enter(thing.cell.x, thing.cell.y)
        return _no_way(thing) if way is None else way + self._step_beyond(way)

    def toggle_and_go_through(self, thing: Thing) -> Steps | Refusal:
        steps = self.open(thing) if thing.is_door else _not_a_door(thing)
        if isinstance(steps, Refusal):
            return steps
        way = (*steps, Actions.forward)
        return way + self._step_beyond(way)

    @cached_property
    def _routes(self) -> Routes:
        return Routes(self._simulator.grid, pose_of(self._simulator), self._seen)

    @property
    def _front(self) -> WorldObj | None:
        ahead = pose_of(self._simulator).after(Actions.forward)
        return self._simulator.grid.get(ahead.x, ahead.y)

    @property
    def _carried(self) -> WorldObj | None:
        return self._simulator.carrying

    def _find(self, reference: str) -> Thing | Refusal:
        """Return the one visible thing that a reference such as "red ball 1" means."""
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            return Refusal(f"Unknown object: {_quote(reference)}.")
        color, kind, number = match.groups()
        found = [
            thing
            for thing in self.view.things
            if thing.kind == kind
            and (color is None or thing.name.startswith(color + " "))
            and (number is None or thing.number == int(number))
        ]
        if not found:
            return Refusal(f"There is no {reference} in view.")
        if len(found) > 1:
            return Refusal(f"Which one: {', '.join(thing.label for thing in found)}?")
        return found[0]

    def _way_to_face(self, thing: Thing) -> Steps | Refusal:
        way = self._routes.to_face(thing.cell.x, thing.cell.y)
        return _no_way(thing) if way is None else way

    def _face_and(self, thing: Thing, action: Actions) -> Steps | Refusal:
        way = self._way_to_face(thing)
        return way if isinstance(way, Refusal) else (*way, action)

    def _step_beyond(self, way: Steps) -> Steps:
        """Return one more step forward if the cell behind the way's end is free, else nothing."""
        pose = pose_of(self._simulator)
        for action in way:
            pose = pose.after(action)
        beyond = pose.after(Actions.forward)
        content = self._simulator.grid.get(beyond.x, beyond.y)
        return (Actions.forward,) if content is None or content.can_overlap() else ()

    def _locked_refusal(self, content: WorldObj | None) -> Refusal | None:
        if content is None or door_state(content) != "locked":
            return None
        if has_key_of(self._simulator, content):
            return None
        return Refusal(
            f"The {name_of(content)} is locked: carry the {content.color} key to open it."
        )


_PLAIN = {
    "turn left": Scene.turn_left,
    "turn right": Scene.turn_right,
    "move forward": Scene.move_forward,
    "drop": Scene.drop,
    "toggle": Scene.toggle,
}
_ON_THING = {
    "go to": Scene.go_to,
    "pick up": Scene.pick_up,
    "pickup": Scene.pick_up,
    "open": Scene.open,
    "go through": Scene.go_through,
    "toggle and go through": Scene.toggle_and_go_through,
}
_DOOR_VERBS = ("go to", "open", "go through", "toggle and go through")
_OBJECT_VERBS = ("go to", "pick up", "open")


def _normalise(action: str) -> str:
    """Return the action in lower case with single spaces, without marks and end punctuation."""
    if len(action) > _MAX_ACTION_CHARS:
        return ""
    return undecorated(action.lower()).strip(" ,'")


def _unknown(action: str) -> str:
    if not action.strip():
        return "Empty action."
    return f"Unknown action: {_quote(action)}."


def _quote(text: str) -> str:
    """Return the beginning of a text that may hold anything, fit to be shown on one line."""
    shown = "".join(char if char.isprintable() else " " for char in text[:40]).strip()
    return f"'{shown}'" if len(text) <= 40 else f"'{shown}...'"


def _blocker(content: WorldObj) -> str:
    if content.type == "wall":
        return "a wall"
    return f"a {door_state(content)} door" if content.type == "door" else f"the {name_of(content)}"


def _not_a_door(thing: Thing) -> Refusal:
    return Refusal(f"Cannot go through {thing.label}: it is not a door.")


def _no_way(thing: Thing) -> Refusal:
    return Refusal(f"No free way to {thing.label} is known.")
