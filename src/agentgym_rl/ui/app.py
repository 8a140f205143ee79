"""The application behind `agentgym ui`: a JSON API over run folders, and the page that uses it.

Run folders are only ever read. Routes are plain functions, which the framework calls on threads;
what they know of runs is in `RunReader`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from agentgym_rl.errors import AgentGymError, install_command
from agentgym_rl.ui.answers import ApiError, refusal
from agentgym_rl.ui.environments import Environments
from agentgym_rl.ui.gate import UiGate
from agentgym_rl.ui.reader import RunReader
from agentgym_rl.ui.routes_play import Playground, play_routes
from agentgym_rl.ui.routes_runs import run_routes

logger = logging.getLogger(__name__)

STATIC = Path(__file__).parent / "static"
_ENDING_S = 10.0
"""How long the end of the server waits for what began with it."""


def make_app(root: Path, *, names: Sequence[str] = (), envs: Sequence[str] = ()) -> ASGIApp:
    """Return the application over the runs below `root`.

    `names` are those of this machine, `envs` classes that may be opened beside the registered ones.
    """
    environments = Environments(envs)
    reader = RunReader(root, environments)
    playground = Playground(reader, environments)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        playground.start()
        warming = threading.Thread(target=reader.warm_up, daemon=True, name="warm-up")
        warming.start()
        yield
        await playground.close()
        # A thread that is in a library when the interpreter goes takes the process down with it.
        warming.join(_ENDING_S)
        reader.close()

    # No pages about the API: they would load scripts from elsewhere.
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(run_routes(reader))
    app.include_router(play_routes(reader, playground))
    app.add_api_route("/api/{rest:path}", _unknown, methods=["GET", "POST"], response_model=None)
    app.add_api_route("/vendor/plotly.min.js", _plotly, methods=["GET"], response_model=None)
    for kind in (ApiError, AgentGymError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _refused)
    app.mount("/", StaticFiles(directory=STATIC, html=True))
    return UiGate(app, names=names)


def plotly_file() -> Path | None:
    """Return plotly.js out of the installed package, which need not be imported for it."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    return file if file.is_file() else None


def _plotly() -> Response:
    file = plotly_file()
    if file is None:
        return refusal(404, f"plotly is not installed: {install_command('ui')}")
    return FileResponse(
        file, media_type="text/javascript", headers={"cache-control": "max-age=86400"}
    )


def _unknown(rest: str) -> Response:
    return refusal(404, f"there is no route /api/{rest}")


def _refused(request: Request, error: Exception) -> Response:
    match error:
        case ApiError():
            return refusal(error.status, error.message)
        case AgentGymError():
            return refusal(409, str(error))
        case RequestValidationError():
            first = error.errors()[0]
            return refusal(400, f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}")
        case HTTPException():
            path = f"{request.method} {request.url.path}"
            return refusal(error.status_code, f"{path}: {error.detail}")
    logger.error("%s failed", request.url.path, exc_info=error)
    return refusal(500, f"{type(error).__name__}: {error}")
