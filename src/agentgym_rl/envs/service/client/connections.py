"""The connections to one server: an aiohttp session, made on first use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

import aiohttp

from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError, EnvTimeoutError

ERRORS: Mapping[int, type[EnvError]] = {
    HTTPStatus.GONE: EnvGoneError,
    HTTPStatus.TOO_MANY_REQUESTS: EnvBusyError,
    HTTPStatus.GATEWAY_TIMEOUT: EnvTimeoutError,
}
"""What a status means to an episode; every other failure is an EnvError."""

MAX_CONNECTIONS = 256
_CONNECT_TIMEOUT_S = 5.0
_IDLE_S = 30.0
"""Shorter than our servers keep a connection, so a request never meets one that just closed."""


class Connections:
    """The session of one server; belongs to the event loop of its first use.

    `max_connections` 0 is no limit. `idle_s` is how long an unused connection is kept.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        max_connections: int,
        idle_s: float = _IDLE_S,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                f"the address of a server starts with http:// or https://, got {url!r}"
            )
        self.url = url.rstrip("/")
        self._token = token
        self._max_connections = max_connections
        self._idle_s = idle_s
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
            self._loop = loop
            self._session = aiohttp.ClientSession(
                headers=headers,
                connector=aiohttp.TCPConnector(
                    limit=self._max_connections, keepalive_timeout=self._idle_s
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        if self._loop is not loop:
            raise RuntimeError(
                f"the source of {self.url} belongs to another event loop: make one for each loop"
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
