"""A worker process: the episodes of session_store.py behind a socket to the server's process.

Run by pool.py as `python -m agentgym_rl.envs.service.server.worker FD SETTINGS`. It ends when the
other end of the socket is closed, or when an environment keeps the interpreter to itself for too
long, so it never outlives the server, however that dies.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.service.server.backend import ServerLimits
from agentgym_rl.envs.service.server.frames import (
    FAILURE,
    STATS,
    Frame,
    FrameProtocol,
    encode_frame,
)
from agentgym_rl.envs.service.server.session_store import SessionStore
from agentgym_rl.garbage import collect_rarely

_CLOSING_S = 2.0
"""How long environments may take to close when the server has gone."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker receives when it starts."""

    env: str
    options: Mapping[str, object]
    limits: ServerLimits
    max_stuck_s: float
    """It ends when its event loop has not run for this long."""
    prefix: str

    def to_json(self) -> str:
        return orjson.dumps(self).decode()

    @classmethod
    def from_json(cls, text: str) -> WorkerSettings:
        fields = orjson.loads(text)
        return cls(**fields | {"limits": ServerLimits(**fields["limits"])})


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # Both may reach the whole group of processes; the server decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.path.insert(0, "")  # as the server's process has it, for a user's "module:Class"
    connection = socket.socket(fileno=int(sys.argv[1]))
    settings = WorkerSettings.from_json(sys.argv[2])
    try:
        cls = registry.configured(registry.env_class(settings.env), settings.options)
    except Exception as error:  # noqa: BLE001 - whatever a user's module raises is reported
        reason = f"{type(error).__name__}: {error}".encode(errors="replace")
        connection.sendall(encode_frame(Frame(FAILURE, reason)))
        sys.exit(1)
    collect_rarely()  # what was made so far lives as long as the process
    try:
        import uvloop as loops  # optional extra of some platforms
    except ImportError:
        asyncio.run(_work(connection, settings, cls))
    else:
        loops.run(_work(connection, settings, cls))
    # Threads that hang in an environment must not keep the process alive.
    os._exit(0)


async def _work(
    connection: socket.socket, settings: WorkerSettings, cls: type[Environment]
) -> None:
    """Answer frames until the connection ends."""
    store = SessionStore(
        cls, settings.options, settings.limits, prefix=settings.prefix, has_main_thread=True
    )
    await store.start()
    watchdog = asyncio.create_task(_feed_watchdog(settings.max_stuck_s))
    is_over = asyncio.Event()

    def answer(frame: Frame) -> None:
        if frame.submission == STATS:
            stats = store.counts()
            protocol.send(Frame(STATS, orjson.dumps(stats), 0, stats.num_episodes))
        else:
            sink = _FrameSink(frame.submission, protocol, store)
            store.submit(orjson.loads(frame.payload), sink)

    protocol = FrameProtocol(answer, is_over.set)
    await asyncio.get_running_loop().create_connection(lambda: protocol, sock=connection)
    answer(Frame(STATS, b""))  # says that the worker is ready
    await is_over.wait()
    watchdog.cancel()
    await store.aclose()
    await asyncio.sleep(0)
    deadline = asyncio.get_running_loop().time() + _CLOSING_S
    while store.is_closing and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.02)


async def _feed_watchdog(max_stuck_s: float) -> None:
    """Have the process end, and say where it is stuck, unless this keeps running.

    The watchdog is a thread in C: it works also while Python code cannot run.
    """
    while True:
        faulthandler.dump_traceback_later(max_stuck_s, exit=True)
        await asyncio.sleep(max_stuck_s / 4)


class _FrameSink:
    """Sends the answers to one submission, those of one turn of the event loop together."""

    def __init__(self, submission: int, protocol: FrameProtocol, store: SessionStore) -> None:
        self._submission = submission
        self._protocol = protocol
        self._store = store
        self._lines: list[bytes] = []
        self._num_answers = 0

    def add(self, lines: bytes, num_answers: int = 1) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._send)
        self._lines.append(lines)
        self._num_answers += num_answers

    def _send(self) -> None:
        lines, num_answers = b"".join(self._lines), self._num_answers
        self._lines.clear()
        self._num_answers = 0
        num_episodes = self._store.num_episodes
        self._protocol.send(Frame(self._submission, lines, num_answers, num_episodes))


if __name__ == "__main__":
    main()
