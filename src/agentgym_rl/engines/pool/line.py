"""What carries messages to a process elsewhere and answers back, and what is asked of a process.

The seam between controllers and processes of this machine or actors of a cluster. The processes
host engines, or play episodes (rollout/workers/).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from agentgym_rl.engines.pool.messages import EnginePlan


class HostedProcess(Protocol):
    """A process of this machine, or an actor; `multiprocessing` has the former."""

    @property
    def sentinel(self) -> int:
        """A descriptor that is ready to be read once it has ended."""
        ...

    @property
    def exitcode(self) -> int | None:
        """None while it lives; of one that was killed the signal's number, below 0."""
        ...

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...

    def kill(self) -> None: ...


class HostPlan(Protocol):
    """What all plans say of a process."""

    @property
    def folder(self) -> Path:
        """Its own; the name of the folder is its name."""
        ...

    @property
    def log(self) -> Path:
        """Where it writes what it prints."""
        ...


@dataclass(frozen=True, slots=True)
class StartedProcess:
    """A process, and the way to it."""

    process: HostedProcess
    connect: Callable[[], Connection]
    """Waits until the way to it is open; raises OSError or EOFError where it has ended."""


class Line(Protocol):
    """What a controller has of a process elsewhere."""

    def send(self, *messages: object) -> None:
        """Send soon, in order; never blocks. Messages to a process that is gone are lost."""

    def kill(self) -> None:
        """End the process at once; its end is then reported. Safe to repeat."""

    def close(self) -> None:
        """End the process, and wait until it has ended. Safe to repeat."""


OnMessages = Callable[[Sequence[object]], None]
"""Told what the process says, in order."""
OnEnd = Callable[[str], None]
"""Told once, and last, how the process ended."""
StartLine = Callable[[OnMessages, OnEnd], Line]
"""Starts a process somewhere; both functions are called from a thread of the line."""
StartEngine = Callable[[EnginePlan, OnMessages, OnEnd], Line]
"""Starts a process that hosts an engine."""
