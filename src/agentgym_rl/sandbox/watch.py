"""Watches one process for the host: reads its reply, and stops it at its limits."""

from __future__ import annotations

import os
import selectors
import signal
import time
from contextlib import suppress
from pathlib import Path

from agentgym_rl.sandbox.messages import PATIENCE, CallLimits, SandboxReply

_LOOK_S = 0.02
"""How often a process is checked once its time is up."""


class HostError(Exception):
    """The sandbox itself failed, not the code in it."""


class ParentGoneError(Exception):
    """Nobody waits for the reply any more."""


def watch(pid: int, reply: int, *, requests: int, limits: CallLimits) -> SandboxReply:
    """Wait until a locked process has ended, and stop it if it exceeds its limits.

    `reply` is the pipe that it writes to. `requests` is the parent's pipe: its end means that the
    parent is gone. Raises HostError if something else killed the process.
    """
    taken = bytearray()
    ended = os.pidfd_open(pid)
    try:
        problem = _wait(pid, ended, reply, requests, taken, limits)
    finally:
        os.close(ended)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status, used = os.wait4(pid, 0)
    if not problem and os.WIFSIGNALED(status):
        problem = _cause_of_death(os.WTERMSIG(status), used.ru_utime + used.ru_stime, limits)
    return SandboxReply(bytes(taken[: limits.reply_bytes]), problem)


def _wait(
    pid: int, ended: int, reply: int, requests: int, taken: bytearray, limits: CallLimits
) -> str:
    """Wait until the process has ended ("") or must be stopped (the reason)."""
    started = time.monotonic()
    with selectors.DefaultSelector() as selector:
        for descriptor in (ended, reply, requests):
            selector.register(descriptor, selectors.EVENT_READ)
        while True:
            used_s = time.monotonic() - started
            events = selector.select(max(_LOOK_S, limits.wall_s - used_s))
            ready = {key.fd for key, _ in events}
            if requests in ready:  # the parent sends nothing during a call
                raise ParentGoneError
            if reply in ready:
                chunk = os.read(reply, 65536)
                taken += chunk
                if not chunk:
                    selector.unregister(reply)
            if len(taken) > limits.reply_bytes:
                return "it printed too much"
            if ended in ready and reply not in ready:
                return ""
            if _is_over(pid, time.monotonic() - started, limits):
                return f"it ran longer than {limits.wall_s:g} seconds"


def _is_over(pid: int, used_s: float, limits: CallLimits) -> bool:
    """Return whether the time is up; a process that waits for a processor has more."""
    if used_s <= limits.wall_s:
        return False
    return used_s > PATIENCE * limits.wall_s or _is_asleep(pid)


def _is_asleep(pid: int) -> bool:
    # The name, in parentheses, may itself hold spaces and parentheses.
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state not in ("R", "Z")  # neither runnable nor ended just now


def _cause_of_death(number: int, cpu_s: float, limits: CallLimits) -> str:
    """Return why the kernel ended a process."""
    # Half, because the kernel's limit counts more coarsely than its report.
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s > 0.5 * limits.cpu_s):
        return f"it used more than {limits.cpu_s} seconds of computing time"
    if number == signal.SIGKILL:
        raise HostError("the process was killed from outside; is the machine out of memory?")
    return f"it crashed ({signal.Signals(number).name})"
