"""The client of an environment server (envs/server) over HTTP.

All clients of a source share one aiohttp session. A call is repeated after a failure on the way
only if that cannot do it twice: a step carries its round number and a reset starts anew, so both
are safe; a create is repeated only if it never reached the server. Everything is bounded by the
call's deadline.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import aiohttp

from agentgym_rl.envs import protocol
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client.base import EnvClient, EnvSource
from agentgym_rl.envs.protocol import Health, ProtocolError
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.1
"""Doubled with each repeat: five of them take three to five seconds."""
_CONNECT_TIMEOUT_S = 5.0
_CLOSE_TIMEOUT_S = 5.0
_IDLE_CONNECTION_S = 30.0
"""Shorter than the server keeps a connection, so a request never meets one that just closed."""


class HttpEnvSource(EnvSource):
    """Clients of the environment served at `url`. Belongs to the event loop of its first call.

    `timeout_s` is the deadline of each call, repeats included; the server has one of its own.
    `max_connections` should reach the number of episodes that run at a time.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        max_connections: int = 256,
    ) -> None:
        self._transport = _Transport(
            url, token=token, timeout_s=timeout_s, max_connections=max_connections
        )
        self._spec: EnvSpec | None = None
        self._spec_lock = asyncio.Lock()

    async def spec(self) -> EnvSpec:
        async with self._spec_lock:
            if self._spec is None:
                self._spec = await self._get("/spec", protocol.decode_spec)
            return self._spec

    async def health(self) -> Health:
        """Return the state of the server."""
        return await self._get("/health", protocol.decode_health)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _new_client(self) -> EnvClient:
        return HttpEnvClient((await self.spec()).name, self._transport)

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        return await self._get(f"/tasks?split={quote(split)}", protocol.decode_tasks)

    async def _get(self, path: str, decode: Callable[[bytes], _T]) -> _T:
        return await self._transport.call(_Call("GET", path, what=path, where="env server"), decode)


class HttpEnvClient(EnvClient):
    """Plays one episode on a server; made by `HttpEnvSource`."""

    def __init__(self, env: str, transport: _Transport) -> None:
        super().__init__(env)
        self._transport = transport
        self._path: str | None = None

    async def _do_create(self) -> None:
        call = _Call("POST", "/episodes", what="create", where=self.where, is_repeatable=False)
        episode = await self._transport.call(call, partial(protocol.decode_text, key="episode"))
        self._path = f"/episodes/{episode}"

    async def _do_reset(self, task: Task) -> str:
        call = self._call("POST", "reset", protocol.encode({"task": task}))
        return await self._transport.call(call, _decode_observation)

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        call = self._call("POST", "step", protocol.encode_step_request(round_index, action))
        return await self._transport.call(call, protocol.decode_step_result)

    async def _do_observation(self) -> str:
        return await self._transport.call(self._call("GET", "observation"), _decode_observation)

    async def _do_available_actions(self) -> tuple[str, ...]:
        return await self._transport.call(self._call("GET", "actions"), protocol.decode_actions)

    async def _do_close(self) -> None:
        if self._path is None:  # the create failed or was cancelled: the lease will run out
            return
        # One repeat, for a connection that went stale; beyond that the server's lease sees to it.
        call = _Call("DELETE", self._path, what="close", where=self.where, max_repeats=1)
        try:
            await self._transport.call(call, bytes, timeout_s=_CLOSE_TIMEOUT_S)
        except EnvError as error:
            logger.warning("the server will reap the episode, because close failed: %s", error)

    def _call(self, method: str, what: str, body: bytes | None = None) -> _Call:
        return _Call(method, f"{self._path}/{what}", what=what, where=self.where, body=body)


_decode_observation = partial(protocol.decode_text, key="observation")


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, and the words for its failure."""

    method: str
    path: str
    what: str
    where: str
    body: bytes | None = None
    is_repeatable: bool = True
    """Whether doing it twice is the same as doing it once."""
    max_repeats: int = 5


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    retry_after_s: float


class _Transport:
    """Sends calls to one server: deadline, repeats, and statuses turned into errors."""

    def __init__(
        self, url: str, *, token: str | None, timeout_s: float, max_connections: int
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                f"the address of a server starts with http:// or https://, got {url!r}"
            )
        self._url = url.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(
        self, call: _Call, decode: Callable[[bytes], _T], *, timeout_s: float | None = None
    ) -> _T:
        """Return the decoded answer, or raise one of the EnvErrors."""
        timeout_s = min(timeout_s or self._timeout_s, self._timeout_s)
        deadline = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                body = await self._answer(call, deadline)
        except TimeoutError:
            message = f"passed its deadline of {timeout_s:g} s"
            raise self._error(EnvTimeoutError, call, message) from None
        try:
            return decode(body)
        except ProtocolError as error:
            raise self._error(EnvError, call, f"unexpected answer: {error}") from error

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _answer(self, call: _Call, deadline: float) -> bytes:
        """Send the call, again where that is safe, and return the body of a good answer."""
        num_repeats = 0
        while True:
            try:
                answer = await self._send(call)
            except (aiohttp.ClientError, OSError) as error:
                if num_repeats == call.max_repeats or not _may_repeat(call, error):
                    message = f"{type(error).__name__}: {error}"
                    raise self._error(EnvError, call, message) from error
                pause_s = _FIRST_PAUSE_S * 2**num_repeats
                num_repeats += 1
            else:
                if answer.status < HTTPStatus.MULTIPLE_CHOICES:
                    return answer.body
                if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                    raise self._refusal(call, answer)
                pause_s = answer.retry_after_s
                if asyncio.get_running_loop().time() + 1.5 * pause_s > deadline:
                    raise self._refusal(call, answer)
            # Jitter, so that episodes that failed together do not come back together.
            await asyncio.sleep(pause_s * random.uniform(1.0, 1.5))

    async def _send(self, call: _Call) -> _Answer:
        session = self._open_session()
        async with session.request(call.method, self._url + call.path, data=call.body) as response:
            body = await response.read()
            retry_after = response.headers.get("Retry-After", "")
            return _Answer(
                response.status, body, float(retry_after) if retry_after.isdecimal() else 1.0
            )

    def _open_session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self._token is not None:
                headers["Authorization"] = f"Bearer {self._token}"
            self._loop = loop
            self._session = aiohttp.ClientSession(
                headers=headers,
                connector=aiohttp.TCPConnector(
                    limit=self._max_connections, keepalive_timeout=_IDLE_CONNECTION_S
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        if self._loop is not loop:
            raise RuntimeError(
                f"the source of {self._url} belongs to another event loop: make one for each loop"
            )
        return self._session

    def _refusal(self, call: _Call, answer: _Answer) -> EnvError:
        """Return the error for a status that is not a success."""
        message = protocol.decode_error(answer.body)
        if message.startswith(call.where):  # the environment's own failure, told in full
            return _ERRORS.get(answer.status, EnvError)(message)
        message = f"HTTP {answer.status}: {message}"
        return self._error(_ERRORS.get(answer.status, EnvError), call, message)

    def _error(self, kind: type[EnvError], call: _Call, message: str) -> EnvError:
        return kind(f"{call.where}: {call.what} at {self._url}: {message}")


_ERRORS: Mapping[int, type[EnvError]] = {
    HTTPStatus.GONE: EnvGoneError,
    HTTPStatus.TOO_MANY_REQUESTS: EnvBusyError,
    HTTPStatus.GATEWAY_TIMEOUT: EnvTimeoutError,
}


def _may_repeat(call: _Call, error: Exception) -> bool:
    """Whether sending the call again cannot do it twice."""
    never_arrived = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return never_arrived or call.is_repeatable
