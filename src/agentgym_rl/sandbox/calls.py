"""The parent's side: starts hosts (host.py) and sends them calls."""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import agentgym_rl
from agentgym_rl.errors import EnvError
from agentgym_rl.sandbox.messages import PATIENCE, CallLimits, Header, HostAnswer, SandboxReply

_COMMAND = "from agentgym_rl.sandbox.host import main; main()"
_START_S = 120.0
"""Imports may take long on a busy machine."""
_SLOT_S = 600.0
_GRACE_S = 60.0
"""Time for the host itself, beyond the limits of the call."""
_END_S = 5.0


class Sandbox:
    """Runs one function on untrusted requests, each in its own process.

    `target` is "module:function" (see host.py), `has_packages` whether it needs more than the
    standard library. Hosts start on demand and stay until this process ends. Safe for threads.
    """

    def __init__(self, target: str, *, has_packages: bool, max_calls: int) -> None:
        self._target = target
        self._has_packages = has_packages
        self._max_calls = max_calls
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.close)

    def start(self) -> None:
        """Start a host before the first call, without waiting for it."""
        if not self._is_started:
            self._is_started = True
            self._idle.append(_HostProcess(self._target, self._has_packages))

    def call(self, request: bytes, limits: CallLimits, *, setup: bytes = b"") -> SandboxReply:
        """Run the function on a request and wait for its end.

        Waiting for a free slot is not part of the call's time. Raises EnvError if the sandbox
        itself fails: the request was then not run, or not to its end.
        """
        slots = self._slots
        if not slots.acquire(timeout=_SLOT_S):
            raise EnvError(
                f"no slot of the sandbox was free within {_SLOT_S:g} s; {self._max_calls} calls "
                "run at a time: use fewer environments per process"
            )
        try:
            host = (
                self._idle.pop() if self._idle else _HostProcess(self._target, self._has_packages)
            )
            try:
                reply = host.call(request, limits, setup)
            except BaseException:
                host.stop()
                raise
            self._idle.append(host)
            return reply
        finally:
            slots.release()

    def close(self) -> None:
        """End the hosts that are idle."""
        while self._idle:
            self._idle.pop().stop()

    def _forget(self) -> None:
        """Begin without hosts: after a fork they belong to the parent process."""
        self._idle: list[_HostProcess] = []
        self._is_started = False
        self._slots = threading.BoundedSemaphore(self._max_calls)


class _HostProcess:
    """One host process, for one call at a time."""

    def __init__(self, target: str, has_packages: bool) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        # Without packages, nothing of the user or the site is imported. No host writes bytecode
        # or buffers its output.
        flags = ("-B", "-u") if has_packages else ("-B", "-u", "-s", "-S")
        places = [str(Path(agentgym_rl.__file__).parents[1])]
        if has_packages:
            places += [path for path in sys.path if path]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", _COMMAND, target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd="/",
                env={
                    "PYTHONPATH": os.pathsep.join(places),
                    "PYTHONUTF8": "1",
                    # Sets have the same order in every call.
                    "PYTHONHASHSEED": "0",
                    # The locks close for one thread only.
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise EnvError(f"the sandbox failed to start: {error}") from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        self._received = bytearray()
        self._is_ready = False

    def call(self, request: bytes, limits: CallLimits, setup: bytes) -> SandboxReply:
        if not self._is_ready:
            self._read_answer(time.monotonic() + _START_S)
            self._is_ready = True
        deadline = time.monotonic() + PATIENCE * limits.wall_s + _GRACE_S
        header = Header(limits, len(setup), len(request))
        self._send(header.pack() + setup + request, deadline)
        answer = self._read_answer(deadline)
        while len(self._received) < answer.num_bytes:
            self._receive(deadline)
        data = bytes(self._received[: answer.num_bytes])
        del self._received[: answer.num_bytes]
        return SandboxReply(data, answer.problem)

    def stop(self) -> None:
        """End the host and what it runs."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()

    def _read_answer(self, deadline: float) -> HostAnswer:
        while (end := self._received.find(b"\n")) < 0:
            self._receive(deadline)
        answer = HostAnswer.unpack(bytes(self._received[:end]))
        del self._received[: end + 1]
        if answer.failure:
            raise EnvError(f"the sandbox failed: {answer.failure}")
        return answer

    def _receive(self, deadline: float) -> None:
        self._await(self._output, select.POLLIN, deadline)
        chunk = os.read(self._output, 65536)
        if not chunk:
            raise self._broken()
        self._received += chunk

    def _send(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            self._await(self._input, select.POLLOUT, deadline)
            try:
                left = left[os.write(self._input, left) :]
            except BrokenPipeError:
                self._read_answer(deadline)  # it may say why the host ended
                raise self._broken() from None

    def _await(self, pipe: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(pipe, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise EnvError("the sandbox failed: its host does not answer")

    def _broken(self) -> EnvError:
        self._errors.seek(0)
        said = self._errors.read()[-500:].decode("utf-8", "replace").strip()
        return EnvError(f"the sandbox failed: its host ended: {said or 'without a message'}")
