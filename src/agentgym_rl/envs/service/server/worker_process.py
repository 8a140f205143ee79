"""One worker process as the server sees it: the socket to it, what it has in hand, its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import orjson

from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import ErrorKind, Object, Op
from agentgym_rl.envs.service.server.backend import Sink, Stats
from agentgym_rl.envs.service.server.frames import FAILURE, STATS, Frame, FrameProtocol
from agentgym_rl.envs.service.server.session import gone_message
from agentgym_rl.envs.service.server.worker import WorkerSettings
from agentgym_rl.errors import EnvError
from agentgym_rl.serving import bodies

logger = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
"""How often a worker is asked for its counts."""
MAX_MISSED = 3
"""Heartbeats in a row without which a worker gets no new episodes. Six seconds: far less than the
deadline of a client's call, and more than a busy machine holds up an answer."""
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 5.0


@dataclass(slots=True)
class _Submission:
    """Calls that were sent, and what has come back of them."""

    calls: Sequence[Object]
    sink: Sink
    num_answered: int = 0
    received: list[bytes] = field(default_factory=list)

    def unanswered(self) -> list[Object]:
        lines = b"".join(self.received).splitlines()
        answered = {protocol.decode_answer(line).number for line in lines}
        return [call for call in self.calls if call["call"] not in answered]


class WorkerProcess:
    """Starts a worker and speaks to it. Belongs to one event loop."""

    def __init__(self, number: int, settings: WorkerSettings) -> None:
        self.number = number
        self.started_at = time.monotonic()
        self.is_ready = False
        self.is_retiring = False
        """Whether it takes no new episodes and ends with its last one."""
        self.num_episodes = 0
        self.num_opening = 0
        """Creates on their way to it; whoever submits one counts it before."""
        self.stats = Stats()
        self._settings = settings
        self._failure = ""
        self._pending: dict[int, _Submission] = {}
        self._protocol = FrameProtocol(self._on_frame, self._on_lost)
        self._process: asyncio.subprocess.Process | None = None
        self._heard = asyncio.Event()
        self._heard_at = time.monotonic()

    @property
    def capacity(self) -> int:
        return self._settings.limits.capacity

    @property
    def load(self) -> int:
        """How many episodes it has or is about to have."""
        return self.num_episodes + self.num_opening

    @property
    def takes_episodes(self) -> bool:
        """Whether new episodes may go to it: not while it misses its heartbeats."""
        return self.is_ready and not self.is_retiring and not self.is_silent

    @property
    def is_silent(self) -> bool:
        """Whether it has missed heartbeats; it may only be busy, or stuck for good."""
        return self.is_ready and self.silent_s > MAX_MISSED * HEARTBEAT_S

    @property
    def silent_s(self) -> float:
        """How long nothing has come from it."""
        return time.monotonic() - self._heard_at

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises EnvError when it does not start."""
        ours, theirs = socket.socketpair()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "agentgym_rl.envs.service.server.worker"),
                str(theirs.fileno()),
                self._settings.to_json(),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        finally:
            theirs.close()
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._protocol, sock=ours)
        try:
            await asyncio.wait_for(self._heard.wait(), _START_TIMEOUT_S)
        except TimeoutError:
            self.kill()
            raise EnvError(
                f"worker {self.number} was not ready in {_START_TIMEOUT_S:g} s"
            ) from None
        if not self.is_ready:
            status = await self.wait()
            reason = self._failure or f"it ended with status {status}"
            raise EnvError(f"worker {self.number} did not start: {reason}")

    def submit(self, submission: int, calls: Sequence[Object], sink: Sink) -> None:
        """Send calls; the answers go to the sink, also when the process dies before them."""
        self._pending[submission] = _Submission(calls, sink)
        self._protocol.send(Frame(submission, orjson.dumps(calls)))

    def ask_stats(self) -> None:
        self._protocol.send(Frame(STATS, b""))

    async def refresh(self, timeout_s: float) -> None:
        """Ask for the counts and wait for them, but not for long."""
        self._heard.clear()
        self.ask_stats()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._heard.wait(), timeout_s)

    async def wait(self) -> int:
        """Wait for the end of the process and return its exit status."""
        assert self._process is not None, "start comes first"
        return await self._process.wait()

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def end(self) -> None:
        """Have it close its environments and end; kill it when that takes too long."""
        self._protocol.close()
        if self._process is None:
            return
        try:
            await asyncio.wait_for(self._process.wait(), _END_TIMEOUT_S)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def final_stats(self) -> Stats:
        """Return what it has counted; the episodes that ended with it have failed."""
        num_uncounted = max(0, self.num_episodes - self.stats.num_episodes)
        return replace(
            self.stats,
            num_episodes=0,
            num_abandoned=0,
            num_opened=self.stats.num_opened + num_uncounted,
            num_failed=self.stats.num_failed + self.num_episodes,
        )

    def _on_frame(self, frame: Frame) -> None:
        self._heard_at = time.monotonic()
        self.num_episodes = frame.num_episodes
        if frame.submission == STATS:
            self.stats = Stats(**orjson.loads(frame.payload))
            self.is_ready = True
            self._heard.set()
            return
        if frame.submission == FAILURE:
            self._failure = frame.payload.decode()
            return
        submission = self._pending[frame.submission]
        submission.num_answered += frame.num_answers
        if submission.num_answered == len(submission.calls):
            del self._pending[frame.submission]
            self.num_opening -= _num_creates(submission.calls)
        else:
            submission.received.append(frame.payload)
        submission.sink.add(frame.payload, frame.num_answers)

    def _on_lost(self) -> None:
        """Answer what the process can answer no more."""
        self.is_ready = False
        self._heard.set()
        self.kill()
        pending = list(self._pending.values())
        self._pending.clear()
        body = bodies.error_body(ErrorKind.GONE, gone_message("its worker process has ended"))
        for submission in pending:
            for call in submission.unanswered():
                line = protocol.encode_answer(call["call"], ErrorKind.GONE.status, body)
                submission.sink.add(line)


def _num_creates(calls: Sequence[Object]) -> int:
    return sum(call.get("op") == Op.CREATE for call in calls)
