"""The parent's side: runs code in a locked process and brings back what it printed.

A call is a process: nothing is kept from one to the next, and none outlives its call.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import agentgym_rl
from agentgym_rl.errors import EnvError
from agentgym_rl.sandbox.inside import LOCKED
from agentgym_rl.sandbox.locks import ProcessLimits

MAX_CODE_CHARS = 16_000
"""Whatever its characters, such a text fits into a pipe before anyone reads it."""

_COMMAND = "from agentgym_rl.sandbox.inside import main; main()"
_FLAGS = ("-s", "-S", "-B", "-u", "-c")
"""No packages of the user or the site, nothing written beside modules, no output kept back."""
_LOOK_S = 0.02
"""How often the scratch folder is looked at."""
_MAX_FILES = 64
_END_S = 5.0
_slots = threading.BoundedSemaphore(max(2, os.cpu_count() or 1))
"""So many run at a time in this process; more would only share the same processors."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one call may use."""

    wall_s: float = 5.0
    cpu_s: int = 4
    memory_mb: int = 256
    output_chars: int = 2_000
    """Of what is returned. A program that prints much more is stopped."""
    scratch_mb: int = 4
    """Of all files that it writes; they are gone after the call."""


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What came of a call. Example: SandboxResult("42\\n", "")"""

    output: str
    """What the code printed, cut to the limit."""
    problem: str
    """Why it was stopped, in words; empty where it ended by itself."""


@cache
def why_unavailable() -> str:
    """Return why code cannot be run safely on this machine; "" where it can.

    Finds out by running some, once a process.
    """
    if sys.platform != "linux":
        return f"it takes Linux, not {sys.platform}"
    try:
        output = run_code("print(6 * 7)", SandboxLimits(wall_s=20.0, cpu_s=20)).output
    except EnvError as error:
        return str(error)
    return "" if output == "42\n" else f"a trial printed {output!r}"


def run_code(code: str, limits: SandboxLimits) -> SandboxResult:
    """Run code and wait for its end. Any text is accepted.

    Raises EnvError when the sandbox itself fails; the code is then not run, or not to its end.
    """
    if len(code) > MAX_CODE_CHARS:
        return SandboxResult("", f"the code is longer than {MAX_CODE_CHARS} characters")
    with _slots, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        status_read, status_write = os.pipe()
        try:
            with _start(limits, Path(folder), status_write) as process:
                os.close(status_write)
                status_write = -1
                result = _Watch(process, limits, Path(folder)).run(code)
            status = os.read(status_read, 1000)
        finally:
            os.close(status_read)
            if status_write >= 0:
                os.close(status_write)
    if status != LOCKED:
        reason = status.decode("utf-8", "replace") or f"it did not start: {result.output[-300:]!r}"
        raise EnvError(f"the sandbox for Python failed: {reason}")
    return result


def _start(limits: SandboxLimits, scratch: Path, status: int) -> subprocess.Popen[bytes]:
    megabyte = 1024 * 1024
    inner = ProcessLimits(
        cpu_s=limits.cpu_s,
        memory_bytes=limits.memory_mb * megabyte,
        file_bytes=limits.scratch_mb * megabyte,
    )
    arguments = (json.dumps(asdict(inner)), str(scratch), str(status))
    package_root = Path(agentgym_rl.__file__).parents[1]
    try:
        return subprocess.Popen(
            [sys.executable, *_FLAGS, _COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            # The fixed seed gives sets the same order in every call.
            env={"PYTHONPATH": str(package_root), "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            pass_fds=[status],
            start_new_session=True,
        )
    except OSError as error:
        raise EnvError(f"the sandbox for Python failed: {error}") from error


class _Watch:
    """One running process: takes its output, and stops it when it goes too far."""

    def __init__(
        self, process: subprocess.Popen[bytes], limits: SandboxLimits, scratch: Path
    ) -> None:
        self._process = process
        self._limits = limits
        self._scratch = scratch
        self._output = bytearray()
        self._max_bytes = 8 * limits.output_chars + 1000

    def run(self, code: str) -> SandboxResult:
        """Give it the code and return what came of it. The process has ended then."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            with suppress(BrokenPipeError):  # it did not start, which its status tells
                self._process.stdin.write(code.encode("utf-8", "replace"))
                self._process.stdin.close()
            problem = self._wait(self._process.stdout.fileno())
        finally:
            self._stop()
        problem = problem or self._cause_of_death()
        text = self._output.decode("utf-8", "replace")
        if len(text) > self._limits.output_chars:
            text, problem = text[: self._limits.output_chars], problem or "it printed too much"
        return SandboxResult(text, problem)

    def _wait(self, pipe: int) -> str:
        """Return when the process has ended or must be stopped, with the reason of the latter."""
        deadline = time.monotonic() + self._limits.wall_s
        ended = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(pipe, selectors.EVENT_READ)
                selector.register(ended, selectors.EVENT_READ)
                while True:
                    ready = {key.fd for key, _ in selector.select(_LOOK_S)}
                    if pipe in ready and not self._read(pipe):
                        selector.unregister(pipe)
                    if len(self._output) > self._max_bytes:
                        return "it printed too much"
                    if ended in ready and pipe not in ready:
                        return ""
                    if self._is_scratch_full():
                        return "it wrote too much into files"
                    if time.monotonic() > deadline:
                        return f"it ran longer than {self._limits.wall_s:g} seconds"
        finally:
            os.close(ended)

    def _read(self, pipe: int) -> bool:
        """Take what is there; False at the end."""
        chunk = os.read(pipe, 65536)
        self._output += chunk
        return bool(chunk)

    def _is_scratch_full(self) -> bool:
        num_bytes = 0
        with os.scandir(self._scratch) as entries:
            for number, entry in enumerate(entries):
                with suppress(FileNotFoundError):
                    facts = entry.stat(follow_symlinks=False)
                    num_bytes += max(facts.st_size, 512 * facts.st_blocks)
                if number >= _MAX_FILES or num_bytes > self._limits.scratch_mb * 1024 * 1024:
                    return True
        return False

    def _stop(self) -> None:
        """End the process and whatever is in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_END_S)

    def _cause_of_death(self) -> str:
        """Return why the kernel ended a process that ended before it was told to."""
        status = self._process.returncode
        if status >= 0:
            return ""
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            return f"it used more than {self._limits.cpu_s} seconds of computing time"
        return f"it crashed ({signal.Signals(-status).name})"
