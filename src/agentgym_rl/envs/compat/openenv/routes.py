"""The routes of an environment server in the protocol of OpenEnv, for clients written for that.

    WS    /ws                 one socket is one session, with an episode of its own
    GET   /health /metadata /schema /list_environments /{env}/splits
    POST  /{env}/tasks /{env}/num_tasks /{env}/task /{env}/task_range
    POST  /reset /step /mcp   GET /state /openapi.json

HTTP has no sessions in this protocol: /reset plays a reset and gives its place back, /state reports
an episode that has not begun, and /step is refused with 409, because no episode is there to step.
/mcp has no tools. What travels is drawn in protocol.py; session.py answers the frames of a session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from agentgym_rl.envs.compat.openenv.protocol import SCHEMA, SPEC_FIELD, openapi
from agentgym_rl.envs.compat.openenv.session import (
    OpenEnvSession,
    action_text,
    failure_of,
    reset_outcome,
)
from agentgym_rl.envs.compat.openenv.tasks import TaskBook, describe, natural
from agentgym_rl.envs.service.protocol import ErrorKind, ProtocolError, wrong_type
from agentgym_rl.envs.service.server.episode_service import EpisodeService
from agentgym_rl.envs.tools.described import briefing
from agentgym_rl.serving import bodies

logger = logging.getLogger(__name__)

_Handler: TypeAlias = Callable[[Request], Awaitable[object]]
"""Returns what the body of the answer holds."""
_MAX_WAITING = 4
"""Frames of one socket that may wait for the frame in work; the rest waits in the network."""
_NORMAL, _TRY_AGAIN = 1000, 1013
"""Close codes of a WebSocket."""


def routes(service: EpisodeService, *, max_message_bytes: int = 4 * 1024 * 1024) -> list[BaseRoute]:
    """Return the routes, to be mounted under a prefix such as /openenv.

    The server that runs them should ping its sockets (uvicorn does by default): that is how a peer
    that vanished is noticed, and its episode closed.
    """
    api = _Api(service, max_message_bytes)
    posts = {
        "/reset": api.reset,
        "/step": api.step,
        "/mcp": api.mcp,
        "/{env}/tasks": api.tasks,
        "/{env}/num_tasks": api.num_tasks,
        "/{env}/task": api.task,
        "/{env}/task_range": api.task_range,
    }
    spec = service.spec
    metadata = {
        "name": spec.name,
        "description": spec.summary,
        "readme_content": briefing(spec),
        "version": version("agentgym-rl"),
        "author": None,
        "documentation_url": None,
        SPEC_FIELD: spec,
    }
    gets = {
        "/health": _always({"status": "healthy"}),
        "/metadata": _always(metadata),
        "/schema": _always(SCHEMA),
        "/state": _always({"episode_id": None, "step_count": 0}),
        "/list_environments": _always([spec.name]),
        "/{env}/splits": api.splits,
    }
    document = openapi(dict.fromkeys(gets, "get") | dict.fromkeys(posts, "post"))
    gets["/openapi.json"] = _always(document)
    return [
        WebSocketRoute("/ws", api.socket),
        *(Route(path, _answering(handler), methods=["GET"]) for path, handler in gets.items()),
        *(Route(path, _answering(handler), methods=["POST"]) for path, handler in posts.items()),
    ]


class _Api:
    """The handlers that need the service."""

    def __init__(self, service: EpisodeService, max_message_bytes: int) -> None:
        self._service = service
        self._tasks = TaskBook(service)
        self._max_message_bytes = max_message_bytes

    async def socket(self, socket: WebSocket) -> None:
        """Play one session until either side ends it; the episode ends with it."""
        await socket.accept()
        session = OpenEnvSession(self._service, self._tasks, self._max_message_bytes)
        frames: asyncio.Queue[bytes] = asyncio.Queue(_MAX_WAITING)
        # Reading continues beside the playing, so that a lost peer ends a call that is running.
        reading = asyncio.create_task(_read(socket, frames))
        playing = asyncio.create_task(_play(socket, frames, session))
        try:
            await asyncio.wait((reading, playing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            playing.cancel()
            _, end = await asyncio.gather(reading, playing, return_exceptions=True)
            await session.close()
        if isinstance(end, Exception) and not isinstance(end, WebSocketDisconnect):
            logger.warning("a session ended with %s: %s", type(end).__name__, end)
        code = end if isinstance(end, int) else _NORMAL
        with suppress(RuntimeError, WebSocketDisconnect):  # the peer may have closed it already
            await socket.close(code)

    async def reset(self, request: Request) -> object:
        task = await self._tasks.choose(await _body(request))
        episode = await self._service.create()
        try:
            return reset_outcome(await self._service.reset(episode, task), task)
        finally:
            await self._service.close(episode)

    async def step(self, request: Request) -> object:
        action_text(await _body(request))
        raise ProtocolError(
            ErrorKind.WRONG_STATE, "there is no episode to step over HTTP: play through /ws"
        )

    async def mcp(self, request: Request) -> object:
        """Answer in JSON-RPC that there are no tools: an environment here is played with text."""
        body = await _body(request)
        answer = {"jsonrpc": "2.0", "id": body.get("id")}
        if body.get("method") == "tools/list":
            return {**answer, "result": {"tools": ()}}
        code, message = (-32601, "no such method") if "method" in body else (-32600, "no method")
        return {**answer, "error": {"code": code, "message": message}}

    async def splits(self, request: Request) -> object:
        self._check_env(request)
        known = ("train", "validation", "test")
        return [
            {"name": name, "type": name if name in known else "validation"}
            for name in self._service.spec.splits
        ]

    async def tasks(self, request: Request) -> object:
        tasks = await self._tasks.split(self._split(request, await _body(request)))
        specs = [describe(task, position) for position, task in enumerate(tasks)]
        return {"tasks": specs, "env_name": self._service.spec.name}

    async def num_tasks(self, request: Request) -> object:
        tasks = await self._tasks.split(self._split(request, await _body(request)))
        return {"num_tasks": len(tasks)}

    async def task(self, request: Request) -> object:
        body = await _body(request)
        index = natural(body, "index")
        if index is None:
            raise wrong_type("'index' is missing")
        return {"task": describe(await self._tasks.at(self._split(request, body), index), index)}

    async def task_range(self, request: Request) -> object:
        body = await _body(request)
        start, stop = natural(body, "start"), natural(body, "stop")
        tasks = list(enumerate(await self._tasks.split(self._split(request, body))))
        return {"tasks": [describe(task, position) for position, task in tasks[start:stop]]}

    def _check_env(self, request: Request) -> None:
        name = request.path_params["env"]
        if name.lower() != self._service.spec.name.lower():
            raise ProtocolError(ErrorKind.UNKNOWN_ROUTE, f"no environment {name[:100]!r} here")

    def _split(self, request: Request, body: Mapping[str, object]) -> str:
        self._check_env(request)
        split = body.get("split")
        if not isinstance(split, str):
            raise wrong_type("'split' must be a string")
        return split


async def _body(request: Request) -> Mapping[str, object]:
    """Return the body; an absent one is empty."""
    body = await request.body()
    return bodies.load(body) if body else {}


async def _read(socket: WebSocket, frames: asyncio.Queue[bytes]) -> None:
    """Pass frames on until the socket ends."""
    while True:
        event = await socket.receive()
        if event["type"] == "websocket.disconnect":
            return
        text = event.get("text")
        await frames.put(text.encode() if text is not None else event["bytes"])


async def _play(socket: WebSocket, frames: asyncio.Queue[bytes], session: OpenEnvSession) -> int:
    """Answer frames until the client asks for the end; return the close code."""
    refusal = await session.open()
    if refusal is not None:
        await socket.send_text(refusal.decode())
        return _TRY_AGAIN
    while True:
        answer = await session.answer(await frames.get())
        if answer is None:
            return _NORMAL
        await socket.send_text(answer.decode())


def _always(content: object) -> _Handler:
    """Return the handler that answers every request with this content."""

    async def handler(request: Request) -> object:
        return content

    return handler


def _answering(handler: _Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a handler; a failure has a status and {"detail": its message}."""

    async def endpoint(request: Request) -> Response:
        try:
            status, content = 200, await handler(request)
        except ClientDisconnect:
            raise  # not a failure of the call; the application notes it
        except Exception as error:  # noqa: BLE001 - failure_of logs what is not a known failure
            kind, message = failure_of(error)
            status, content = kind.status, {"detail": message}
        return Response(bodies.encode(content), status, media_type="application/json")

    return endpoint
