"""The messages between a parent and its hosts, through two pipes.

    parent -> host      a header (`Header`), the setup, the request
    host -> parent      a line of JSON (`HostAnswer`), then the bytes of the reply

The setup comes from us, such as the settings of a scorer. The request may hold anything.
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, astuple, dataclass

PATIENCE = 10
"""A process that computes but gets no processor may take this many times `wall_s`."""

_HEADER = struct.Struct("!dIQIII")


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What one call may use."""

    wall_s: float
    """From the moment the process is locked. One that still computes after it is starved, not slow,
    and has up to `PATIENCE` times as long: `cpu_s` ends it."""
    cpu_s: int
    memory_bytes: int
    """Of address space, in addition to that of its host."""
    reply_bytes: int


@dataclass(frozen=True, slots=True)
class SandboxReply:
    """The result of a call. Example: SandboxReply(b"42\\n", "")"""

    data: bytes
    """What the process wrote; it may hold anything."""
    problem: str
    """Why the process was stopped, in words; empty if it ended by itself."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a host needs to know before it starts the process of a call."""

    limits: CallLimits
    setup_bytes: int
    request_bytes: int

    SIZE = _HEADER.size

    def pack(self) -> bytes:
        return _HEADER.pack(*astuple(self.limits), self.setup_bytes, self.request_bytes)

    @classmethod
    def unpack(cls, data: bytes) -> Header:
        *limits, setup_bytes, request_bytes = _HEADER.unpack(data)
        return cls(CallLimits(*limits), setup_bytes, request_bytes)


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """How a call, or the start of the host, went. Example: HostAnswer(num_bytes=3)"""

    failure: str = ""
    """Why the sandbox itself failed; the host then ends."""
    problem: str = ""
    """As in `SandboxReply`."""
    num_bytes: int = 0
    """Of the reply that follows."""

    def pack(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def unpack(cls, line: bytes) -> HostAnswer:
        return cls(**json.loads(line))
