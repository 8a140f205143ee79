"""An engine whose vLLM server is on another machine, behind a gate, and ends with it.

Unlike one that has its server beside it, it brings no server back: it ends, its episodes with it,
and the pool starts another in its place, perhaps on another machine.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from agentgym_rl.engines.pool.line import StartLine
from agentgym_rl.engines.pool.remote import RemoteProcess
from agentgym_rl.engines.vllm.client import NoAnswerError, VllmClient
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.gate import FILES
from agentgym_rl.engines.vllm.hosted import ServerPlan, Serving
from agentgym_rl.engines.vllm.server import START_TIMEOUT_S, Placement, Server
from agentgym_rl.engines.vllm.session import VllmSession
from agentgym_rl.engines.vllm.weights import WeightStore
from agentgym_rl.errors import EngineError
from agentgym_rl.models.loading import Policy
from agentgym_rl.types import Completion, SamplingParams

logger = logging.getLogger(__name__)


class FarEngine(VllmEngine):
    """Is made at once; `ready` waits until its server answers."""

    def __init__(
        self,
        policy: Policy,
        plan: ServerPlan,
        start: StartLine,
        *,
        placement: Placement,
        store: WeightStore,
        shares_files: bool,
        on_end: Callable[[VllmEngine], None],
    ) -> None:
        """`start` starts the process that hosts the server. `on_end` is called once, from a thread
        of its line, unless the engine was closed."""
        self._on_end = on_end
        self._far = FarServer(
            plan.folder.name, start, shares_files=shares_files, on_end=self._server_ended
        )
        super().__init__(
            policy,
            plan.config,
            folder=plan.folder,
            placement=placement,
            store=store,
            server=self._far,
        )

    @property
    def is_alive(self) -> bool:
        return not self._is_closed and self._far.is_there

    async def _ask(self, session: VllmSession, params: SamplingParams) -> Completion:
        try:
            return await super()._ask(session, params)
        except NoAnswerError as error:
            if self.is_alive:
                logger.warning("%s hangs and is replaced: %s", self.name, error)
                self._far.stop()
            raise

    def _server_ended(self, how: str) -> None:
        self._why_closed = how
        self._on_end(self)
        # On another thread: the line's own ends only after this call.
        threading.Thread(target=self.close, name="vllm-end", daemon=True).start()


class FarServer(Server):
    """A server in a process elsewhere, which is started by `open`."""

    def __init__(
        self, name: str, start: StartLine, *, shares_files: bool, on_end: Callable[[str], None]
    ) -> None:
        self._name, self._start, self._on_end = name, start, on_end
        self._shares_files = shares_files
        self._host: _ServerProcess | None = None
        self._is_connected = False

    @property
    def is_there(self) -> bool:
        """Whether its process lives, or has not been started."""
        return self._host is None or self._host.is_alive

    @property
    def pid(self) -> int:
        """Of the server, on its machine."""
        assert self._host is not None, "the server was opened"
        return self._host.serving().pid

    async def open(self) -> None:
        host = self._host = _ServerProcess(
            self._name, self._start, on_end=lambda ended: self._on_end(ended.death)
        )
        serving = await asyncio.to_thread(host.serving)
        self.client = VllmClient(serving.url, token=serving.token)
        self._is_connected = True
        await self._introduce()

    async def come_back(self) -> None:
        self.stop()
        raise EngineError(f"{self._name} lost its server and is replaced")

    def stop(self) -> None:
        if self._host is not None:
            self._host.kill()

    async def close(self) -> None:
        if self._is_connected:
            await self.client.close()
        if self._host is not None:
            await asyncio.to_thread(self._host.close)

    async def lend(self, folder: Path) -> Path:
        if self._shares_files:
            return folder
        there = Path()
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            path = f"{FILES}{folder.name}/{file.relative_to(folder).as_posix()}"
            with file.open("rb") as content:
                answer = await self.client.put(path, content, timeout_s=START_TIMEOUT_S)
            there = Path(answer.decode())
        return there


class _ServerProcess(RemoteProcess[Serving]):
    """The process that hosts it."""

    def serving(self) -> Serving:
        """Wait until the server answers; raises EngineError if it does not."""
        return self.result(self._start, START_TIMEOUT_S, "start")
