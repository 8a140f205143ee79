"""A vLLM server on its host, with its gate: what a process elsewhere is for one engine.

The process ends with the server, and the server with the process: whoever is told of either end
knows that both are gone.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from agentgym_rl.config import VllmEngineConfig
from agentgym_rl.engines.pool.messages import Answer
from agentgym_rl.engines.pool.process import Host, be_host
from agentgym_rl.engines.vllm.gate import Gate
from agentgym_rl.engines.vllm.server import OwnServer, ServerOptions
from agentgym_rl.errors import AgentGymError, EngineError

_LEAVE_S = 30.0
"""For a server to end that is asked to, and then killed."""


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What a server elsewhere is started with."""

    number: int
    """Of its engine's place in the pool."""
    model: Path
    """A folder with the weights that it begins with."""
    config: VllmEngineConfig
    options: ServerOptions
    folder: Path
    """Its own folder, for logs."""
    scratch: Path | None = None
    """A folder of its own machine for files that travel there, removed with it; None where the
    machines share a folder."""

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"


@dataclass(frozen=True, slots=True)
class Serving:
    """The server answers."""

    url: str
    """Of its gate."""
    token: str
    pid: int


class ServerHost:
    """Belongs to one event loop, on which it is made."""

    def __init__(
        self, plan: ServerPlan, send: Callable[[Sequence[object]], None], *, address: str
    ) -> None:
        """`address` is what the others call this machine."""
        self._plan, self._send, self._address = plan, send, address
        self._server: OwnServer | None = None
        self._gate: Gate | None = None
        self._work = asyncio.create_task(self._serve())
        self._work.add_done_callback(self._ended)

    def handle(self, messages: Sequence[object]) -> None:
        """Requests come by the gate."""
        assert not messages, "none are sent"

    async def close(self) -> None:
        """Stop the server, and leave no file. Safe to repeat."""
        if self._gate is not None:
            await self._gate.close()
        if self._server is not None:
            await self._server.close()
        if self._plan.scratch is not None:
            shutil.rmtree(self._plan.scratch, ignore_errors=True)

    async def _serve(self) -> None:
        """Serve until the server ends, which is an error."""
        try:
            serving, server = await self._open()
        except AgentGymError as error:
            self._send([Answer(0, EngineError(str(error)))])
            raise
        self._send([Answer(0, serving)])
        raise EngineError(await server.ended())

    async def _open(self) -> tuple[Serving, OwnServer]:
        plan = self._plan
        server = self._server = OwnServer(
            plan.config, options=plan.options, folder=plan.folder, save=lambda: plan.model
        )
        await server.open()
        gate = self._gate = Gate(server.socket, folder=plan.scratch or plan.folder)
        return Serving(await gate.open(self._address), gate.token, server.pid), server

    def _ended(self, work: asyncio.Task[None]) -> None:
        if not work.cancelled() and (error := work.exception()) is not None:
            asyncio.get_running_loop().create_task(self._leave(error))

    async def _leave(self, error: BaseException) -> None:
        """End the process, and say why in its log."""
        try:
            await self.close()
        finally:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the server ended", "exception": error}
            )


def host_server(connection: Connection, plan: ServerPlan, address: str) -> int:
    """Host a server until it or the line ends; return the process's status."""

    def make(send: Callable[[Sequence[object]], None]) -> Host:
        return ServerHost(plan, send, address=address)

    return be_host(connection, plan, make, what="the vLLM server", leave_s=_LEAVE_S)
