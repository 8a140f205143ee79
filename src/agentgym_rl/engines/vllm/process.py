"""The process of a server: it has its own process group, and ends with all its children.

vLLM has children that hold the GPU and may outlive a killed parent. The whole group is therefore
killed: when the server is stopped, before another takes its place, and by a small guard process if
this process ends without stopping it, also if all its children are killed first.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_GUARD = (
    "import os, signal, sys\n"
    "if os.fork():\n"
    "    os._exit(0)\n"  # the guard is nobody's child: who kills children, as Ray does, misses it
    "if not sys.stdin.buffer.read():\n"  # ends with whoever holds the other end of the pipe
    "    try:\n"
    "        os.killpg(int(sys.argv[1]), signal.SIGKILL)\n"
    "    except ProcessLookupError:\n"
    "        pass\n"
)
_FAREWELL = b"stopped"
"""What the guard reads of a server that was stopped: its group's number may be another's."""
_STOP_S = 15.0
_LOG_CHARACTERS = 2000
_ERROR = re.compile(r"^(?!.*\bWARNING\b).*\b[A-Z]\w*(?:Error|Exception): .+", re.MULTILINE)
_NOT_INSTALLED = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class ServerProcess:
    """One run of a command, with its output in a file."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._guard.wait()  # it has left the guard behind

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self) -> int:
        """Wait until it has ended, for as long as that takes; return its exit code."""
        return self._process.wait()

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def last_words(self) -> str:
        """Return the first error of this run and the end of its log.

        The first error, that of a child, is the cause, and lies far above its parents' messages.
        """
        text = self._output()
        first, end = _ERROR.search(text), text[-_LOG_CHARACTERS:].strip()
        return f"{first[0]}\n[...]\n{end}" if first and first[0] not in end else end

    def missing_package(self, *, of: str) -> str:
        """Return the package without which this run's module `of` failed; "" for another cause."""
        text = self._output()
        first = _ERROR.search(text)
        found = _NOT_INSTALLED.search(first[0]) if first and of in text else None
        return found[1] if found else ""

    def has_said(self, words: str) -> bool:
        """Say whether this run's output has these words."""
        return words in self._output()

    def _output(self) -> str:
        return self._log.read_bytes()[self._log_start :].decode(errors="replace")

    def stop(self) -> None:
        """Ask it to end, then kill it and its children. Safe to repeat."""
        if self.exit_code is None:
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + _STOP_S
            while self.exit_code is None and time.monotonic() < deadline:
                time.sleep(0.05)
        self._signal(signal.SIGKILL)  # children that are left, even if it ended well
        self._process.wait()
        if self._guard.stdin is not None and not self._guard.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # somebody killed the guard
                self._guard.stdin.write(_FAREWELL)
                self._guard.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return
