"""The process that serves a project, and what is asked of it (`SiteProcess`, `shared_process`).

One process per project serves all episodes of this one. It ends with this process, however that
ends, because it watches a pipe. When it dies itself, the episodes on it are lost (`EnvGoneError`),
and the next one starts it again under the same address: this process keeps the listening socket.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentgym_rl.envs.scenarios.web.projects import child_environment, template_of
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.frozen import JsonValue

KEY_HEADER = "X-Episode"
_TOKEN_HEADER = "X-Control-Token"
_START_S = 60.0
_ASK_S = 30.0
_BACKLOG = 512

Value = str | int | float | None
Row = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class SiteEpisode:
    """An episode on a project's process."""

    key: str
    """The secret that the browser sends as `KEY_HEADER`."""
    cookies: Mapping[str, str]
    """Of the user who is logged in from the start."""
    life: int
    """Which start of the process it belongs to."""


class SiteProcess:
    """Serves one project. Make one with `shared_process`."""

    def __init__(self, project: str) -> None:
        self.project = project
        self._owner = os.getpid()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self._token = secrets.token_urlsafe(32)
        self._process: subprocess.Popen[bytes] | None = None
        self._life = 0
        self._starting = threading.Lock()
        self._uploads = tempfile.TemporaryDirectory(prefix=f"agentgym-{project}-")

    @property
    def address(self) -> str:
        """Where it listens, e.g. "127.0.0.1:40123"; the same for as long as this process lives."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    @property
    def is_ours(self) -> bool:
        """Whether it belongs to this process rather than to one that forked it."""
        return self._owner == os.getpid()

    @property
    def process_id(self) -> int | None:
        """Of the running process; None before its first start."""
        return self._process.pid if self._process else None

    def create(self, key: str, user: str | None = None) -> SiteEpisode:
        """Begin an episode under a secret key, with a user logged in.

        Starts the process where it does not run.
        """
        life = self._start()
        cookies = self._ask("create", {"key": key, "user": user})["cookies"]
        assert isinstance(cookies, dict)
        return SiteEpisode(key, {name: str(value) for name, value in cookies.items()}, life)

    def delete(self, episode: SiteEpisode) -> None:
        """End an episode. Safe to repeat, and after the process died."""
        if self.is_alive(episode):
            self._ask("delete", {"key": episode.key})

    def query(self, episode: SiteEpisode, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Return the rows that a reading query finds in an episode's database."""
        self.require(episode)
        asked = {"key": episode.key, "sql": sql, "parameters": list(parameters)}
        rows = self._ask("query", asked)["rows"]
        assert isinstance(rows, list)
        return [tuple(row) for row in rows]  # type: ignore[arg-type] - lists of plain values

    def is_alive(self, episode: SiteEpisode) -> bool:
        """Return whether an episode's process still runs."""
        is_running = self._process is not None and self._process.poll() is None
        return is_running and episode.life == self._life

    def require(self, episode: SiteEpisode) -> None:
        """Raise EnvGoneError where the process of an episode has died."""
        if not self.is_alive(episode):
            raise EnvGoneError(f"the process of the site {self.project!r} has ended")

    def close(self) -> None:
        """End the process. Safe to repeat."""
        with self._starting:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._process = None

    def _start(self) -> int:
        """Start the process unless it runs; return the number of this start."""
        with self._starting:
            if self._process is not None and self._process.poll() is None:
                return self._life
            folder = template_of(self.project)
            listening = self._socket.fileno()
            words = [self.project, str(folder), self._uploads.name, str(listening)]
            process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.sites.serve", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[listening],
                env=child_environment(),
            )
            self._process = process
            self._life += 1
            assert process.stdin is not None
            process.stdin.write(f"{self._token}\n".encode())
            process.stdin.flush()
            self._await_ready(process)
            return self._life

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            is_ready = bool(selector.select(_START_S))
        if not is_ready:
            process.kill()
            raise EnvTimeoutError(f"the site {self.project!r} did not start in {_START_S:g} s")
        if process.stdout.readline().strip() != b"ready":
            status = process.wait()
            raise EnvError(f"the site {self.project!r} did not start (status {status})")

    def _ask(self, action: str, content: Mapping[str, object]) -> dict[str, JsonValue]:
        host, port = self._socket.getsockname()
        connection = http.client.HTTPConnection(host, port, timeout=_ASK_S)
        try:
            connection.request(
                "POST",
                f"/-/control/{action}",
                json.dumps(content),
                {_TOKEN_HEADER: self._token},
            )
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException) as error:
            raise EnvError(f"the site {self.project!r} did not answer {action}: {error}") from error
        finally:
            connection.close()
        if response.status == http.HTTPStatus.GONE:
            raise EnvGoneError(f"the site {self.project!r} has lost the episode")
        if response.status != http.HTTPStatus.OK:
            raise EnvError(f"the site {self.project!r} refused {action}: {answer['error']}")
        return answer


_shared: dict[str, SiteProcess] = {}
_shared_lock = threading.Lock()


def shared_process(project: str) -> SiteProcess:
    """Return this process's own server of a project, made when it is first asked for."""
    with _shared_lock:
        found = _shared.get(project)
        if found is None or not found.is_ours:
            found = _shared[project] = SiteProcess(project)
        return found
