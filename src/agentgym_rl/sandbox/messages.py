"""What a parent and its hosts say to each other, through two pipes.

    parent -> host      a header (`Header`), the setup, the request
    host -> parent      a line of JSON (`HostAnswer`), then the bytes of the reply

The setup comes from us (e.g. the settings of a scorer). The request may hold anything.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, dataclass

PATIENCE = 10
"""A process that computes but gets no processor may take this many times `wall_s`."""

_HEADER = struct.Struct("!dIQIII")


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What one call may use."""

    wall_s: float
    """From the moment the process is locked in. One that still computes then is starved, not slow,
    and has until `PATIENCE` times as long: `cpu_s` ends it."""
    cpu_s: int
    memory_bytes: int
    """Of address space, beyond what its host has taken."""
    reply_bytes: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a host must know of a call before it starts a process."""

    limits: CallLimits
    setup_bytes: int
    request_bytes: int

    SIZE = _HEADER.size

    def pack(self) -> bytes:
        limits = self.limits
        return _HEADER.pack(
            limits.wall_s,
            limits.cpu_s,
            limits.memory_bytes,
            limits.reply_bytes,
            self.setup_bytes,
            self.request_bytes,
        )

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        wall_s, cpu_s, memory_bytes, reply_bytes, setup_bytes, request_bytes = _HEADER.unpack(data)
        limits = CallLimits(wall_s, cpu_s, memory_bytes, reply_bytes)
        return cls(limits, setup_bytes, request_bytes)


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """What a host says of a call, or of its own start. Example: HostAnswer(num_bytes=3)"""

    failure: str = ""
    """Why the sandbox itself failed; the host ends after it."""
    problem: str = ""
    """Why the process was stopped, in words; empty where it ended by itself."""
    num_bytes: int = 0
    """Of the reply that follows."""

    def pack(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def unpack(cls, line: bytes) -> HostAnswer:
        return cls(**json.loads(line))
