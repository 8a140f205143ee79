"""Processes that decode what run folders hold: Parquet parts and tokenizers.

Such files can be made to unfold to any size, or to break a decoder, which nothing about them shows
beforehand. So they are decoded in separate processes, with a limit on memory and on time. A file
that passes a limit costs its process, and the page says so; the UI keeps running. What runs in the
process is decoder_process.py.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import LifoQueue
from typing import ParamSpec, TypeVar

MAX_MEMORY_BYTES = 640_000_000
"""Beyond what the process has when it begins."""
MAX_SECONDS = 20.0
MAX_ANSWER_BYTES = 160_000_000

_P = ParamSpec("_P")
_T = TypeVar("_T")
# -P: no modules of the folder that somebody happens to stand in.
_COMMAND = ("-P", "-m", "agentgym_rl.ui.decoder_process")


class DecodeError(Exception):
    """A file that took a decoder too much memory or time, or its life."""


class Decoders:
    """Calls functions in one of a few processes, which are started when they are needed.

    Thread-safe. A function is one of a module, and what it takes and returns can be pickled; what
    it raises is raised here.
    """

    def __init__(self, num_processes: int = 2) -> None:
        self._free: LifoQueue[_Decoder] = LifoQueue()
        self._all = [_Decoder() for _ in range(num_processes)]
        for decoder in self._all:
            self._free.put(decoder)

    def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Return what a function returns. Raises DecodeError where that takes too much."""
        decoder = self._free.get()
        try:
            return decoder.call(function, *args, **kwargs)
        finally:
            self._free.put(decoder)

    def close(self) -> None:
        """End the processes; calls that are under way fail."""
        for decoder in self._all:
            decoder.stop()


class _Decoder:
    """One process. Calls must not overlap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    def call(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        connection = self._start()
        try:
            connection.send((function, args, kwargs))
            if not connection.poll(MAX_SECONDS):
                raise DecodeError(f"too large to show: it takes more than {MAX_SECONDS:g} s")
            is_fine, value = connection.recv()
        except DecodeError:
            self.stop()
            raise
        except (EOFError, OSError) as error:
            self.stop()
            raise DecodeError("too large or broken: it ended the process that read it") from error
        if not is_fine:
            raise value
        return value

    def stop(self) -> None:
        """End the process; a later call starts another one."""
        with self._lock:
            process, connection = self._process, self._connection
            self._process = self._connection = None
        if process is not None and connection is not None:
            process.kill()
            process.wait()
            connection.close()

    def _start(self) -> Connection:
        with self._lock:
            if self._connection is None:
                own, other = socket.socketpair()
                with other:
                    self._process = subprocess.Popen(
                        [sys.executable, *_COMMAND, str(other.fileno())],
                        pass_fds=[other.fileno()],
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,  # a signal from the terminal is the UI's
                        env={
                            **os.environ,
                            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                            "OPENBLAS_NUM_THREADS": "1",  # each reserves memory of its own
                        },
                    )
                self._connection = Connection(own.detach())
            return self._connection
