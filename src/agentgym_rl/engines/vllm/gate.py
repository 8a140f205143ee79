"""The way to a vLLM server from other machines: every request needs a token.

The server itself listens only on a Unix socket: its routes that change weights are open to anyone
who reaches them, and its `--api-key` guards only inference below /v1. The gate also takes files of
weights, for machines that share no folder with the one that writes them.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import shutil
from http import HTTPStatus
from pathlib import Path, PurePosixPath

from aiohttp import web

from agentgym_rl.engines.vllm.client import VllmClient
from agentgym_rl.errors import EngineError

FILES = "/files/"
"""Below it a file is put by "folder/name"; vLLM has no such route."""
_CHUNK_BYTES = 1 << 20


class Gate:
    """Passes requests with the token on to the server behind a socket. Belongs to an event loop."""

    def __init__(self, socket: Path, *, folder: Path) -> None:
        """`folder` gets the files that are put."""
        self.token = secrets.token_hex(32)
        self._expected = f"Bearer {self.token}".encode()
        self._server, self._folder = VllmClient(socket=socket), folder
        app = web.Application(client_max_size=0)  # contexts are long; strangers get no further
        app.router.add_route("*", "/{path:.*}", self._answer)
        # A request that is given up is given up on the server as well.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.1,
            read_bufsize=_CHUNK_BYTES,
        )

    async def open(self, host: str) -> str:
        """Listen at an address of this machine; return the URL."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, 0)
        await site.start()
        ((_, port, *_), *_) = self._runner.addresses
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def close(self) -> None:
        await self._runner.cleanup()
        await self._server.close()

    async def _answer(self, request: web.Request) -> web.Response:
        sent = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if not hmac.compare_digest(sent, self._expected):
            return _refusal(HTTPStatus.UNAUTHORIZED, "the bearer token is missing or wrong")
        if request.path.startswith(FILES):
            return await self._take_file(request)
        body = await request.read() if request.can_read_body else None
        try:
            status, text = await self._server.ask(
                request.method, request.path_qs, body, timeout_s=None
            )
        except EngineError as error:
            return _refusal(HTTPStatus.BAD_GATEWAY, str(error))
        return web.Response(status=status, body=text, content_type="application/json")

    async def _take_file(self, request: web.Request) -> web.Response:
        """Write a file; the first one of a folder removes older folders of its kind."""
        path = PurePosixPath(request.path.removeprefix(FILES))
        is_inside = len(path.parts) > 1 and ".." not in path.parts and not path.is_absolute()
        if request.method != "PUT" or not is_inside:
            return _refusal(HTTPStatus.BAD_REQUEST, f"{request.method} {path} puts no file")
        folder = self._folder / path.parts[0]
        if not folder.exists():
            for older in self._folder.glob(f"{folder.name.partition('-')[0]}-*"):
                await asyncio.to_thread(shutil.rmtree, older)
        file = self._folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as out:
            async for chunk in request.content.iter_chunked(_CHUNK_BYTES):
                await asyncio.to_thread(out.write, chunk)
        return web.Response(text=str(folder))


def _refusal(status: HTTPStatus, text: str) -> web.Response:
    return web.json_response({"error": {"message": text}}, status=status)
