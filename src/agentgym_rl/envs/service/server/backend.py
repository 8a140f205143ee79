"""What the dialects of a server speak to: calls in, one answer each out.

Two kinds: the episodes of this process (session_store.py), and worker processes that hold them
(pool.py). Whoever submits gives a sink, which gets the lines of the answers as they are ready.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from agentgym_rl.envs.service.protocol import Counts, Object


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a server allows."""

    capacity: int = 1024
    """Episodes that can be open at a time, over all worker processes."""
    call_timeout_s: float = 60.0
    """Deadline of one call to an environment."""
    lease_s: float = 600.0
    """An episode without a call for this long is closed."""
    max_body_bytes: int = 4 * 1024 * 1024
    drain_s: float = 20.0
    """How long open episodes may continue after SIGTERM."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)  # one rule for all
            if not value > 0:  # nan too
                raise ValueError(f"{field.name} must be above 0, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats(Counts):
    """What a backend counts."""

    num_missing: int = 0
    """Worker processes that should take episodes and do not."""


class Sink(Protocol):
    """Takes the answers to the calls of one submission, in any order."""

    def add(self, lines: bytes, num_answers: int = 1) -> None:
        """Take whole lines; `protocol.decode_answer` reads one. On the event loop."""


DRAINING = "the server is about to stop and takes no new episodes"


class Backend(ABC):
    """Does calls. All methods are for the event loop of `start`."""

    is_draining: bool = False
    """Whether new episodes are refused because the server is about to stop."""

    @abstractmethod
    async def start(self) -> None:
        """Be ready for calls. Raises EnvError when that fails."""

    @abstractmethod
    def submit(self, calls: Sequence[Object], sink: Sink) -> None:
        """Do these calls, as decoded from JSON; each has its number in "call".

        Every call gets exactly one answer, failures included.
        """

    @abstractmethod
    async def stats(self) -> Stats:
        """Return the present counts."""

    @abstractmethod
    async def aclose(self) -> None:
        """End every episode and give back what is held."""
