"""An environment server as an ASGI application: our routes (protocol.py) and other dialects.

    origin, token, size of bodies, timing     ServiceGate
    POST /batch                               plain ASGI: the hot path
    everything else                           Starlette: our routes, then the dialects'

A handler turns a request into a call, asks the backend and turns the answer back; every failure
becomes a status in one place. No handler calls an environment itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import ErrorKind, Health, Object, Op, ProtocolError
from agentgym_rl.envs.service.server.backend import Backend, ServerLimits
from agentgym_rl.envs.service.server.episode_service import EpisodeService, ask
from agentgym_rl.envs.service.server.metrics import ServerMetrics
from agentgym_rl.envs.service.server.openapi import describe
from agentgym_rl.envs.service.server.pool import WorkerPool
from agentgym_rl.envs.service.server.session_store import SessionStore
from agentgym_rl.errors import EnvError
from agentgym_rl.serving import bodies
from agentgym_rl.serving.gate import ServiceGate

logger = logging.getLogger(__name__)

_RETRY_AFTER_S = "1"

Dialect = Callable[[EpisodeService, ServerLimits], Sequence[BaseRoute]]
"""Returns the routes of another wire protocol over the same episodes."""


class EnvApp:
    """Serves `env` (a name, or "module:Class") from `num_workers` processes; 0 uses this one.

    With a token, every route but /health wants `Authorization: Bearer TOKEN`. Raises ValueError
    for an unknown environment or option.
    """

    def __init__(
        self,
        env: str,
        options: Mapping[str, object] | None = None,
        limits: ServerLimits | None = None,
        *,
        token: str | None = None,
        num_workers: int = 0,
        dialects: Sequence[Dialect] = (),
    ) -> None:
        self._limits, self._dialects = limits or ServerLimits(), dialects
        self._source = LocalEnvSource(env, options=options, timeout_s=self._limits.call_timeout_s)
        self._spec = self._source.env_class.spec
        self._backend: Backend
        if num_workers:
            self._backend = WorkerPool(
                env,
                options or {},
                self._limits,
                num_workers=num_workers,
                is_quiet_in_calls=self._source.env_class.shares_thread,
            )
        else:
            self._backend = SessionStore(self._source.env_class, options or {}, self._limits)
        self._started = time.monotonic()
        self._metrics = ServerMetrics(self._spec.name)
        self.start_failure: EnvError | None = None
        """Why the episodes could not be made ready, which ASGI would report only as text."""
        self._app: ASGIApp = ServiceGate(
            self._serve,
            token=token,
            max_body_bytes=self._limits.max_body_bytes,
            on_request=self._metrics.observe,
        )
        self._starlette = Starlette(
            routes=self._routes(),
            lifespan=self._lifespan,
            exception_handlers={
                ProtocolError: _refuse,
                HTTPException: _refuse,
                ClientDisconnect: _take_leave,
                Exception: _apologise,
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    @property
    def is_draining(self) -> bool:
        return self._backend.is_draining

    def drain(self) -> None:
        self._backend.is_draining = True

    async def num_episodes(self) -> int:
        return (await self._backend.stats()).num_episodes

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        if is_post and scope["path"] == "/batch":
            await self._answer_batch(scope, receive, send)
        else:
            await self._starlette(scope, receive, send)

    def _routes(self) -> list[BaseRoute]:
        """Return the routes, the most used first: they are matched in order."""
        service = EpisodeService(self._spec, self._source, self._backend)
        posts, gets = (Op.STEP, Op.RESET), (Op.OBSERVATION, Op.ACTIONS, Op.DETAILS, Op.IMAGE)
        return [
            *(
                Route(f"/episodes/{{id}}/{op}", partial(self._post, op), methods=["POST"])
                for op in posts
            ),
            *(
                Route(f"/episodes/{{id}}/{op}", partial(self._get, op), methods=["GET"])
                for op in gets
            ),
            Route("/episodes/{id}", partial(self._get, Op.CLOSE), methods=["DELETE"]),
            Route("/episodes", self._create, methods=["POST"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/spec", self._describe, methods=["GET"]),
            Route("/tasks", self._tasks, methods=["GET"]),
            Route("/metrics", self._count, methods=["GET"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
            *(route for dialect in self._dialects for route in dialect(service, self._limits)),
        ]

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            await self._backend.start()
        except EnvError as error:
            self.start_failure = error
            raise
        try:
            yield
        finally:
            await self._backend.aclose()

    async def _answer_batch(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            calls = protocol.decode_batch(await _read(receive))
        except ProtocolError as error:
            await _error(error.kind, str(error))(scope, receive, send)
            return
        lines = _Lines(len(calls))
        self._backend.submit(calls, lines)
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        is_open = True
        while is_open:
            chunk, is_open = await lines.take()
            await send({"type": "http.response.body", "body": chunk, "more_body": is_open})

    async def _create(self, request: Request) -> Response:
        body = await request.body()
        fields = _own_fields(bodies.load(body)) if body else {}
        return await self._ask({**fields, "op": Op.CREATE.value})

    async def _post(self, op: Op, request: Request) -> Response:
        fields = _own_fields(bodies.load(await request.body()))
        return await self._ask({**fields, "op": op.value, "episode": request.path_params["id"]})

    async def _get(self, op: Op, request: Request) -> Response:
        return await self._ask({"op": op.value, "episode": request.path_params["id"]})

    async def _ask(self, fields: Object) -> Response:
        answer = await ask(self._backend, fields)
        if answer.status == 204:
            return Response(status_code=204)
        return _json(answer.body, answer.status)

    async def _health(self, request: Request) -> Response:
        counts: dict[str, int] = asdict(await self._backend.stats())
        is_degraded = counts.pop("num_missing") or counts["num_abandoned"]
        status = "draining" if self.is_draining else "degraded" if is_degraded else "ok"
        return _json(
            Health(
                status=status,
                env=self._spec.name,
                capacity=self._limits.capacity,
                uptime_s=time.monotonic() - self._started,
                **counts,
            )
        )

    async def _describe(self, request: Request) -> Response:
        return _json(self._spec)

    async def _tasks(self, request: Request) -> Response:
        split = request.query_params.get("split", "")
        try:
            tasks = await self._source.tasks(split)
            return _json({"tasks": [protocol.task_fields(task) for task in tasks]})
        except ValueError as error:
            raise protocol.wrong_type(str(error)) from None

    async def _count(self, request: Request) -> Response:
        text = self._metrics.render(await self._backend.stats(), self._limits.capacity)
        return Response(text, media_type=ServerMetrics.MEDIA_TYPE)

    async def _openapi(self, request: Request) -> Response:
        return _json(describe(self._spec))


class _Lines:
    """The sink of a batch: collects lines until somebody takes them."""

    def __init__(self, num_calls: int) -> None:
        self._num_left = num_calls
        self._lines: list[bytes] = []
        self._is_filled = asyncio.Event()
        if not num_calls:
            self._is_filled.set()

    def add(self, lines: bytes, num_answers: int = 1) -> None:
        self._lines.append(lines)
        self._num_left -= num_answers
        self._is_filled.set()

    async def take(self) -> tuple[bytes, bool]:
        """Wait for lines and return them, and whether more will come."""
        await self._is_filled.wait()
        self._is_filled.clear()
        chunk = b"".join(self._lines)
        self._lines.clear()
        return chunk, self._num_left > 0


async def _read(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ProtocolError(ErrorKind.MALFORMED, "the client left before the body ended")
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return body


def _own_fields(fields: Object) -> Object:
    """Return the fields of a body, refusing those that the route itself decides."""
    for name in ("call", "op", "episode"):
        if name in fields:
            raise protocol.wrong_type(f"unknown fields: {name!r}")
    return fields


async def _refuse(request: Request, error: Exception) -> Response:
    """Turn a failure that has a status into its answer."""
    if isinstance(error, ProtocolError):
        return _error(error.kind, str(error))
    route = f"{request.method} {request.url.path}"
    if isinstance(error, HTTPException) and error.status_code == ErrorKind.WRONG_METHOD.status:
        return _error(ErrorKind.WRONG_METHOD, f"no such method: {route}")
    return _error(ErrorKind.UNKNOWN_ROUTE, f"no such route: {route}")


async def _take_leave(request: Request, error: Exception) -> Response:
    """Note that a client left before its request was whole; nobody reads the answer."""
    route = f"{request.method} {request.url.path}"
    logger.warning("a client left in the middle of its request: %s", route)
    return _error(ErrorKind.MALFORMED, f"the body of {route} broke off")


async def _apologise(request: Request, error: Exception) -> Response:
    """Answer for a bug of the server; Starlette raises it again, so that it is logged."""
    return _error(ErrorKind.INTERNAL, f"{type(error).__name__}: {error}")


def _error(kind: ErrorKind, message: str) -> Response:
    return _json(bodies.error_body(kind, message), kind.status)


def _json(message: object, status: int = 200) -> Response:
    headers = {"retry-after": _RETRY_AFTER_S} if status == ErrorKind.BUSY.status else None
    return Response(
        bodies.encode(message),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )
