"""Which episode a request belongs to: the WSGI application of a site's process (`Gate`).

/static/, /media/     files, without Django and without the episode's lock
/-/control/           for the environment (control.py)
anything else         Django, for the episode whose key the request carries, one at a time
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TypeVar
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core.cache import caches
from django.core.exceptions import SuspiciousFileOperation
from django.db import connections
from django.utils._os import safe_join

from agentgym_rl.envs.scenarios.web.sites.control import CONTROL_PATH, Control
from agentgym_rl.envs.scenarios.web.sites.episodes import Episode, EpisodeStore, current
from agentgym_rl.envs.scenarios.web.sites.sending import refuse, send_file

T = TypeVar("T")

KEY_HEADER = "HTTP_X_EPISODE"
"""Of WSGI; the browser sends it as X-Episode."""
_READING = ("GET", "HEAD", "OPTIONS")


class Gate:
    """Sends every request where it belongs."""

    def __init__(self, store: EpisodeStore, token: str, django: WSGIApplication) -> None:
        self._store = store
        self._django = django
        self._control = Control(store, token, work_for, forget)

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith(CONTROL_PATH):
            return self._control(environ, start)
        episode = self._store.get(environ.get(KEY_HEADER, ""))
        if path.startswith(settings.STATIC_URL):
            return send_file(_static_file(path.removeprefix(settings.STATIC_URL)), start)
        if episode is None:
            return refuse(start, "403 Forbidden", b"This request belongs to no episode.")
        if path.startswith(settings.MEDIA_URL):
            return send_file(_media_file(path.removeprefix(settings.MEDIA_URL), episode), start)
        return self._ask_django(episode, environ, start)

    def _ask_django(
        self, episode: Episode, environ: WSGIEnvironment, start: StartResponse
    ) -> Iterable[bytes]:
        def ask() -> list[bytes]:
            response = self._django(environ, start)
            try:
                return list(response)
            finally:
                response.close()  # type: ignore[attr-defined] - Django's responses have it

        with episode.lock:
            if self._store.get(episode.key) is not episode:
                return refuse(start, "403 Forbidden", b"This episode has ended.")
            if environ["REQUEST_METHOD"] not in _READING:
                episode.tick()
            return work_for(episode, ask)


def work_for(episode: Episode, work: Callable[[], T]) -> T:
    """Do something for an episode, whose lock the caller holds."""
    token = current.set(episode)
    connections["default"].close()
    try:
        return work()
    finally:
        connections["default"].close()
        current.reset(token)


def forget(episode: Episode) -> None:
    """Drop what an episode has left in the cache and on the disk."""
    entries = caches["default"]
    kept = entries._cache  # LocMemCache has no way to list its keys
    for key in [key for key in kept.copy() if key.startswith(f"{episode.key}:")]:
        with entries._lock:
            entries._delete(key)
    shutil.rmtree(episode.folder, ignore_errors=True)


@cache
def _static_file(name: str) -> Path | None:
    try:
        found = finders.find(name)
    except SuspiciousFileOperation:
        return None
    return Path(found) if found and Path(found).is_file() else None


def _media_file(name: str, episode: Episode) -> Path | None:
    for folder in (str(episode.folder), settings.MEDIA_ROOT):
        try:
            path = Path(safe_join(folder, name))
        except SuspiciousFileOperation:
            return None
        if path.is_file():
            return path
    return None
