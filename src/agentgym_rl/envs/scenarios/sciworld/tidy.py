"""A solver's path made worth imitating: without detours, repetitions and odd names.

Nothing here asks the simulator: whoever tidies a path plays it again, and keeps the old one where
the new one fails (gold.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LOOK = "look around"

_GO = "go to "
_DOOR = "open door to "
_IN_VAIN = ("is already open", "can't move something into itself")
_ROOM = re.compile(r"called the ([a-z ]+?)\.")
_SHORTER = (
    (re.compile(r" in inventory\b"), ""),
    (re.compile(r"\begg ([a-z ]+ egg)\b"), r"\1"),
    (re.compile(r"^focus on egg ([a-z ]+)$"), r"focus on \1 egg"),
    (re.compile(r"\bbaby baby\b"), "baby"),
    (re.compile(r"(flower pot \d+) containing [a-z, ]+?(?= to |$)"), r"\1"),
)
"""The solver's names of things, and what a reader of the observations would call them."""


@dataclass(frozen=True, slots=True)
class Played:
    """An action and what the simulator replied. Example: Played("go to kitchen", "You move ...")"""

    action: str
    reply: str


def room_of(look: str) -> str:
    """Return the name of the room that a look shows; empty where it shows none."""
    found = _ROOM.search(look)
    return found[1] if found else ""


def tidy(path: Sequence[Played], start: str) -> list[str]:
    """Return the actions of a path that begins in the room `start`, with less that is in vain."""
    following = [played.action for played in path[1:]] + [""]
    useful = [
        played.action
        for played, after in zip(path, following, strict=True)
        if not _is_in_vain(played, after)
    ]
    rooms = _Rooms(start)
    for action in useful:
        rooms.do(action)
    return rooms.actions


def with_shorter_names(actions: Iterable[str]) -> list[str]:
    """Return actions that name things as observations do."""
    return [_shorter(action) for action in actions]


def _is_in_vain(played: Played, after: str) -> bool:
    is_refused = any(words in played.reply for words in _IN_VAIN)
    # What is heated is examined between measurements, to see it melt.
    is_idle = played.action.startswith("examine ") and not after.startswith("use thermometer")
    return is_refused or is_idle


def _shorter(action: str) -> str:
    for pattern, text in _SHORTER:
        action = pattern.sub(text, action)
    return action


class _Rooms:
    """Keeps a path short while it is walked: each room that something is done in is looked at."""

    def __init__(self, start: str) -> None:
        self.actions: list[str] = []
        self._room = start
        self._way: list[str] = [start]
        """The rooms since something was done, without loops; what is done is done in the last."""
        self._doors: set[frozenset[str]] = set()
        self._looked_at: str | None = start
        """The room of the last look, if nothing that it would show has changed."""

    def do(self, action: str) -> None:
        if action.startswith(_DOOR):
            return  # opened when the way is walked
        if action.startswith(_GO):
            self._room = action.removeprefix(_GO)
            if self._room in self._way:
                del self._way[self._way.index(self._room) + 1 :]
            else:
                self._way.append(self._room)
            return
        if action == LOOK and len(self._way) > 1:
            return  # on the way through: there will be a look where something is done
        self._walk()
        if action == LOOK and self._looked_at == self._room:
            return
        if action != LOOK and self._looked_at is None:
            self.actions.append(LOOK)
        self.actions.append(action)
        self._looked_at = self._room
        if action.startswith(("wait", "activate ", "connect ", "mix ", "pour ", "deactivate ")):
            self._looked_at = ""  # worth another look, if the solver takes one

    def _walk(self) -> None:
        """Walk the way to where something is done."""
        for here, there in zip(self._way, self._way[1:], strict=False):
            door = frozenset((here, there))
            if door not in self._doors:
                self.actions.append(f"{_DOOR}{there}")
                self._doors.add(door)
            self.actions.append(f"{_GO}{there}")
            self._looked_at = None
        self._way = [self._way[-1]]
