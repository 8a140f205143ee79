"""What the environment asks a site: create, delete, query (`Control`).

    POST /-/control/create   {"key": "...", "user": "ann@example.com" or null}
                             {"cookies": {"sessionid": "..."}}
    POST /-/control/delete   {"key": "..."}
    POST /-/control/query    {"key": "...", "sql": "SELECT ...", "parameters": [...]}
                             {"rows": [[...], ...]}

Every request carries the token that the process was started with; without it there is nothing here.
A query cannot write. A key that is not known is 410, which means that the process was restarted.
"""

from __future__ import annotations

import hmac
import importlib
import json
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model

from agentgym_rl.envs.scenarios.web.sites.episodes import Episode, EpisodeStore

CONTROL_PATH = "/-/control/"
TOKEN_HEADER = "HTTP_X_CONTROL_TOKEN"
Json = dict[str, Any]  # a request and its answer, whose fields the routes above list


class Control:
    """The routes above."""

    def __init__(
        self,
        store: EpisodeStore,
        token: str,
        work_for: Callable[[Episode, Callable[[], Json]], Json],
        forget: Callable[[Episode], None],
        log_in: Callable[[str], Json] | None = None,
    ) -> None:
        self._store = store
        self._token = token.encode()
        self._work_for = work_for
        self._forget = forget
        self._log_in = log_in or _log_in

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        given = environ.get(TOKEN_HEADER, "").encode()
        if not hmac.compare_digest(given, self._token):
            return _answer(start, "404 Not Found", {"error": "there is no such page"})
        action = environ["PATH_INFO"].removeprefix(CONTROL_PATH)
        length = int(environ.get("CONTENT_LENGTH") or 0)
        request: Json = json.loads(environ["wsgi.input"].read(length) or b"{}")
        if action == "ping":
            return _answer(start, "200 OK", {"episodes": len(self._store)})
        if action == "create":
            return _answer(start, "200 OK", self._create(request["key"], request["user"]))
        if action == "delete":
            episode = self._store.remove(request["key"])
            if episode is not None:
                self._forget(episode)
            return _answer(start, "200 OK", {})
        if action == "query":
            return self._query(request, start)
        return _answer(start, "404 Not Found", {"error": f"no action {action!r}"})

    def _create(self, key: str, user: str | None) -> Json:
        episode = self._store.create(key)
        cookies = {}
        if user is not None:
            with episode.lock:
                cookies = self._work_for(episode, lambda: self._log_in(user))
        return {"cookies": cookies}

    def _query(self, request: Json, start: StartResponse) -> Iterable[bytes]:
        episode = self._store.get(request["key"])
        if episode is None:
            return _answer(start, "410 Gone", {"error": "there is no such episode"})
        with episode.lock:
            connection = episode.connection
            connection.execute("PRAGMA query_only = ON")
            try:
                rows = connection.execute(request["sql"], request["parameters"]).fetchall()
            except sqlite3.Error as error:
                return _answer(start, "400 Bad Request", {"error": str(error)})
            finally:
                connection.execute("PRAGMA query_only = OFF")
        return _answer(start, "200 OK", {"rows": rows})


def _log_in(name: str) -> Json:
    """Begin a session of a user and return its cookie."""
    user = get_user_model().objects.get_by_natural_key(name)
    session = importlib.import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = user._meta.pk.value_to_string(user)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return {settings.SESSION_COOKIE_NAME: session.session_key}


def _answer(start: StartResponse, status: str, content: Json) -> Iterable[bytes]:
    body = json.dumps(content, default=str).encode()
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
