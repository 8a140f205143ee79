"""The episodes of one process: places, leases, deadlines, idempotent steps, and their ends.

    submit(calls, sink)   every call gets exactly one answer in the sink, when it is ready

A session plays its environment on a runner (runners.py): one runner for all sessions where the
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
from agentgym_rl.envs.execution.runners import CallRunner, LoopRunner, ThreadRunner, Unfinished
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import Call, ErrorKind, Op, ProtocolError
from agentgym_rl.envs.service.server.backend import DRAINING, Backend, ServerLimits, Sink, Stats
from agentgym_rl.envs.service.server.session import (
    UNKNOWN_MESSAGE,
    Session,
    SessionCall,
    SessionClose,
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
        self._shared_runner: CallRunner | None = None
        self._closing: dict[CallRunner, float] = {}
        """Runners that close their environment, and since when."""
        self._left_behind: list[CallRunner] = []
        self._keeper: asyncio.Task[None] | None = None
        self._num_opened = self._num_failed = self._num_reaped = self._num_steps = 0

    @property
    def num_episodes(self) -> int:
        return len(self._sessions)

    @property
    def is_closing(self) -> bool:
        """Whether environments of ended sessions are still being closed."""
        shared = self._shared_runner
        is_busy = shared is not None and shared.is_busy
        return is_busy or any(runner.is_alive for runner in self._closing)

    async def start(self) -> None:
        self._keeper = asyncio.create_task(self._keep_order())

    async def aclose(self) -> None:
        """End every session. Calls that still run are left behind."""
        if self._keeper is not None:
            self._keeper.cancel()
        for session in list(self._sessions.values()):
            self._end(session, "the server stopped")
        if self._shared_runner is not None:
            self._shared_runner.stop()

    async def stats(self) -> Stats:
        return self.counts()

    def counts(self) -> Stats:
        self._left_behind = [runner for runner in self._left_behind if runner.is_alive]
        return Stats(
            num_episodes=len(self._sessions),
            num_abandoned=len(self._left_behind),
            num_opened=self._num_opened,
            num_failed=self._num_failed,
            num_reaped=self._num_reaped,
            num_steps=self._num_steps,
        )

    def submit(self, calls: Sequence[protocol.Object], sink: Sink) -> None:
        by_runner: dict[CallRunner, list[SessionCall]] = {}
        for fields in calls:
            try:
                call = protocol.decode_call(fields)
                session = self._session_for(call)
            except ProtocolError as error:
                body = bodies.error_body(error.kind, str(error))
                sink.add(protocol.encode_answer(fields["call"], error.kind.status, body))
                continue
            if session is None:
                self._close(call.episode, by_runner)
                sink.add(protocol.encode_answer(call.number, 204, None))
                continue
            session.num_waiting += 1
            queued = SessionCall(call, session, sink, self._on_finished)
            by_runner.setdefault(session.runner, []).append(queued)
        for runner, queue in by_runner.items():
            runner.put(queue)

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
        busy = {session.runner for session in self._sessions.values() if session.num_waiting}
        if self._shared_runner is not None:
            busy.add(self._shared_runner)
        for runner in busy:
            if (unfinished := runner.leave_behind(after_s=timeout_s)) is not None:
                self._expire(runner, unfinished)
        for runner, since in list(self._closing.items()):
            is_late = time.monotonic() - since > timeout_s
            if is_late and runner.is_alive:
                self._left_behind.append(runner)
            if is_late or not runner.is_alive:
                del self._closing[runner]

    async def _keep_order(self) -> None:
        """Reap and enforce deadlines until cancelled."""
        while True:
            await asyncio.sleep(min(self._limits.lease_s / 4, self._limits.call_timeout_s / 4, 1.0))
            try:
                self.reap()
                self.enforce_deadlines()
            except Exception:  # without a keeper, lost episodes would fill the server
                logger.exception("keeping order failed; trying again later")

    def _close(self, episode: str, by_runner: dict[CallRunner, list[SessionCall]]) -> None:
        """End the session, if there is one, with the calls before it in the batch on their way."""
        session = self._sessions.get(episode)
        if session is not None:
            if calls := by_runner.pop(session.runner, None):
                session.runner.put(calls)
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
            raise protocol.wrong_type(
                f"task {call.task.id} belongs to {call.task.env!r}, this server has {name!r}"
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
            self._runner_for_new(),
            env=self._class.spec.name,
            key=key,
        )
        self._sessions[session.id] = session
        if key:
            self._by_key[key] = session
        self._num_opened += 1
        return session

    def _runner_for_new(self) -> CallRunner:
        if not self._class.shares_thread:
            return self._new_runner()
        if self._shared_runner is None:
            self._shared_runner = self._new_runner()
        return self._shared_runner

    def _new_runner(self) -> CallRunner:
        if self._is_inline:
            return LoopRunner(self._limits.call_timeout_s)
        return ThreadRunner(f"env-{self._class.spec.name}", asyncio.get_running_loop())

    def _on_finished(self, done: SessionCall) -> None:
        """Account for a call that came back, or was given up."""
        session = done.session
        session.num_waiting -= 1
        session.last_used = time.monotonic()
        self._num_steps += done.call.op is _STEP
        if done.failure is not None and session.id in self._sessions:
            self._num_failed += 1
            self._end(session, f"the environment failed: {done.failure}")

    def _expire(self, runner: CallRunner, unfinished: Unfinished) -> None:
        """Give up the call that hangs on the runner: its session ends, the others continue."""
        fresh = self._new_runner()
        if runner is self._shared_runner:
            self._shared_runner = fresh
        for session in self._sessions.values():
            if session.runner is runner:
                session.runner = fresh
        runner.deliver()
        self._left_behind.append(runner)
        late = unfinished.running
        if isinstance(late, SessionCall):
            message = overdue_message(late, self._limits.call_timeout_s)
            self._num_failed += late.session.id in self._sessions
            self._forget(late.session, f"the environment failed: {message}")
            late.give_up(ErrorKind.TIMEOUT, message)
        self._move_on(unfinished)

    def _move_on(self, unfinished: Unfinished) -> None:
        """Send calls that have lost their runner to where they can be done or answered."""
        running = unfinished.running
        for call in unfinished.waiting:
            if isinstance(call, SessionClose):
                is_in_use = isinstance(running, SessionCall) and running.session is call.session
                if not is_in_use:  # else the call that still uses the environment closes it
                    self._close_apart(call)
            elif isinstance(call, SessionCall) and call.session.end_reason is None:
                call.session.runner.put([call])
            else:
                call.run()  # the session has ended: a call only says so
                call.finish()

    def _close_apart(self, call: SessionClose) -> None:
        """Close an environment whose runner is lost on a separate runner."""
        runner = self._new_runner()
        runner.put([call])
        runner.stop()
        self._closing[runner] = time.monotonic()

    def _end(self, session: Session, reason: str) -> None:
        """Forget the session and close its environment, now or when its call returns."""
        if not self._forget(session, reason):
            return
        runner = session.runner
        if self._class.shares_thread:
            runner.put([SessionClose(session)])
        elif not runner.is_busy:
            runner.put([SessionClose(session)])
            runner.stop()
            self._closing[runner] = time.monotonic()
        else:
            unfinished = runner.leave_behind()
            assert unfinished is not None, "without `after_s` it is always left behind"
            runner.deliver()
            self._left_behind.append(runner)
            if isinstance(unfinished.running, SessionCall):
                unfinished.running.give_up(ErrorKind.GONE, gone_message(reason))
            else:  # no call was running that would close the environment at its end
                self._close_apart(SessionClose(session))
            self._move_on(unfinished)

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
