"""Builds and serves the tracker (`build`, `make_application`)."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from wsgiref.types import StartResponse, WSGIEnvironment

from agentgym_rl.envs.scenarios.web.sites.control import CONTROL_PATH, Control
from agentgym_rl.envs.scenarios.web.sites.episodes import (
    Episode,
    EpisodeStore,
    current,
    open_database,
    require_episode,
)
from agentgym_rl.envs.scenarios.web.sites.gate import KEY_HEADER
from agentgym_rl.envs.scenarios.web.sites.sending import refuse, send_file
from agentgym_rl.envs.scenarios.web.sites.steady import draw
from agentgym_rl.envs.scenarios.web.sites.trac.stand_in import prepare

prepare()  # before Trac is imported

import trac  # noqa: E402
import trac.web.chrome  # noqa: E402
from jinja2 import BytecodeCache  # noqa: E402
from jinja2.bccache import Bucket  # noqa: E402
from trac.env import Environment, env_cache, open_environment  # noqa: E402
from trac.util.text import jinja2env  # noqa: E402
from trac.web.main import dispatch_request  # noqa: E402

from agentgym_rl.envs.scenarios.web.sites.trac.database import URL  # noqa: E402
from agentgym_rl.envs.scenarios.web.sites.trac.seed import seed  # noqa: E402

T = TypeVar("T")

_DATABASE = "template.sqlite3"
_ENVIRONMENT = "environment"
_STATIC = "/chrome/common/"
_READING = ("GET", "HEAD", "OPTIONS")
_OPTIONS = [
    ("trac", "database", URL),
    ("trac", "base_url", "http://tracker.test"),
    ("trac", "default_timezone", "UTC"),
    ("trac", "default_date_format", "iso8601"),
    ("trac", "auto_preview_timeout", "0"),
    ("project", "name", "Lantern"),
    ("project", "descr", "A photo library for small archives"),
    ("header_logo", "alt", "Lantern"),
    ("header_logo", "src", ""),
    ("logging", "log_type", "none"),
    ("components", "agentgym_rl.*", "enabled"),
    ("components", "trac.versioncontrol.*", "disabled"),
    ("ticket", "default_owner", "< default >"),
    ("timeline", "default_daysback", "30"),
]
"""Of trac.ini. There is no repository, and previews would come while the agent types."""


def build(folder: Path) -> None:
    """Make a Trac environment with its database, and fill it."""
    episode = Episode("", open_database(None), folder)
    current.set(episode)
    seed(Environment(str(folder / _ENVIRONMENT), create=True, options=_OPTIONS))
    episode.connection.commit()
    episode.connection.execute("ANALYZE")
    episode.connection.execute("VACUUM")
    (folder / _DATABASE).write_bytes(episode.connection.serialize())


class CompiledPages(BytecodeCache):
    """Trac's page templates, compiled once for all episodes."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if bucket.key in self._compiled:
            bucket.bytecode_from_string(self._compiled[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._compiled[bucket.key] = bucket.bytecode_to_string()


def make_application(template: Path, store: EpisodeStore, token: str) -> TracGate:
    """Return what answers the requests to the tracker."""
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it reports every request
    trac.web.chrome.jinja2env = partial(jinja2env, bytecode_cache=CompiledPages())
    gate = TracGate(template / _ENVIRONMENT, store, token)
    gate.warm_up()
    return gate


class TracGate:
    """Sends every request to the environment of its episode."""

    def __init__(self, template: Path, store: EpisodeStore, token: str) -> None:
        self._template = template
        self._store = store
        self._control = Control(store, token, _work_for, _forget, _log_in)
        self._files = Path(trac.__file__).parent / "htdocs"

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith(CONTROL_PATH):
            return self._control(environ, start)
        if path.startswith(_STATIC):
            return send_file(self._static_file(path.removeprefix(_STATIC)), start)
        episode = self._store.get(environ.get(KEY_HEADER, ""))
        if episode is None:
            return refuse(start, "403 Forbidden", b"This request belongs to no episode.")
        with episode.lock:
            if self._store.get(episode.key) is not episode:
                return refuse(start, "403 Forbidden", b"This episode has ended.")
            if environ["REQUEST_METHOD"] not in _READING:
                episode.tick()
            return _work_for(episode, lambda: self._ask_trac(episode, environ, start))

    def warm_up(self) -> None:
        """Load all components, so that no episode waits for them."""
        episode = self._store.create("")
        try:
            _work_for(episode, lambda: open_environment(str(self._folder(episode))))
        finally:
            self._store.remove("")
            shutil.rmtree(episode.folder / _ENVIRONMENT, ignore_errors=True)

    def _ask_trac(
        self, episode: Episode, environ: WSGIEnvironment, start: StartResponse
    ) -> list[bytes]:
        environ["trac.env_path"] = str(self._folder(episode))
        environ["trac.locale"] = "C"
        response = dispatch_request(environ, start)
        try:
            return list(response)
        finally:
            close = getattr(response, "close", None)  # only responses from files have it
            if close is not None:
                close()

    def _folder(self, episode: Episode) -> Path:
        """Return the episode's own copy of what is in files: settings and attachments."""
        folder = episode.folder / _ENVIRONMENT
        if not folder.is_dir():
            shutil.copytree(self._template, folder)
        return folder

    def _static_file(self, name: str) -> Path | None:
        path = (self._files / name).resolve()
        return path if path.is_relative_to(self._files.resolve()) and path.is_file() else None


def _work_for(episode: Episode, work: Callable[[], T]) -> T:
    token = current.set(episode)
    try:
        return work()
    finally:
        current.reset(token)


def _log_in(user: str) -> dict[str, Any]:
    """Begin a session of a user and return its cookie."""
    episode, cookie = require_episode(), draw(32)
    with episode.connection as connection:
        connection.execute(
            "INSERT INTO auth_cookie (cookie, name, ipnr, time) VALUES (?, ?, '127.0.0.1', ?)",
            (cookie, user, int(episode.now.timestamp())),
        )
    return {"trac_auth": cookie}


def _forget(episode: Episode) -> None:
    """Drop what an episode has left in memory and on the disk."""
    path = str(episode.folder / _ENVIRONMENT)
    env_cache.pop(path, None)
    logger = f"Trac.{hashlib.sha1(path.encode()).hexdigest()}"
    logging.Logger.manager.loggerDict.pop(logger, None)  # nothing else ever removes it
    shutil.rmtree(episode.folder, ignore_errors=True)
