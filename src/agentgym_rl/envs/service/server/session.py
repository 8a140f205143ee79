"""A session, and the calls to it that a runner does (execution/runners.py).

A session is a place on the server with one episode at a time. Everything it does to its
environment happens on its runner's thread. The table of sessions, their leases and deadlines belong
to session_store.py.
"""

from __future__ import annotations

import logging
import time
from base64 import b64encode
from collections.abc import Callable

from agentgym_rl.envs.episode import (
    EnvEpisode,
    EpisodeStateError,
    where,
    without_surrogates,
)
from agentgym_rl.envs.execution.runners import CallRunner, OverdueInterrupt, QueuedCall
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import SUCCESS_STATUS, Call, ErrorKind, Op, ProtocolError
from agentgym_rl.envs.service.server.backend import Sink
from agentgym_rl.serving import bodies
from agentgym_rl.types import StepResult

logger = logging.getLogger(__name__)

_STEP = Op.STEP

UNKNOWN_MESSAGE = "the episode is gone: it is unknown here (the server may have restarted)"


class Session:
    """One place of a server."""

    def __init__(
        self, session_id: str, episode: EnvEpisode, runner: CallRunner, *, env: str, key: str
    ) -> None:
        self.id = session_id
        self.key = key
        """The key of its create, which may be sent again; empty for none."""
        self.episode = episode
        self.runner = runner
        self.num_waiting = 0
        """Calls that run or wait; a session in use is never idle."""
        self.last_used = time.monotonic()
        self.end_reason: str | None = None
        """Set when the session has ended; its calls are then refused."""
        self._env = env
        # The latest step, kept so that a repeat of it is answered without doing it again.
        self._latest_action = ""
        self._latest_result: StepResult | None = None

    @property
    def where(self) -> str:
        return where(self._env, self.episode.task, self.episode.num_rounds)

    def perform(self, call: Call) -> object:
        """Do the call and return the body of its answer; on the runner's thread."""
        if call.op is _STEP:
            return protocol.step_fields(self._step(call.round_index, call.action))
        match call.op:
            case Op.CREATE:
                self.episode.build()
                return {"episode": self.id}
            case Op.RESET:
                assert call.task is not None, "a reset is decoded with its task"
                self._latest_result = None
                try:
                    return {"observation": self.episode.reset(call.task)}
                except ValueError as error:
                    message = f"task {call.task.id} is refused: {_in_words(error)}"
                    raise protocol.wrong_type(message) from error
            case Op.OBSERVATION:
                return {"observation": self.episode.observation()}
            case Op.ACTIONS:
                return {"actions": self.episode.available_actions()}
            case Op.DETAILS:
                return {"details": self.episode.details()}
            case Op.IMAGE:
                image = self.episode.render()
                return {"image": None if image is None else b64encode(image).decode()}
        raise AssertionError(f"{call.op} is not done by a session")

    def _step(self, round_index: int, action: str) -> StepResult:
        """Do the next round, or answer the latest one again. Refuses every other round."""
        next_round, latest = self.episode.num_rounds, self._latest_result
        if round_index == next_round:
            latest = self.episode.step(action)
            self._latest_action, self._latest_result = action, latest
            return latest
        if latest is None or round_index != next_round - 1:
            raise ProtocolError(
                ErrorKind.WRONG_ROUND, f"got round {round_index}, expected round {next_round}"
            )
        if action != self._latest_action:
            raise ProtocolError(
                ErrorKind.WRONG_ROUND,
                f"round {round_index} was played with another action; "
                f"the next is round {next_round}",
            )
        return latest


class SessionCall(QueuedCall):
    """A call on its way to a session, and its answer on the way back."""

    __slots__ = ("_line", "_on_finished", "_sink", "call", "failure", "session")

    def __init__(
        self,
        call: Call,
        session: Session,
        sink: Sink,
        on_finished: Callable[[SessionCall], None],
    ) -> None:
        self.call = call
        self.session = session
        self.failure: str | None = None
        """Why the environment failed, where it did."""
        self._sink = sink
        self._on_finished = on_finished
        self._line = b""

    def run(self) -> None:
        call, session = self.call, self.session
        if session.end_reason is not None:
            self._line = self._refusal(ErrorKind.GONE, gone_message(session.end_reason))
            return
        try:
            body = session.perform(call)
            self._line = protocol.encode_answer(call.number, SUCCESS_STATUS[call.op], body)
        except EpisodeStateError as error:
            self._line = self._refusal(ErrorKind.WRONG_STATE, f"{session.where}: {error}")
        except ProtocolError as error:
            self._line = self._refusal(error.kind, str(error))
        except OverdueInterrupt as interrupt:
            self.interrupt(interrupt.timeout_s)
        except BaseException as error:  # SystemExit of an environment ends no thread
            self.failure = f"{session.where}: {call.op} raised {_in_words(error)}"
            logger.warning("%s: %s raised", session.where, call.op, exc_info=True)
            # Set here and not on the event loop, so that no call behind this one touches it.
            session.end_reason = f"the environment failed: {self.failure}"
            self._line = self._refusal(ErrorKind.ENV_FAILED, self.failure)

    def interrupt(self, timeout_s: float) -> None:
        self.failure = overdue_message(self, timeout_s)
        self.session.end_reason = f"the environment failed: {self.failure}"
        self._line = self._refusal(ErrorKind.TIMEOUT, self.failure)

    def finish(self) -> None:
        self._on_finished(self)
        self._sink.add(self._line)

    def give_up(self, kind: ErrorKind, message: str) -> None:
        """Answer without waiting for the call any longer; it may still run."""
        self._on_finished(self)
        self._sink.add(self._refusal(kind, message))

    def clean_up(self) -> None:
        _close(self.session)

    def _refusal(self, kind: ErrorKind, message: str) -> bytes:
        return protocol.encode_answer(
            self.call.number, kind.status, bodies.error_body(kind, message)
        )


class SessionClose(QueuedCall):
    """Closes the environment of a session that has ended."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session

    def run(self) -> None:
        _close(self.session)


def overdue_message(late: SessionCall, timeout_s: float) -> str:
    return f"{late.session.where}: {late.call.op} passed its deadline of {timeout_s:g} s"


def gone_message(reason: str) -> str:
    return f"the episode is gone: {reason}"


def _in_words(error: BaseException) -> str:
    """Return an environment's exception in words that JSON can carry."""
    try:
        return without_surrogates(f"{type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001 - its own __str__ may be broken as well
        return type(error).__name__


def _close(session: Session) -> None:
    try:
        session.episode.close()
    except BaseException:  # the thread must live on, whatever close does
        logger.warning("%s: close failed", session.where, exc_info=True)
