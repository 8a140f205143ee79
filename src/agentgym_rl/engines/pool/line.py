"""What carries messages to an engine elsewhere and answers back, and what is asked of a process.

The seam between controllers and processes of this machine or actors of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Protocol

from agentgym_rl.engines.pool.messages import Answer, EnginePlan, Message


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


@dataclass(frozen=True, slots=True)
class StartedEngine:
    """An engine's process, and the way to it."""

    process: HostedProcess
    connect: Callable[[], Connection]
    """Waits until the way to it is open; raises OSError or EOFError where it has ended."""


class Line(Protocol):
    """What a controller has of an engine elsewhere."""

    def send(self, message: Message) -> None:
        """Send soon, in order; never blocks. Messages to an engine that is gone are lost."""

    def kill(self) -> None:
        """End the engine at once; its end is then reported. Safe to repeat."""

    def close(self) -> None:
        """End the engine, and wait until it has ended. Safe to repeat."""


OnAnswers = Callable[[Sequence[Answer]], None]
OnEnd = Callable[[str], None]
"""Told once, and last, how the engine ended."""
StartEngine = Callable[[EnginePlan, OnAnswers, OnEnd], Line]
"""Starts an engine somewhere; both functions are called from a thread of the line."""
