"""The episodes of one process: places, leases, deadlines, idempotent steps, and their ends.

    submit(calls, sink)   every call gets exactly one answer in the sink, when it is ready

A session plays its environment on a lane (lanes.py): one lane for all sessions where the
environment says that it only computes (`shares_thread`), else one thread each. Sessions are known
by ids that cannot be guessed. HTTP is in app.py, processes are in pool.py and worker.py.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.episode import EnvEpisode
from agentgym_rl.envs.execution.lanes import InlineLane, Lane, Remainder, ThreadLane
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import Call, ErrorKind, Op, ProtocolError
from agentgym_rl.envs.service.server.backend import DRAINING, Backend, ServerLimits, Sink, Stats
from agentgym_rl.envs.service.server.errands import (
    UNKNOWN_MESSAGE,
    CallErrand,
    CloseErrand,
    Session,
    gone_message,
    overdue_message,
)
from agentgym_rl.serving import bodies

logger = logging.getLogger(__name__)

_STEP = Op.STEP
_NUM_REMEMBERED = 1024
"""How many ended sessions are remembered, to say why they are gone."""


class SessionStore(Backend):
    """Every session of a process. Belongs to the event loop that calls `start`.

    The ids of its sessions start with `prefix`. `has_main_thread` says that the event loop runs on
    the main thread of a process of its own: calls that only compute then run there as well.
    """

    def __init__(
        self,
        cls: type[Environment],
        options: Mapping[str, object],
        limits: ServerLimits,
        *,
        prefix: str = "",
        has_main_thread: bool = False,
    ) -> None:
        self._class = cls
        self._is_inline = has_main_thread and cls.shares_thread
        self._factory: Callable[[], Environment] = partial(registry.construct, cls, options)
        self._limits = limits
        self._prefix = prefix
        self._sessions: dict[str, Session] = {}
        self._by_key: dict[str, Session] = {}
        self._gone: OrderedDict[str, str] = OrderedDict()
        self._shared_lane: Lane | None = None
        self._closing: dict[Lane, float] = {}
        """Lanes that close their environment, and since when."""
        self._left_behind: list[Lane] = []
        self._keeper: asyncio.Task[None] | None = None
        self._num_opened = self._num_failed = self._num_reaped = self._num_steps = 0

    @property
    def num_episodes(self) -> int:
        """How many episodes have a place."""
        return len(self._sessions)

    @property
    def is_closing(self) -> bool:
        """Whether environments of ended sessions are still being closed."""
        shared = self._shared_lane
        is_busy = shared is not None and shared.is_busy
        return is_busy or any(lane.is_alive for lane in self._closing)

    async def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep_order())

    async def aclose(self) -> None:
        """End every session. Calls that still run are left behind."""
        if self._keeper is not None:
            self._keeper.cancel()
        for session in list(self._sessions.values()):
            self._end(session, "the server stopped")
        if self._shared_lane is not None:
            self._shared_lane.stop()

    async def stats(self) -> Stats:
        return self.counts()

    def counts(self) -> Stats:
        """Return the present counts."""
        self._left_behind = [lane for lane in self._left_behind if lane.is_alive]
        return Stats(
            num_episodes=len(self._sessions),
            num_abandoned=len(self._left_behind),
            num_opened=self._num_opened,
            num_failed=self._num_failed,
            num_reaped=self._num_reaped,
            num_steps=self._num_steps,
        )

    def submit(self, calls: Sequence[protocol.Object], sink: Sink) -> None:
        by_lane: dict[Lane, list[CallErrand]] = {}
        for fields in calls:
            try:
                call = protocol.decode_call(fields)
                session = self._session_for(call)
            except ProtocolError as error:
                body = bodies.error_body(error.kind, str(error))
                sink.add(protocol.encode_answer(fields["call"], error.kind.status, body))
                continue
            if session is None:
                self._close(call.episode, by_lane)
                sink.add(protocol.encode_answer(call.number, 204, None))
                continue
            session.num_waiting += 1
            errand = CallErrand(call, session, sink, self._on_finished)
            by_lane.setdefault(session.lane, []).append(errand)
        for lane, errands in by_lane.items():
            lane.put(errands)

    def reap(self) -> None:
        """End every session whose lease has run out."""
        oldest = time.monotonic() - self._limits.lease_s
        idle = [s for s in self._sessions.values() if s.num_waiting == 0 and s.last_used < oldest]
        if idle:
            logger.info(
                "closing %d episodes without a call for %g s", len(idle), self._limits.lease_s
            )
            self._num_reaped += len(idle)
            for session in idle:
                self._end(session, f"it had no call for {self._limits.lease_s:g} s")

    def enforce_deadlines(self) -> None:
        """Give up on every call that has run for too long, and end its session."""
        timeout_s = self._limits.call_timeout_s
        busy = {session.lane for session in self._sessions.values() if session.num_waiting}
        if self._shared_lane is not None:
            busy.add(self._shared_lane)
        for lane in busy:
            if (remainder := lane.leave_behind(after_s=timeout_s)) is not None:
                self._expire(lane, remainder)
        for lane, since in list(self._closing.items()):
            is_late = time.monotonic() - since > timeout_s
            if is_late and lane.is_alive:
                self._left_behind.append(lane)
            if is_late or not lane.is_alive:
                del self._closing[lane]

    async def _keep_order(self) -> None:
        """Reap and enforce deadlines until cancelled."""
        while True:
            await asyncio.sleep(min(self._limits.lease_s / 4, self._limits.call_timeout_s / 4, 1.0))
            try:
                self.reap()
                self.enforce_deadlines()
            except Exception:  # without a keeper, lost episodes would fill the server
                logger.exception("keeping order failed; trying again later")

    def _close(self, episode: str, by_lane: dict[Lane, list[CallErrand]]) -> None:
        """End the session, if there is one, with the calls before it in the batch on their way."""
        session = self._sessions.get(episode)
        if session is not None:
            if errands := by_lane.pop(session.lane, None):
                session.lane.put(errands)
            self._end(session, "it was closed")

    def _session_for(self, call: Call) -> Session | None:
        """Return the session that the call is for; None for a close."""
        if call.op is _STEP and (session := self._sessions.get(call.episode)) is not None:
            return session
        if call.op is Op.CREATE:
            return self._by_key.get(call.key) or self._open(call.key)
        if call.op is Op.CLOSE:
            return None
        session = self._sessions.get(call.episode)
        if session is None:
            if call.episode not in self._gone:
                raise ProtocolError(ErrorKind.UNKNOWN_EPISODE, UNKNOWN_MESSAGE)
            raise ProtocolError(ErrorKind.GONE, gone_message(self._gone[call.episode]))
        name = self._class.spec.name
        if call.task is not None and call.task.env != name:
            raise ProtocolError(
                ErrorKind.WRONG_TYPE,
                f"task {call.task.id} is of environment {call.task.env!r}, "
                f"this server has {name!r}",
            )
        return session

    def _open(self, key: str) -> Session:
        """Take a place. An abandoned call keeps its own, so that hanging ones cannot pile up."""
        if self.is_draining:
            raise ProtocolError(ErrorKind.BUSY, DRAINING)
        num_abandoned = self.counts().num_abandoned
        if len(self._sessions) + num_abandoned >= self._limits.capacity:
            raise ProtocolError(
                ErrorKind.BUSY,
                f"all {self._limits.capacity} places are taken ({num_abandoned} of them by "
                "calls that passed their deadline)",
            )
        session = Session(
            f"{self._prefix}{secrets.token_urlsafe(16)}",
            EnvEpisode(self._factory),
            self._lane(),
            env=self._class.spec.name,
            key=key,
        )
        self._sessions[session.id] = session
        if key:
            self._by_key[key] = session
        self._num_opened += 1
        return session

    def _lane(self) -> Lane:
        """Return the lane for a new session."""
        if not self._class.shares_thread:
            return self._new_lane()
        if self._shared_lane is None:
            self._shared_lane = self._new_lane()
        return self._shared_lane

    def _new_lane(self) -> Lane:
        if self._is_inline:
            return InlineLane(self._limits.call_timeout_s)
        return ThreadLane(f"env-{self._class.spec.name}")

    def _on_finished(self, errand: CallErrand) -> None:
        """Take note of a call that came back, or was given up."""
        session = errand.session
        session.num_waiting -= 1
        session.last_used = time.monotonic()
        self._num_steps += errand.call.op is _STEP
        if errand.failure is not None and session.id in self._sessions:
            self._num_failed += 1
            self._end(session, f"the environment failed: {errand.failure}")

    def _expire(self, lane: Lane, remainder: Remainder) -> None:
        """Give up the call that hangs on the lane: its session ends, the others go on."""
        fresh = self._new_lane()
        if lane is self._shared_lane:
            self._shared_lane = fresh
        for session in self._sessions.values():
            if session.lane is lane:
                session.lane = fresh
        lane.deliver()
        self._left_behind.append(lane)
        errand = remainder.running
        if isinstance(errand, CallErrand):
            message = overdue_message(errand, self._limits.call_timeout_s)
            self._num_failed += errand.session.id in self._sessions
            self._forget(errand.session, f"the environment failed: {message}")
            errand.give_up(ErrorKind.TIMEOUT, message)
        self._go_on(remainder)

    def _go_on(self, remainder: Remainder) -> None:
        """Send errands that have lost their lane to where they can be done or answered."""
        running = remainder.running
        for errand in remainder.waiting:
            if isinstance(errand, CloseErrand):
                is_in_use = isinstance(running, CallErrand) and running.session is errand.session
                if not is_in_use:  # else the call that still uses the environment closes it
                    self._close_apart(errand)
            elif isinstance(errand, CallErrand) and errand.session.end_reason is None:
                errand.session.lane.put([errand])
            else:
                errand.run()  # the session has ended: a call only says so
                errand.finish()

    def _close_apart(self, errand: CloseErrand) -> None:
        """Close an environment whose lane is lost on a lane of its own."""
        lane = self._new_lane()
        lane.put([errand])
        lane.stop()
        self._closing[lane] = time.monotonic()

    def _end(self, session: Session, reason: str) -> None:
        """Forget the session and close its environment, now or when its call returns."""
        if not self._forget(session, reason):
            return
        lane = session.lane
        if self._class.shares_thread:
            lane.put([CloseErrand(session)])
        elif not lane.is_busy:
            lane.put([CloseErrand(session)])
            lane.stop()
            self._closing[lane] = time.monotonic()
        else:
            remainder = lane.leave_behind()
            assert remainder is not None, "it is left behind at any rate"
            lane.deliver()
            self._left_behind.append(lane)
            if isinstance(remainder.running, CallErrand):
                remainder.running.give_up(ErrorKind.GONE, gone_message(reason))
            else:  # no call was running that would close the environment at its end
                self._close_apart(CloseErrand(session))
            self._go_on(remainder)

    def _forget(self, session: Session, reason: str) -> bool:
        """Take the session out of the table; return whether it was there."""
        if self._sessions.pop(session.id, None) is None:
            return False
        self._by_key.pop(session.key, None)
        session.end_reason = reason
        self._gone[session.id] = reason
        if len(self._gone) > _NUM_REMEMBERED:
            self._gone.popitem(last=False)
        return True
