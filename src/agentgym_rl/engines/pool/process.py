"""A process that hosts an engine or plays episodes, by default of this machine, and the line to it.

What it hosts is not known here, so nothing heavy is imported. The controller's end has a thread
that reads and one that writes, so that no engine can hold it up; what has gathered meanwhile
travels together. The process ends when the line does, also when the controller was killed: its own
reading thread notices, whatever the engine is computing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from agentgym_rl.engines.pool.line import HostPlan, OnEnd, OnMessages, StartedProcess
from agentgym_rl.errors import EngineError, how_it_ended
from agentgym_rl.forks import FORKS, import_before_forks

logger = logging.getLogger(__name__)

_GRACE_S = 5.0
_LOG_CHARACTERS = 2000


class Host(Protocol):
    """What a process has of its own; it belongs to the process's event loop."""

    def handle(self, messages: Sequence[object]) -> None:
        """Begin what the controller asks for."""

    async def close(self) -> None:
        """Give back what the end of the process would leave behind."""


MakeHost = Callable[[Callable[[Sequence[object]], None]], Host]
"""Makes it on the event loop; the argument sends messages to the controller, and may block."""


def start_process(plan: HostPlan, main: Callable[..., None], *arguments: object) -> StartedProcess:
    """Start a process of this machine: `main` gets its end of the line, and the arguments."""
    connection, theirs = FORKS.Pipe()
    import_before_forks(main.__module__)
    process = FORKS.Process(
        target=main, args=(theirs, *arguments), name=plan.folder.name, daemon=True
    )
    try:
        process.start()
    except OSError as error:
        connection.close()
        raise EngineError(f"no process for {plan.folder.name}: {error}") from error
    finally:
        theirs.close()
    return StartedProcess(process, lambda: connection)


class ProcessLine:
    """A `Line` to a process."""

    def __init__(
        self, plan: HostPlan, started: StartedProcess, on_messages: OnMessages, on_end: OnEnd
    ) -> None:
        self._on_messages, self._on_end = on_messages, on_end
        self._log = plan.log
        self._started = started
        self.process = self._started.process
        self._connection: Connection | None = None
        self._is_closing = False
        self._outbox = queue.SimpleQueue[Sequence[object] | None]()
        name = plan.folder.name
        self._reader = threading.Thread(target=self._read, name=f"{name}-reader", daemon=True)
        self._writer = threading.Thread(target=self._write, name=f"{name}-writer", daemon=True)
        self._reader.start()

    def send(self, *messages: object) -> None:
        self._outbox.put(messages)

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
                self._on_messages(connection.recv())
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
        while (first := self._outbox.get()) is not None:
            messages = [*first]
            with contextlib.suppress(queue.Empty):
                while (more := self._outbox.get_nowait()) is not None:
                    messages += more
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


def be_host(
    connection: Connection, plan: HostPlan, make: MakeHost, *, what: str, leave_s: float = 0.0
) -> int:
    """Be what `make` returns; return the process's status after a failure.

    The end of the line ends the process, after at most `leave_s` for the host's `close`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller
    plan.folder.mkdir(parents=True, exist_ok=True)
    log = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    try:
        asyncio.run(_serve(connection, make, leave_s))
    except BaseException:  # it is in the log, whose end the controller reports
        logger.exception("%s ends", what)
    return 1


async def _serve(connection: Connection, make: MakeHost, leave_s: float) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    failures: list[object] = []

    def on_failure(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        failures.append(context.get("exception") or context["message"])
        ended.set()

    loop.set_exception_handler(on_failure)

    async def leave() -> None:
        await host.close()
        os._exit(0)

    def watch() -> None:
        _wait_for_end(connection)
        if leave_s:
            asyncio.run_coroutine_threadsafe(leave(), loop)
            time.sleep(leave_s)
        os._exit(0)

    def read() -> None:
        # By the event loop: a thread would wait for the interpreter, for each piece of a message,
        # as long as the loop is busy.
        with contextlib.suppress(EOFError, OSError):  # the watching thread ends the process
            while connection.poll():
                host.handle(connection.recv())
            return
        loop.remove_reader(connection.fileno())

    # Before the model is loaded, which occupies the event loop: a controller that dies meanwhile
    # is noticed.
    threading.Thread(target=watch, name="line", daemon=True).start()
    host = make(connection.send)
    loop.add_reader(connection.fileno(), read)
    await ended.wait()
    raise RuntimeError(f"a request failed: {failures[0]!r}")


def _wait_for_end(connection: Connection) -> None:
    """Return when the other end of a line is closed, whatever has not been read yet."""
    poll = select.poll()
    poll.register(connection.fileno(), getattr(select, "POLLRDHUP", 0))  # of Linux; others: POLLHUP
    poll.poll()


def _shut(connection: Connection) -> None:
    """End a line for good; closing it would not wake the thread that reads."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _last_words(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:].strip()
    except OSError:
        return "(it has none)"
