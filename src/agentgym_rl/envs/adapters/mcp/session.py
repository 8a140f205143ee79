"""One connection to a server of the Model Context Protocol, with blocking calls.

The package `mcp` speaks the protocol and starts the process, in a session and process group of its
own. This file adds a thread for its event loop, a deadline for every wait, and the end of the whole
process group, which the package leaves alone where the server itself ends in time.
"""

from __future__ import annotations

import concurrent.futures
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, TypeVarTuple
from urllib.parse import urlsplit

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import Transport
from mcp.client.stdio import stdio_client
from mcp_types import (
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
    TextContent,
    Tool,
)

from agentgym_rl.envs.base import JsonValue
from agentgym_rl.envs.tools.text import to_json
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_CLOSE_S = 10.0
"""The package needs at most about seven to end a process that does not want to."""
_NOTING_ITS_ID = ("/bin/sh", "-c", 'echo $$ > "$0"; exec "$@"')
"""Runs a program, after writing the id that it will have, and its group has, into a file."""
_MAX_ERROR_CHARS = 400
_MAX_ERROR_BYTES = 2**16
"""Of the end of what a server says; it may say any amount."""
_MAX_PAGES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """How a server is reached: a command of its own for every episode, or a URL that all share."""

    command: tuple[str, ...] = ()
    """The program and its arguments."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables, beside those few that every program gets."""
    cwd: str | None = None
    url: str = ""
    """Of a server that runs already (streamable HTTP). It keeps state from episode to episode,
    unless its own tools begin a new one."""
    start_timeout_s: float = 30.0
    call_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server has either a command or a url")
        if min(self.start_timeout_s, self.call_timeout_s) <= 0:
            raise ValueError("start_timeout_s and call_timeout_s must be above 0")

    @property
    def shown(self) -> str:
        """The server, for people, without what may be secret: arguments, a path, a password."""
        if self.command:
            return Path(self.command[0]).name
        url = urlsplit(self.url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a server answered to a call."""

    text: str
    is_error: bool


class McpSession:
    """A running server. What it raises is EnvError; after one, only `close` is of use."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        # Text, because anyio wants what subprocess takes; closed together with the session.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._id_file = tempfile.NamedTemporaryFile("r", encoding="ascii")  # noqa: SIM115
        self._loop: AbstractContextManager[BlockingPortal] = start_blocking_portal()
        self._portal: BlockingPortal | None = self._loop.__enter__()
        self._client: Client | None = None
        self._closing: anyio.Event | None = None
        self._began: int | None = None
        self._is_killed = False
        self._started = concurrent.futures.Future[None]()
        self._life = self._portal.start_task_soon(self._live)
        try:
            self._started.result(server.start_timeout_s)
        except concurrent.futures.TimeoutError:
            self._kill()
            self.close()
            raise EnvTimeoutError(
                f"the MCP server {server.shown!r} was not ready within "
                f"{server.start_timeout_s:g} s{self._said}"
            ) from None
        except Exception as error:  # whatever the package raises
            said = self._said
            self.close()
            raise EnvError(
                f"the MCP server {server.shown!r} did not start: {self._cause(error)}{said}"
            ) from error
        with suppress(OSError, ValueError):  # it has a URL, or has ended
            self._began = _began(self._group())

    def tools(self) -> Sequence[Tool]:
        """Return the server's tools."""
        return self._wait("tools/list", self._list_tools)

    def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolAnswer:
        """Call a tool. A refusal of the server's is an answer, its silence or end an EnvError."""
        return self._wait(f"the tool {name}", self._call_tool, name, dict(arguments))

    def close(self) -> None:
        """End the server, in a few seconds at most. Safe to repeat."""
        portal, self._portal = self._portal, None
        if portal is None:
            return
        if self._started.done() and self._closing is not None:
            with suppress(RuntimeError):  # the loop has ended
                portal.call(self._closing.set)
        else:
            self._life.cancel()
        with suppress(Exception, concurrent.futures.CancelledError):  # it was to end, and has
            self._life.result(_CLOSE_S)
        self._kill()
        with suppress(Exception):  # as above
            portal.call(portal.stop, True)
            self._loop.__exit__(None, None, None)
        self._errors.close()
        self._id_file.close()

    def _kill(self) -> None:
        """End whatever is left of the server's process group, once: later its id may be another's.

        An id that is another's by now is that of a process that began later.
        """
        with suppress(OSError, ValueError):  # it has ended, or never started
            group = self._group()
            if self._is_killed:
                return
            self._is_killed = True
            if self._began is None or _began(group) in (None, self._began):
                os.killpg(group, signal.SIGKILL)

    def _group(self) -> int:
        """Return the id that the server wrote; raise ValueError where it has not."""
        self._id_file.seek(0)
        return int(self._id_file.read())

    async def _live(self) -> None:
        """Hold the connection, in the one task that may open and close it."""
        self._closing = anyio.Event()
        try:
            async with Client(self._transport(), read_timeout_seconds=None) as client:
                self._client = client
                self._started.set_result(None)
                await self._closing.wait()
        except Exception as error:  # the caller of the constructor is told
            if self._started.done():
                raise
            self._started.set_exception(error)

    def _transport(self) -> Transport | str:
        server = self._server
        if server.url:
            return server.url
        program, *arguments = (*_NOTING_ITS_ID, self._id_file.name, *server.command)
        given = StdioServerParameters(
            command=program, args=arguments, env=dict(server.env), cwd=server.cwd
        )
        return stdio_client(given, errlog=self._errors)

    async def _list_tools(self) -> list[Tool]:
        assert self._client is not None, "it has started"
        tools, cursor = list[Tool](), None
        for _ in range(_MAX_PAGES):
            page = await self._client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        return tools

    async def _call_tool(self, name: str, arguments: dict[str, JsonValue]) -> ToolAnswer:
        assert self._client is not None, "it has started"
        try:
            return _answer(await self._client.call_tool(name, arguments))
        except MCPError as error:
            if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):  # the caller's mistake
                return ToolAnswer(error.message, is_error=True)
            raise

    def _wait(self, what: str, function: Callable[[*_Ts], Awaitable[_T]], *arguments: *_Ts) -> _T:
        """Return what a coroutine function returns, within the deadline of a call."""
        if self._portal is None:
            raise EnvGoneError(f"the MCP server {self._server.shown!r} is closed")
        future = self._portal.start_task_soon(function, *arguments)
        try:
            return future.result(self._server.call_timeout_s)
        except concurrent.futures.TimeoutError:
            future.cancel()
            self._kill()
            raise EnvTimeoutError(
                f"{what} of the MCP server {self._server.shown!r} passed its deadline of "
                f"{self._server.call_timeout_s:g} s"
            ) from None
        except Exception as error:
            is_gone = isinstance(error, MCPError) and error.code == CONNECTION_CLOSED
            if is_gone:
                self._kill()
            kind = EnvGoneError if is_gone else EnvError
            raise kind(
                f"{what} of the MCP server {self._server.shown!r} failed: {self._cause(error)}"
                f"{self._said}"
            ) from error

    @property
    def _said(self) -> str:
        """What the server has written to its standard error, for messages."""
        with suppress(OSError, ValueError):  # closed
            file = self._errors.fileno()
            start = max(0, os.fstat(file).st_size - _MAX_ERROR_BYTES)
            end = os.pread(file, _MAX_ERROR_BYTES, start).decode("utf-8", errors="replace")
            lines = end.strip().splitlines()
            return f" (it said: {lines[-1][:_MAX_ERROR_CHARS]})" if lines else ""
        return ""

    def _cause(self, error: BaseException) -> str:
        """Return what went wrong, without the groups that task groups wrap it in."""
        while isinstance(error, BaseExceptionGroup) and error.exceptions:
            error = error.exceptions[0]
        said, server = str(error), self._server
        if server.url:  # errors of HTTP quote it
            said = said.replace(server.url, server.shown)
        return f"{type(error).__name__}: {said[:_MAX_ERROR_CHARS]}"


def _began(process: int) -> int | None:
    """Return when a process began, in ticks; None where there is none."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _answer(result: CallToolResult) -> ToolAnswer:
    """Return the texts of an answer; of other content only what it is."""
    shown = [
        part.text if isinstance(part, TextContent) else f"[{part.type}]" for part in result.content
    ]
    if not shown and result.structured_content is not None:
        shown = [to_json(result.structured_content)]
    return ToolAnswer("\n".join(shown) or "Done.", bool(result.is_error))
