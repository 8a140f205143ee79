"""An episode of a project: its own database in memory, and what else must not be shared.

`current` says which one the running thread works for. Whatever asks for a connection, the time, a
random text, a key of the cache or a place for an upload asks it.
"""

from __future__ import annotations

import random
import sqlite3
import threading
from contextvars import ContextVar
from datetime import datetime, timedelta
from pathlib import Path

from agentgym_rl.envs.scenarios.web.projects import NOW


class Episode:
    """State of one episode. `lock` is held by whoever works for it."""

    def __init__(self, key: str, connection: sqlite3.Connection, folder: Path) -> None:
        self.key = key
        """The secret that the browser sends with every request."""
        self.connection = connection
        self.folder = folder
        """Where its uploads are; made when the first one comes."""
        self.lock = threading.Lock()
        self.draws = random.Random(0)
        self._num_writes = 0

    @property
    def now(self) -> datetime:
        """The time in this episode: a second later after every request that may write."""
        return NOW + timedelta(seconds=self._num_writes)

    def tick(self) -> None:
        self._num_writes += 1


current: ContextVar[Episode | None] = ContextVar("episode", default=None)


def require_episode() -> Episode:
    """Return the current episode. Raises RuntimeError outside of one."""
    episode = current.get()
    if episode is None:
        raise RuntimeError("the database was used outside of an episode")
    return episode


def open_database(image: bytes | None) -> sqlite3.Connection:
    """Return a database in memory, a copy of a serialised one or empty."""
    connection = sqlite3.connect(
        ":memory:",
        detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES,
        check_same_thread=False,
    )
    if image is not None:
        connection.deserialize(image)
    return connection


class EpisodeStore:
    """The episodes of this process, by key."""

    def __init__(self, image: bytes, folder: Path) -> None:
        self._image = image
        self._folder = folder
        self._episodes: dict[str, Episode] = {}

    def create(self, key: str) -> Episode:
        """Begin an episode under a key that only the environment and its browser know."""
        episode = Episode(key, open_database(self._image), self._folder / key)
        self._episodes[key] = episode
        return episode

    def get(self, key: str) -> Episode | None:
        return self._episodes.get(key)

    def remove(self, key: str) -> Episode | None:
        """Take an episode out; its database is closed once nobody works for it."""
        episode = self._episodes.pop(key, None)
        if episode is not None:
            with episode.lock:
                episode.connection.close()
        return episode

    def __len__(self) -> int:
        return len(self._episodes)
