"""The routes of an environment server (listed in envs/protocol.py) as a Starlette application.

A handler decodes, calls the session store, encodes; every failure is raised and becomes a status
in one place. No handler calls an environment on the event loop: the store's clients have threads.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentgym_rl.envs import protocol
from agentgym_rl.envs.client.base import EpisodeStateError
from agentgym_rl.envs.client.local import LocalEnvSource
from agentgym_rl.envs.protocol import ErrorKind, Health, ProtocolError
from agentgym_rl.envs.server.sessions import ServerLimits, SessionStore
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError, EnvTimeoutError

logger = logging.getLogger(__name__)

_RETRY_AFTER_S = "1"


def create_app(
    env: str,
    options: Mapping[str, object] | None = None,
    limits: ServerLimits | None = None,
    *,
    token: str | None = None,
) -> Starlette:
    """Return the application that serves `env` (a name, or "module:Class").

    With a token, every route but /health wants `Authorization: Bearer TOKEN`. Raises ValueError
    for an unknown environment or option.
    """
    limits = limits or ServerLimits()
    source = LocalEnvSource(env, options=options, timeout_s=limits.call_timeout_s)
    api = _Api(source, limits)
    return Starlette(
        routes=api.routes(),
        lifespan=api.lifespan,
        middleware=[Middleware(_TokenGate, token=token)] if token is not None else [],
        exception_handlers=dict.fromkeys((*_KINDS, ProtocolError, HTTPException), _refuse)
        | {Exception: _apologise},
    )


class _Api:
    """The handlers and what they share."""

    def __init__(self, source: LocalEnvSource, limits: ServerLimits) -> None:
        self._source = source
        self._limits = limits
        self._store = SessionStore(source, limits)
        self._started = time.monotonic()

    def routes(self) -> list[Route]:
        """Return the routes, the most used first: they are matched in order."""
        return [
            Route("/episodes/{id}/step", self.step, methods=["POST"]),
            Route("/episodes/{id}/reset", self.reset, methods=["POST"]),
            Route("/episodes/{id}/observation", self.observation, methods=["GET"]),
            Route("/episodes/{id}/actions", self.actions, methods=["GET"]),
            Route("/episodes/{id}", self.close, methods=["DELETE"]),
            Route("/episodes", self.create, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/spec", self.spec, methods=["GET"]),
            Route("/tasks", self.tasks, methods=["GET"]),
        ]

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Reap while the server runs, and close every episode when it stops."""
        reaper = asyncio.create_task(self._store.reap_forever())
        try:
            yield
        finally:
            reaper.cancel()
            await self._store.aclose()

    async def step(self, request: Request) -> Response:
        step = protocol.decode_step_request(await self._body(request))
        async with self._store.use(request.path_params["id"]) as session:
            return _json(await session.step(step.round_index, step.action))

    async def reset(self, request: Request) -> Response:
        task = protocol.decode_reset_request(await self._body(request))
        spec = await self._source.spec()
        if task.env != spec.name:
            message = (
                f"task {task.id} is of environment {task.env!r}, this server has {spec.name!r}"
            )
            raise ProtocolError(ErrorKind.WRONG_TYPE, message)
        async with self._store.use(request.path_params["id"]) as session:
            return _json({"observation": await session.reset(task)})

    async def observation(self, request: Request) -> Response:
        async with self._store.use(request.path_params["id"]) as session:
            return _json({"observation": await session.client.observation()})

    async def actions(self, request: Request) -> Response:
        async with self._store.use(request.path_params["id"]) as session:
            return _json({"actions": await session.client.available_actions()})

    async def create(self, request: Request) -> Response:
        protocol.decode_empty_request(await self._body(request))
        session = await self._store.create()
        return _json({"episode": session.id}, status=201)

    async def close(self, request: Request) -> Response:
        await self._store.close(request.path_params["id"])
        return Response(status_code=204)

    async def health(self, request: Request) -> Response:
        store = self._store
        return _json(
            Health(
                status="degraded" if store.num_abandoned else "ok",
                env=(await self._source.spec()).name,
                num_episodes=store.num_episodes,
                num_abandoned=store.num_abandoned,
                capacity=self._limits.capacity,
                num_opened=store.num_opened,
                num_failed=store.num_failed,
                num_reaped=store.num_reaped,
                uptime_s=time.monotonic() - self._started,
            )
        )

    async def spec(self, request: Request) -> Response:
        return _json(await self._source.spec())

    async def tasks(self, request: Request) -> Response:
        split = request.query_params.get("split", "")
        try:
            return _json({"tasks": await self._source.tasks(split)})
        except ValueError as error:
            raise ProtocolError(ErrorKind.WRONG_TYPE, str(error)) from error

    async def _body(self, request: Request) -> bytes:
        """Return the body, refusing a large one before it is read whole."""
        limit = self._limits.max_body_bytes
        chunks: list[bytes] = []
        size = int(request.headers.get("content-length", 0))
        if size <= limit:
            size = 0
            async for chunk in request.stream():
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    break
        if size > limit:
            raise ProtocolError(ErrorKind.TOO_LARGE, f"the body is larger than {limit} bytes")
        return b"".join(chunks)


class _TokenGate:
    """Lets a request through when it carries the token; /health needs none."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                answer = _error(ErrorKind.UNAUTHORIZED, "the bearer token is missing or wrong")
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


_KINDS: Mapping[type[Exception], ErrorKind] = {
    EpisodeStateError: ErrorKind.WRONG_STATE,
    EnvBusyError: ErrorKind.BUSY,
    EnvGoneError: ErrorKind.GONE,
    EnvTimeoutError: ErrorKind.TIMEOUT,
    EnvError: ErrorKind.ENV_FAILED,
}


async def _refuse(request: Request, error: Exception) -> Response:
    """Turn a failure that has a status into its answer."""
    if isinstance(error, HTTPException):
        route = f"{request.method} {request.url.path}"
        if error.status_code == ErrorKind.WRONG_METHOD.status:
            return _error(ErrorKind.WRONG_METHOD, f"no such method: {route}")
        return _error(ErrorKind.UNKNOWN_ROUTE, f"no such route: {route}")
    kind = error.kind if isinstance(error, ProtocolError) else _KINDS[type(error)]
    return _error(kind, str(error))


async def _apologise(request: Request, error: Exception) -> Response:
    """Answer for a bug of the server; Starlette raises it again, so that it is logged."""
    return _error(ErrorKind.INTERNAL, f"{type(error).__name__}: {error}")


def _error(kind: ErrorKind, message: str) -> Response:
    headers = {"retry-after": _RETRY_AFTER_S} if kind is ErrorKind.BUSY else None
    return Response(
        protocol.encode_error(kind, message),
        status_code=kind.status,
        headers=headers,
        media_type="application/json",
    )


def _json(message: object, status: int = 200) -> Response:
    return Response(protocol.encode(message), status_code=status, media_type="application/json")
