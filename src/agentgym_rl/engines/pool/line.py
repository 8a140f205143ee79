"""What carries messages to an engine elsewhere and answers back: the seam between a pool and
processes, or later actors of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from agentgym_rl.engines.pool.messages import Answer, EnginePlan, Message


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
