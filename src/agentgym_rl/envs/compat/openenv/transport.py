"""The way to an OpenEnv server: its HTTP routes, and sockets that answer each message in order.

Every call has a deadline. A server that is full is asked again until then, and one that cannot be
reached is waited for (patience.py); a message is never sent twice, because a socket that was lost
took its episode along.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import aiohttp
import orjson

from agentgym_rl.envs.compat.openenv.protocol import ErrorCode
from agentgym_rl.envs.service.client.connections import Connections
from agentgym_rl.envs.service.client.patience import Outages
from agentgym_rl.envs.service.protocol import Object, ProtocolError, wrong_type
from agentgym_rl.errors import (
    EnvAwayError,
    EnvBusyError,
    EnvError,
    EnvGoneError,
    EnvTimeoutError,
)
from agentgym_rl.serving import bodies

_CLOSE_TIMEOUT_S = 5.0
_CLOSE_HANDSHAKE_S = 1.0
"""What a server that no longer answers may cost beyond the deadline."""
_MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_NOT_OFFERED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class ErrorFrame(Exception):  # noqa: N818 - an answer, which may or may not be an error to us
    """The server answered with an error."""

    def __init__(self, data: Object) -> None:
        super().__init__(str(data.get("message", "no message")))
        self.code = str(data.get("code", ""))
        self.kind: str | None = data.get("kind")
        """Our own kind of the failure; None on servers of others."""
        self.details = _findings(data.get("errors"))
        """What a validation found, in words: "row: Field required; col: Field required"."""


class OpenEnvSocket:
    """One session. Messages are answered in order, so the answers to calls that were cancelled
    are counted and dropped. A separate task reads, because pings must be answered also while
    nobody waits for a message.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._num_unanswered = 0
        self._reading = asyncio.create_task(self._read())

    async def exchange(self, kind: str, data: Object | None = None) -> Object:
        """Send a message and return the data of its answer.

        Raises ErrorFrame, ProtocolError (an answer that cannot be understood) or EnvGoneError.
        """
        message = {"type": kind} if data is None else {"type": kind, "data": data}
        self._num_unanswered += 1
        # A server that refused the session and closed it has left its reason among the answers.
        with suppress(aiohttp.ClientError, OSError):
            await self._socket.send_str(orjson.dumps(message).decode())
        while True:
            answer = await self._answers.get()
            if answer is None:
                self._answers.put_nowait(None)
                raise EnvGoneError(f"the connection was lost (code {self._socket.close_code})")
            self._num_unanswered -= 1
            if self._num_unanswered == 0:
                return _data_of(answer)

    async def close(self) -> None:
        """End the session and wait for the server to have ended it, but not for long."""
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                if self._num_unanswered == 0 and not self._reading.done():
                    await self._socket.send_str('{"type":"close"}')
                    await asyncio.shield(self._reading)
                await self._socket.close()
        except (TimeoutError, aiohttp.ClientError, OSError):
            pass  # the server notices by itself
        finally:
            self._reading.cancel()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    break
                content = message.data
                self._answers.put_nowait(content.encode() if isinstance(content, str) else content)
        finally:
            self._answers.put_nowait(None)


class OpenEnvTransport:
    """Reaches one server. Belongs to the event loop of its first call."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        timeout_s: float,
        outage_s: float,
        has_others: Callable[[], bool] = lambda: False,
    ) -> None:
        # No limit: each episode holds a connection.
        self._connections = Connections(url, token=token, max_connections=0)
        self.url = self._connections.url
        self._timeout_s = timeout_s
        self._outage_s = outage_s
        self._outages = Outages(url, outage_s, has_others=has_others)

    async def fetch(self, path: str, body: Object | None = None) -> object | None:
        """Return the JSON of a GET, or with a body of a POST; None where there is no such route."""
        async with self.calling("env server", path, extra_s=self._outage_s):
            return await self._outages.outlast(
                lambda: self._request(path, body), is_away=_is_away, timeout_s=self._timeout_s
            )

    async def open(self, where: str) -> OpenEnvSocket:
        """Return a session that the server has given a place. Waits for one as long as it may."""
        async with self.calling(where, "create", extra_s=self._outage_s):
            opened = await self._outages.outlast(
                self._open_once,
                is_away=_is_away,
                is_busy=lambda opened: isinstance(opened, EnvBusyError),
                timeout_s=self._timeout_s,
            )
            if isinstance(opened, EnvBusyError):
                raise opened
            return opened

    @asynccontextmanager
    async def calling(self, where: str, what: str, *, extra_s: float = 0.0) -> AsyncIterator[None]:
        """Put a deadline on a call, and its place and its server into the words of a failure.

        `extra_s` is for what a call may wait beyond its answer.
        """
        place = f"{where}: {what} at {self.url}"
        try:
            async with asyncio.timeout(self._timeout_s + extra_s):
                yield
        except TimeoutError:
            message = f"{place}: passed its deadline of {self._timeout_s:g} s"
            raise EnvTimeoutError(message) from None
        except ProtocolError as error:
            raise EnvError(f"{place}: unexpected answer: {error}") from error
        except EnvError as error:
            if str(error).startswith(where):  # the environment's own failure, reported in full
                raise
            raise type(error)(f"{place}: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EnvAwayError(f"{place}: {type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def _open_once(self) -> OpenEnvSocket | EnvBusyError:
        socket = OpenEnvSocket(await self._connect())
        try:
            await _confirm(socket)
        except BaseException as error:
            await socket.close()
            if isinstance(error, EnvBusyError):
                return error
            raise
        return socket

    async def _request(self, path: str, body: Object | None) -> object | None:
        method = "GET" if body is None else "POST"
        data = None if body is None else orjson.dumps(body)
        async with self._connections.session().request(
            method, self.url + path, data=data
        ) as response:
            content = await response.read()
            if response.status in _NOT_OFFERED:
                return None
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                text = content[:200].decode(errors="replace")
                raise EnvError(f"HTTP {response.status}: {text}")
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise EnvError(f"unexpected answer: not JSON: {error}") from None

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        try:
            return await self._connections.session().ws_connect(
                f"{self.url}/ws",
                max_msg_size=_MAX_MESSAGE_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_HANDSHAKE_S),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise EnvError(f"HTTP {error.status} instead of a WebSocket at /ws") from error


async def _is_away(error: Exception) -> bool:
    """Whether the server cannot be reached; one that only does not answer in time can be."""
    return isinstance(error, aiohttp.ClientError | OSError) and type(error) is not TimeoutError


async def _confirm(socket: OpenEnvSocket) -> None:
    """Ask for the state, whose answer shows whether a session was given or refused."""
    try:
        await socket.exchange("state")
    except ErrorFrame as frame:
        if frame.code == ErrorCode.CAPACITY_REACHED:
            raise EnvBusyError(str(frame)) from frame
        if frame.code in (ErrorCode.FACTORY_ERROR, ErrorCode.SESSION_ERROR):
            raise EnvError(str(frame)) from frame
        # Another server may have no state before the reset; the session is there all the same.


def _findings(errors: object) -> str:
    """Return the findings of pydantic, which is what these servers validate with, as one line."""
    findings = [e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
    return "; ".join(
        f"{'.'.join(map(str, finding.get('loc', ())))}: {finding.get('msg', '')}"
        for finding in findings
    )


def _data_of(answer: bytes) -> Object:
    message = bodies.load(answer)
    data = message.get("data")
    if not isinstance(data, dict):
        raise wrong_type("'data' must be an object")
    if message.get("type") == "error":
        raise ErrorFrame(data)
    return data
