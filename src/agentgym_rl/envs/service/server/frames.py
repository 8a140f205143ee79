"""How the server's process and a worker process talk: frames over a socket pair.

    header: length of the payload, number of the submission, two counts     then the payload

To the worker a payload is a JSON list of calls. Back come lines of answers, as they are ready; the
counts are how many answers the frame holds and how many episodes the worker has.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

_HEADER = struct.Struct("<IQII")

STATS = 0
"""The submission that asks for (and answers with) the worker's counts, as JSON."""

FAILURE = 2**64 - 1
"""The submission that says, in words, why the worker cannot start."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    submission: int
    payload: bytes
    num_answers: int = 0
    num_episodes: int = 0


def encode_frame(frame: Frame) -> bytes:
    header = _HEADER.pack(
        len(frame.payload), frame.submission, frame.num_answers, frame.num_episodes
    )
    return header + frame.payload


class FrameProtocol(asyncio.Protocol):
    """Cuts what arrives into frames."""

    def __init__(self, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # sockets can be written to

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _HEADER.size:
            length, submission, num_answers, num_episodes = _HEADER.unpack_from(self._buffer, start)
            end = start + _HEADER.size + length
            if len(self._buffer) < end:
                break
            payload = bytes(self._buffer[start + _HEADER.size : end])
            start = end
            self._on_frame(Frame(submission, payload, num_answers, num_episodes))
        del self._buffer[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None  # uvloop raises on a write to a transport that is closed
        self._on_lost()

    def send(self, frame: Frame) -> None:
        """Send a frame; nothing happens once the connection is lost."""
        if self._transport is not None:
            self._transport.write(encode_frame(frame))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
