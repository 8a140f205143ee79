"""The expert: paths that the simulator's own solver finds, kept on disk.

A search takes 0.2 to 20 seconds, so each path is found once per machine. A path is played before it
is kept: it ends where the task is completed, and one that does not complete it is kept as empty.
In the simulator as it is (without simplifications) detours are taken out of it first (tidy.py).
Files are written beside and renamed into place; processes that search for the same path at
the same time write the same thing.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from agentgym_rl.envs.scenarios.sciworld.simulator import Simulation, find_gold_path
from agentgym_rl.envs.scenarios.sciworld.tasks import Variation
from agentgym_rl.envs.scenarios.sciworld.texts import clean_action, is_understood
from agentgym_rl.envs.scenarios.sciworld.tidy import (
    LOOK,
    Played,
    room_of,
    tidy,
    with_shorter_names,
)

logger = logging.getLogger(__name__)

_FORMAT = 3
"""Part of the folder's name: raise it when other paths would be kept."""

_MAX_WAITS = 3
_MAX_LOOKS = 2
"""A tidied path may be longer by this many looks at rooms that the solver does not look at."""
_MEASUREMENTS = ("examine ", "use thermometer ")


def default_folder() -> Path:
    """Return where paths are kept unless an option says otherwise."""
    version = metadata.version("scienceworld")
    return Path.home() / ".cache" / "agentgym-rl" / f"sciworld-gold-{version}-{_FORMAT}"


@cache  # a few kilobytes each
def gold_path(variation: Variation, simplifications: str, folder: Path) -> tuple[str, ...]:
    """Return actions that solve the task from its start; empty where none are known."""
    file = folder / (simplifications or "plain") / f"{variation.topic.name}-{variation.number}.json"
    path = _read(file)
    if path is None:
        path = _search(variation, simplifications)
        _write(file, path)
    return path


def _search(variation: Variation, simplifications: str) -> tuple[str, ...]:
    """Return the solver's path up to the action that completes the task; empty if it does not.

    Where the path fails as it is, variants of it are tried (`_variants`).
    """
    found = [clean_action(action) for action in find_gold_path(variation, simplifications)]
    for actions in _variants(found):
        played = _play(actions, variation, simplifications)
        if played is not None:
            return played.actions if simplifications else _tidied(played, variation)
    logger.info("the solver does not solve %s %d", variation.topic.name, variation.number)
    return ()


def _tidied(played: _PlayedPath, variation: Variation) -> tuple[str, ...]:
    """Return the shortest and plainest form of a path that solves the task as well."""
    straight = tidy(played.path, played.start)
    for actions in (with_shorter_names(straight), straight):
        again = _play(actions, variation, "")
        if again is not None and len(again.path) <= len(played.path) + _MAX_LOOKS:
            return again.actions
    return played.actions


def _variants(path: list[str]) -> Iterator[list[str]]:
    """Yield the path, then others that do the same at other moments.

    The solver draws at random, so chance (where a bee flies) may be against its path when the path
    is played without it: to begin a moment later changes what happens by chance. And it measures
    what it heats for so long that some things burn: then it must be taken away sooner.
    """
    for num_waits in range(_MAX_WAITS + 1):
        yield [*["wait1"] * num_waits, *path]
    heated = max((i for i, action in enumerate(path) if action.startswith("activate ")), default=0)
    taken = next((i for i in range(heated, len(path)) if path[i].startswith("pick up ")), heated)
    start = taken
    while start > heated + 1 and path[start - 1].startswith(_MEASUREMENTS):
        start -= 1
        yield path[:start] + path[taken:]


@dataclass(frozen=True, slots=True)
class _PlayedPath:
    """Actions that complete the task, with the replies, and the room where they begin."""

    start: str
    path: tuple[Played, ...]

    @property
    def actions(self) -> tuple[str, ...]:
        return tuple(played.action for played in self.path)


def _play(actions: list[str], variation: Variation, simplifications: str) -> _PlayedPath | None:
    """Return what of the actions it takes to complete the task; None when they do not."""
    simulation = Simulation(variation, simplifications)
    try:
        # As an episode begins: the first look takes no time, but goes through the same steps.
        start = room_of(simulation.step(LOOK).text)
        done: list[Played] = []
        for action in actions:
            reply = simulation.step(action)
            # The solver also says things that the simulator does not understand and ignores.
            if is_understood(reply.text):
                done.append(Played(action, reply.text))
            if reply.is_completed or reply.score < 0:
                return _PlayedPath(start, tuple(done)) if reply.score == 100 else None
        return None
    finally:
        simulation.close()


def _read(file: Path) -> tuple[str, ...] | None:
    """Return what is kept; None where nothing is, or it is not what we wrote."""
    try:
        actions = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if isinstance(actions, list) and all(isinstance(action, str) for action in actions):
        return tuple(actions)
    return None


def _write(file: Path, path: tuple[str, ...]) -> None:
    """Keep a path. Where the disk does not let us, it is searched again next time."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(path, stream)
        Path(name).replace(file)
    except OSError as error:
        logger.warning("cannot keep the path of %s: %s", file.stem, error)
