"""The checks of every request to a service: its origin, its token, the size of its body.

The gate of the web UI uses `is_foreign_page` and `declares_more_than`, too.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentgym_rl.serving.bodies import ErrorKind, ProtocolError, encode, error_body

FOREIGN_PAGE = "pages of other origins are refused"


class ServiceGate:
    """Admits requests with the token and a body within the limit.

    /health needs no token. `on_request` gets the path, status and duration in seconds of each.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        max_body_bytes: int,
        on_request: Callable[[str, int, float], None],
    ) -> None:
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._max_body_bytes = max_body_bytes
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if is_foreign_page(headers):
            await _refuse(scope, send, ErrorKind.FORBIDDEN, FOREIGN_PAGE)
        elif not self._is_allowed(scope["path"], headers):
            await _refuse(
                scope, send, ErrorKind.UNAUTHORIZED, "the bearer token is missing or wrong"
            )
        elif scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._pass(scope, receive, send, headers)

    def _is_allowed(self, path: str, headers: dict[bytes, bytes]) -> bool:
        if self._expected is None or path == "/health":
            return True
        return hmac.compare_digest(headers.get(b"authorization", b""), self._expected)

    async def _pass(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes]
    ) -> None:
        """Serve a request within the limit, and report how long it took."""
        limit = self._max_body_bytes
        started, status, size = time.perf_counter(), 0, 0
        too_large = f"the body is larger than {limit} bytes"

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise ProtocolError(ErrorKind.TOO_LARGE, too_large)
            return message

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if declares_more_than(limit, headers):
                await _refuse(scope, noted, ErrorKind.TOO_LARGE, too_large)
            else:
                await self._app(scope, limited, noted)
        finally:
            self._on_request(scope["path"], status, time.perf_counter() - started)


def is_foreign_page(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a browser sends this for a page of another origin.

    Without the check any page open in a browser could use a server on the same machine.
    """
    origin = headers.get(b"origin")
    return origin is not None and origin.rpartition(b"//")[2] != headers.get(b"host")


def declares_more_than(max_bytes: int, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request declares a body above the limit."""
    length = headers.get(b"content-length", b"0")
    return length.isdigit() and int(length) > max_bytes


async def _refuse(scope: Scope, send: Send, kind: ErrorKind, message: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": message})
        return
    body = encode(error_body(kind, message))
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": kind.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
