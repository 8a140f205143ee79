"""One rollout worker as the controller sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from agentgym_rl.agents.limits import Limits
from agentgym_rl.engines.pool.line import OnEnd, OnMessages, StartedProcess
from agentgym_rl.engines.pool.messages import Answer
from agentgym_rl.engines.pool.process import ProcessLine, start_process
from agentgym_rl.engines.pool.remote import START_TIMEOUT_S, RemoteProcess
from agentgym_rl.errors import EnvError
from agentgym_rl.rollout.episode import EpisodeSpec, Participants
from agentgym_rl.rollout.workers.host import run_worker
from agentgym_rl.rollout.workers.messages import (
    AskReply,
    CloseSession,
    Failed,
    FindServer,
    GiveUp,
    Ping,
    Play,
    Played,
    Server,
    WorkerPlan,
    WorkerValue,
)
from agentgym_rl.rollout.workers.replies import EpisodeReplies

StartWorker = Callable[[WorkerPlan], StartedProcess]
FindAddress = Callable[[int, int], Awaitable[tuple[str, str]]]
"""Returns address and token of the server in a place of an environment, once there is one."""


def start_worker_here(plan: WorkerPlan) -> StartedProcess:
    """Start a rollout worker as a process of this machine."""
    return start_process(plan, run_worker, plan)


class RemoteWorker(RemoteProcess[WorkerValue]):
    """Is made at once; `ready` waits until it has opened its environments."""

    def __init__(
        self,
        plan: WorkerPlan,
        start: StartWorker,
        *,
        find_address: FindAddress,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[RemoteWorker], None],
    ) -> None:
        """`loop` is the controller's, on which episodes are waited for."""
        self._loop, self._find_address = loop, find_address
        self._episodes: dict[int, EpisodeReplies] = {}
        self._finding = set[asyncio.Task[None]]()
        self._outbox: list[object] = []
        super().__init__(
            plan.folder.name, partial(_line, plan, start), on_end=lambda _process: on_end(self)
        )

    def ready(self) -> None:
        """Wait until it can play; raises EngineError if it cannot."""
        self.result(self._start, START_TIMEOUT_S, "start")

    def check(self, timeout_s: float) -> None:
        """Ask whether its event loop runs; a worker that does not answer is killed."""
        self.result(self._order(Ping), timeout_s, "answer")

    async def play(
        self, env: int, spec: EpisodeSpec, participants: Participants, limits: Limits
    ) -> Played | Failed:
        """Have it play an episode. Raises EngineError where the worker ends before that does."""
        future: asyncio.Future[WorkerValue] = self._loop.create_future()
        number = self._register(future)
        engine = participants.engine

        def fail(error: Exception) -> None:
            if not future.done():
                future.set_exception(error)

        replies = self._episodes[number] = EpisodeReplies(engine, self._send, on_failure=fail)
        self._send(Play(number, env, spec, limits, engine.max_context))
        try:
            value = await future
        except BaseException:
            self._send(GiveUp(number))
            raise
        finally:
            self._forget(number)
            del self._episodes[number]
            replies.close()
        assert value is not None, "an answer to `Play`"
        return value

    def _send(self, message: object) -> None:
        """Send what becomes ready in this pass of the event loop in one piece."""
        self._outbox.append(message)
        if len(self._outbox) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        ready, self._outbox = self._outbox, list[object]()
        self.line.send(*ready)

    def _on_messages(self, messages: Sequence[object]) -> None:
        super()._on_messages(messages)
        asked = [message for message in messages if not isinstance(message, Answer)]
        if asked:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                self._loop.call_soon_threadsafe(self._handle, asked)

    def _handle(self, messages: Sequence[object]) -> None:
        for message in messages:
            match message:
                case AskReply():
                    if (replies := self._episodes.get(message.play)) is not None:
                        replies.ask(message)
                case CloseSession():
                    if (replies := self._episodes.get(message.play)) is not None:
                        replies.close_session(message.session)
                case FindServer():
                    task = asyncio.create_task(self._find(message))
                    self._finding.add(task)
                    task.add_done_callback(self._finding.discard)

    async def _find(self, asked: FindServer) -> None:
        with contextlib.suppress(EnvError):  # the run is over
            url, token = await self._find_address(asked.env, asked.place)
            self._send(Server(asked.number, url, token))


def _line(
    plan: WorkerPlan, start: StartWorker, on_messages: OnMessages, on_end: OnEnd
) -> ProcessLine:
    return ProcessLine(plan, start(plan), on_messages, on_end)
