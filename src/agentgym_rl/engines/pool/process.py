"""A process that hosts an engine, by default one of this machine, and the line to it.

The controller's end has a thread that reads and one that writes, so that no engine can hold it up;
what has gathered meanwhile travels together. The process ends when the line does, also when the
controller was killed: its own reading thread notices, whatever the engine is computing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from agentgym_rl.engines.pool.host import EngineHost
from agentgym_rl.engines.pool.line import OnAnswers, OnEnd, StartedEngine
from agentgym_rl.engines.pool.messages import EnginePlan, Message
from agentgym_rl.errors import EngineError, how_it_ended

logger = logging.getLogger(__name__)

_FORKS = multiprocessing.get_context("forkserver")
"""Engines are forked from a process that has imported everything and never touched a GPU: they
start at once, and one that takes another's place does, too."""
_GRACE_S = 5.0
_LOG_CHARACTERS = 2000
LOG = "engine.log"


def start_here(plan: EnginePlan) -> StartedEngine:
    """Start an engine as a process of this machine."""
    connection, theirs = _FORKS.Pipe()
    _FORKS.set_forkserver_preload([__name__])  # has no effect on a server that runs
    process = _FORKS.Process(
        target=run_engine, args=(theirs, plan), name=plan.folder.name, daemon=True
    )
    try:
        process.start()
    except OSError as error:
        connection.close()
        raise EngineError(f"no process for {plan.folder.name}: {error}") from error
    finally:
        theirs.close()
    return StartedEngine(process, lambda: connection)


class ProcessLine:
    """A `Line` to a process."""

    def __init__(
        self,
        plan: EnginePlan,
        on_answers: OnAnswers,
        on_end: OnEnd,
        *,
        start: Callable[[EnginePlan], StartedEngine] = start_here,
    ) -> None:
        self._on_answers, self._on_end = on_answers, on_end
        self._log = plan.folder / LOG
        self._started = start(plan)
        self.process = self._started.process
        self._connection: Connection | None = None
        self._is_closing = False
        self._outbox = queue.SimpleQueue[Message | None]()
        name = plan.folder.name
        self._reader = threading.Thread(target=self._read, name=f"{name}-reader", daemon=True)
        self._writer = threading.Thread(target=self._write, name=f"{name}-writer", daemon=True)
        self._reader.start()

    def send(self, message: Message) -> None:
        self._outbox.put(message)

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self._is_closing = True
        if self._connection is None:
            self.kill()
        else:
            _shut(self._connection)
        if self._reader is not threading.current_thread():
            self._reader.join()  # which kills what does not end

    def _read(self) -> None:
        # TimeoutError is one of them: no place was found for it.
        with contextlib.suppress(EOFError, OSError):
            self._connection = connection = self._started.connect()
            self._writer.start()
            while not self._is_closing:
                self._on_answers(connection.recv())
        self._outbox.put(None)
        self.process.join(_GRACE_S)
        if self.process.is_alive():  # it closed the line, but does not end
            self.process.kill()
            self.process.join(_GRACE_S)
        if self._connection is not None:
            self._writer.join(_GRACE_S)
            self._connection.close()
        self._on_end(self._how_it_ended())

    def _write(self) -> None:
        assert self._connection is not None, "it is there before this thread"
        while (message := self._outbox.get()) is not None:
            messages = [message]
            with contextlib.suppress(queue.Empty):
                while (more := self._outbox.get_nowait()) is not None:
                    messages.append(more)
                self._outbox.put(None)
            try:
                self._connection.send(messages)
            except OSError:
                return  # the reader reports the end

    def _how_it_ended(self) -> str:
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"it {how_it_ended(code)}"
        return f"it {how_it_ended(code)}; its log {self._log} ends:\n{_last_words(self._log)}"


def run_engine(connection: Connection, plan: EnginePlan) -> None:
    """Host an engine until the line ends, and end the process."""
    os._exit(host_engine(connection, plan))


def host_engine(
    connection: Connection, plan: EnginePlan, *, on_ready: Callable[[], None] = lambda: None
) -> int:
    """Host an engine; return the process's status after a failure. The end of the line ends it.

    `on_ready` is called when it is built.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller
    plan.folder.mkdir(parents=True, exist_ok=True)
    log = os.open(plan.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    try:
        asyncio.run(_serve(connection, plan, on_ready))
    except BaseException:  # it is in the log, whose end the controller reports
        logger.exception("the engine ends")
    return 1


async def _serve(connection: Connection, plan: EnginePlan, on_ready: Callable[[], None]) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    failures: list[object] = []

    def on_failure(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        failures.append(context.get("exception") or context["message"])
        ended.set()

    loop.set_exception_handler(on_failure)

    def handle(messages: Sequence[Message]) -> None:
        host.handle(messages)

    def read() -> None:
        while True:
            try:
                messages = connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            loop.call_soon_threadsafe(handle, messages)

    # Before the model is loaded: a controller that dies meanwhile is noticed. What it asks
    # for is handled after that, since loading occupies the event loop.
    threading.Thread(target=read, name="line", daemon=True).start()
    host = EngineHost(plan, connection.send)
    on_ready()
    await ended.wait()
    raise RuntimeError(f"a request failed: {failures[0]!r}")


def _shut(connection: Connection) -> None:
    """End a line for good; closing it would not wake the thread that reads."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _last_words(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:].strip()
    except OSError:
        return "(it has none)"
