"""HTTP to a vLLM server. Every call has a deadline; none is repeated here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import aiohttp

from agentgym_rl.engines.base import error_message
from agentgym_rl.engines.vllm.protocol import COMPLETIONS
from agentgym_rl.errors import EngineError

_HEALTH_S = 10.0
_JSON = {"Content-Type": "application/json"}


class ServerLostError(EngineError):
    """The server is not there, or not there any more."""


class NoAnswerError(EngineError):
    """The server did not answer before the deadline."""


class AnswerError(EngineError):
    """The server answered with an error."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class VllmClient:
    """Calls one server, by its address or its Unix socket. Belongs to one event loop.

    Replies share connections that are kept alive; every other call opens its own. Such a call comes
    after weights were saved or transferred, when the server may have closed an idle connection
    before the loop could notice.
    """

    def __init__(self, url: str = "", *, socket: Path | None = None, token: str = "") -> None:
        """`token` is that of a gate (gate.py); vLLM itself asks for none."""
        self._url = url.rstrip("/") or "http://vllm"
        self._replies = _session(socket, token, keeps_connections=True)
        self._others = _session(socket, token, keeps_connections=False)

    async def is_healthy(self) -> bool:
        """Return whether the server answers and its engine lives."""
        try:
            await self.call("GET", "/health", timeout_s=_HEALTH_S)
        except EngineError:
            return False
        return True

    async def close(self) -> None:
        """Close the connections; the server aborts their requests."""
        await self._replies.close()
        await self._others.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float,
    ) -> bytes:
        """Return the body of the answer; raises AnswerError for one that is an error."""
        data = None if body is None else json.dumps(body).encode()
        return await self._answered(method, path, data, timeout_s=timeout_s)

    async def put(self, path: str, content: BinaryIO, *, timeout_s: float) -> bytes:
        """Send a file to a gate; return the body of the answer."""
        return await self._answered("PUT", path, content, timeout_s=timeout_s)

    async def _answered(
        self, method: str, path: str, data: bytes | BinaryIO | None, *, timeout_s: float
    ) -> bytes:
        status, text = await self.ask(method, path, data, timeout_s=timeout_s)
        if status >= 400:
            raise AnswerError(
                f"vLLM: {method} {path}: {status}: {error_message(text)}", status=status
            )
        return text

    async def ask(
        self, method: str, path: str, data: bytes | BinaryIO | None, *, timeout_s: float | None
    ) -> tuple[int, bytes]:
        """Send JSON, or a file; return the status and the body of the answer."""
        session = self._replies if path == COMPLETIONS else self._others
        try:
            async with (
                asyncio.timeout(timeout_s),
                session.request(
                    method, self._url + path, data=data, headers={} if data is None else _JSON
                ) as answer,
            ):
                return answer.status, await answer.read()
        except TimeoutError:
            raise NoAnswerError(
                f"vLLM: no answer to {method} {path} within {timeout_s:g} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ServerLostError(
                f"vLLM: {method} {path} failed: {type(error).__name__}: {error}"
            ) from error


def _session(socket: Path | None, token: str, *, keeps_connections: bool) -> aiohttp.ClientSession:
    # No limit on connections: vLLM itself decides how many requests it computes at once.
    connector = (
        aiohttp.UnixConnector(str(socket), limit=0, force_close=not keeps_connections)
        if socket is not None
        else aiohttp.TCPConnector(limit=0, force_close=not keeps_connections)
    )
    timeout = aiohttp.ClientTimeout(total=None)  # each call has its own
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers)
