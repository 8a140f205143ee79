"""The retrieval service over HTTP, with Search-R1's request and answer.

    POST /retrieve        {"queries": ["..."], "topk": 3, "return_scores": true}
                          -> {"result": [[{"document": {"id", "contents"}, "score": 9.1}, ...]]}
                          without scores the inner lists hold the documents themselves
    GET  /passages/{id}   -> {"id", "contents"}
    GET  /health          -> {"status": "ok", "num_passages": 57231, ...}

A bad request, an unknown field included, gets a 4xx with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentgym_rl.errors import EnvBusyError, EnvError, did_you_mean
from agentgym_rl.retrieval.base import MAX_TOPK, Hit
from agentgym_rl.retrieval.batching import Batcher
from agentgym_rl.retrieval.cache import CachedRetriever
from agentgym_rl.retrieval.passages import Passage
from agentgym_rl.serving.bodies import ErrorKind, Object, ProtocolError, encode, error_body, load
from agentgym_rl.serving.gate import ServiceGate

DEFAULT_TOPK = 3
_MAX_REQUEST_PASSAGES = 100_000
_MAX_BODY_BYTES = 4 * 1024 * 1024
_CALL_TIMEOUT_S = 60.0


class RetrieveRequest(BaseModel):
    """The body of `POST /retrieve`. `topk` null or 0 means the server's default."""

    model_config = ConfigDict(extra="forbid")

    queries: list[StrictStr] = Field(max_length=4096)
    topk: StrictInt | None = Field(default=None, ge=0, le=MAX_TOPK)
    return_scores: StrictBool = False


class RetrieverApp:
    """The service as an ASGI application over a retriever, which it closes at shutdown.

    With a token, every route but /health needs `Authorization: Bearer TOKEN`.
    """

    def __init__(
        self, retriever: CachedRetriever, *, topk: int = DEFAULT_TOPK, token: str | None = None
    ) -> None:
        if not 1 <= topk <= MAX_TOPK:
            raise ValueError(f"topk must be from 1 to {MAX_TOPK}, got {topk}")
        self._retriever = retriever
        self._topk = topk
        self._num_passages = len(retriever)
        self._batcher = Batcher(retriever)
        self._started = time.monotonic()
        self._num_requests = 0
        starlette = Starlette(
            routes=[
                Route("/retrieve", self._retrieve, methods=["POST"]),
                Route("/retrieve/", self._retrieve, methods=["POST"]),
                Route("/passages/{id:path}", self._open, methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
            ],
            lifespan=self._lifespan,
            exception_handlers=dict.fromkeys(
                (ProtocolError, EnvError, HTTPException, Exception), _refuse
            ),
        )
        self._app = ServiceGate(
            starlette, token=token, max_body_bytes=_MAX_BODY_BYTES, on_request=self._count
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self._batcher.close()
            self._retriever.close()

    async def _retrieve(self, request: Request) -> Response:
        wanted = _decode(await request.body())
        topk = wanted.topk or self._topk
        if len(wanted.queries) * topk > _MAX_REQUEST_PASSAGES:
            raise ProtocolError(
                ErrorKind.WRONG_TYPE,
                f"{len(wanted.queries)} queries with topk {topk} ask for more than "
                f"{_MAX_REQUEST_PASSAGES} passages: send fewer queries at once, or a smaller topk",
            )
        async with asyncio.timeout(_CALL_TIMEOUT_S):
            found = await self._batcher.search(wanted.queries, topk)
        items = [[_item(hit, has_score=wanted.return_scores) for hit in hits] for hits in found]
        return _json({"result": items})

    async def _open(self, request: Request) -> Response:
        wanted = request.path_params["id"]
        passage = await asyncio.to_thread(self._retriever.get, wanted)
        if passage is None:
            message = f"no passage has the id {wanted[:200]!r}"
            return _json({"error": {"type": "unknown_passage", "message": message}}, 404)
        return _json(_document(passage))

    async def _health(self, request: Request) -> Response:
        return _json(
            {
                "status": "ok",
                "service": "searchqa-retriever",
                "num_passages": self._num_passages,
                "topk": self._topk,
                "num_requests": self._num_requests,
                "num_queries": self._retriever.num_queries,
                "num_cache_hits": self._retriever.num_hits,
                "uptime_s": time.monotonic() - self._started,
            }
        )

    def _count(self, path: str, status: int, seconds: float) -> None:
        self._num_requests += 1


def _decode(body: bytes) -> RetrieveRequest:
    try:
        return RetrieveRequest.model_validate(load(body))
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        message = f"{place}: {wrong['msg']}"
        if wrong["type"] == "extra_forbidden":
            known = list(RetrieveRequest.model_fields)
            hint = did_you_mean(place, known)
            message = f"no field {place!r}{hint}; available: {', '.join(known)}"
        raise ProtocolError(ErrorKind.WRONG_TYPE, message) from None


def _document(passage: Passage) -> Object:
    return {"id": passage.id, "contents": passage.contents}


def _item(hit: Hit, *, has_score: bool) -> Object:
    document = _document(hit.passage)
    return {"document": document, "score": hit.score} if has_score else document


async def _refuse(request: Request, error: Exception) -> Response:
    """Turn a failure into its status."""
    route = f"{request.method} {request.url.path}"
    if isinstance(error, ProtocolError):
        return _error(error.kind, str(error))
    if isinstance(error, EnvBusyError):
        return _error(ErrorKind.BUSY, str(error))
    if isinstance(error, EnvError):
        return _error(ErrorKind.ENV_FAILED, str(error))
    if isinstance(error, TimeoutError):
        return _error(ErrorKind.TIMEOUT, f"no result in {_CALL_TIMEOUT_S:g} s")
    if isinstance(error, HTTPException) and error.status_code == ErrorKind.WRONG_METHOD.status:
        return _error(ErrorKind.WRONG_METHOD, f"no such method: {route}")
    if isinstance(error, HTTPException):
        return _error(ErrorKind.UNKNOWN_ROUTE, f"no such route: {route}")
    return _error(ErrorKind.INTERNAL, f"{type(error).__name__}: {error}")


def _error(kind: ErrorKind, message: str) -> Response:
    return _json(error_body(kind, message), kind.status)


def _json(message: Object, status: int = 200) -> Response:
    return Response(encode(message), status_code=status, media_type="application/json")
