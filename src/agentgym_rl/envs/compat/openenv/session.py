"""One OpenEnv session: the episode behind one socket, and the answer to each of its frames.

Every frame gets an answer and no frame ends the session: what is wrong with it, or with the
environment, is an error frame. After a failure of the environment a reset takes a new place. The
socket itself belongs to routes.py.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from agentgym_rl.envs.compat.openenv.protocol import ACTION_FIELD, CODES, TEXT_FIELD, ErrorCode
from agentgym_rl.envs.compat.openenv.tasks import TaskBook
from agentgym_rl.envs.episode import EpisodeStateError
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import ErrorKind, ProtocolError, wrong_type
from agentgym_rl.envs.service.server.episode_service import KINDS, EpisodeService
from agentgym_rl.errors import EnvBusyError, EnvError
from agentgym_rl.serving import bodies
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_Fields = dict[str, object]
_MAX_EPISODE_ID = 255


class OpenEnvSession:
    """Plays the frames of one socket, one after another. `close` it whatever happens."""

    def __init__(self, service: EpisodeService, tasks: TaskBook, max_message_bytes: int) -> None:
        self._service = service
        self._tasks = tasks
        self._max_message_bytes = max_message_bytes
        self._place: asyncio.Task[str] | None = None
        self._task: Task | None = None
        """The task that is played; None before a reset and after a failure."""
        self._episode_id: str | None = None
        self._num_rounds = 0
        self._is_over = False
        self._handlers: Final[Mapping[str, Callable[[_Fields], Awaitable[_Fields]]]] = {
            "step": self._step,
            "reset": self._reset,
            "state": self._state,
            "actions": self._actions,
        }

    async def open(self) -> bytes | None:
        """Take a place; return the error frame of a refusal."""
        try:
            await self._take_place()
        except Exception as error:  # noqa: BLE001 - a failed create must reach the client in words
            is_busy = isinstance(error, EnvBusyError)
            code = ErrorCode.CAPACITY_REACHED if is_busy else ErrorCode.FACTORY_ERROR
            return _error_frame(error, code=code)
        return None

    async def answer(self, frame: bytes) -> bytes | None:
        """Return the frame that answers `frame`; None where it asks for the end."""
        try:
            kind, data = self._decode(frame)
            if kind == "close":
                return None
            return bodies.encode(await self._handlers[kind](data))
        except Exception as error:  # noqa: BLE001 - a bug here must not end the client's session
            if isinstance(error, EnvError):
                await self.close()
            return _error_frame(error)

    def _decode(self, frame: bytes) -> tuple[str, _Fields]:
        if len(frame) > self._max_message_bytes:
            message = f"the message is larger than {self._max_message_bytes} bytes"
            raise ProtocolError(ErrorKind.TOO_LARGE, message)
        message = bodies.load(frame)
        kind, data = message.get("type"), message.get("data")
        if not isinstance(kind, str) or kind not in (*self._handlers, "close"):
            known = ", ".join((*self._handlers, "close"))
            raise ProtocolError(
                ErrorKind.UNKNOWN_ROUTE, f"'type' must be one of {known}, not {str(kind)[:50]!r}"
            )
        if kind == "step" and isinstance(data, str):
            return kind, {ACTION_FIELD: data}
        if data is not None and not isinstance(data, dict):
            raise wrong_type(f"{kind}: 'data' must be an object")
        return kind, data or {}

    async def _reset(self, data: _Fields) -> _Fields:
        episode_id = data.get("episode_id")
        if not (episode_id is None or isinstance(episode_id, str)):
            raise wrong_type("'episode_id' must be str")
        if episode_id is not None and len(episode_id) > _MAX_EPISODE_ID:
            raise wrong_type(f"'episode_id' is longer than {_MAX_EPISODE_ID} characters")
        task = await self._tasks.choose(data)
        self._task = None
        observation = await self._service.reset(await self._take_place(), task)
        self._task, self._num_rounds, self._is_over = task, 0, False
        self._episode_id = episode_id or str(uuid.uuid4())
        return {"type": "observation", "data": reset_outcome(observation, task)}

    async def _step(self, data: _Fields) -> _Fields:
        action = action_text(data)
        episode = await self._started("step")
        result = await self._service.step(episode, self._num_rounds, action)
        self._num_rounds += 1
        self._is_over = result.is_last
        return {"type": "observation", "data": _step_outcome(result)}

    async def _state(self, data: _Fields) -> _Fields:
        state: _Fields = {"episode_id": None, "step_count": 0}
        if self._task is not None:
            state = {
                "episode_id": self._episode_id,
                "step_count": self._num_rounds,
                "is_over": self._is_over,
                "task": protocol.task_fields(self._task),
                "details": await self._service.details(await self._started("state")),
            }
        return {"type": "state", "data": state}

    async def _actions(self, data: _Fields) -> _Fields:
        actions = await self._service.available_actions(await self._started("actions"))
        return {"type": "actions", "data": {"actions": actions}}

    async def _started(self, what: str) -> str:
        if self._task is None:
            raise EpisodeStateError(f"{what} before reset")
        return await self._take_place()

    async def _take_place(self) -> str:
        """Return the id of the episode, opening one where there is none."""
        if self._place is None:
            self._place = asyncio.create_task(self._service.create())
        try:
            # A create that is cancelled half-way might keep its place forever, so it runs on and
            # `close` waits for it.
            return await asyncio.shield(self._place)
        except Exception:
            self._place = None
            raise

    async def close(self) -> None:
        """Give the place back, also in the middle of a call. Safe to repeat."""
        place, self._place, self._task = self._place, None, None
        if place is None:
            return
        try:
            await self._service.close(await place)
        except Exception as error:  # noqa: BLE001 - nobody is left to report it to
            logger.warning("the place of a session could not be given back: %s", error)


def action_text(data: Mapping[str, object]) -> str:
    """Return the action of a step: {"action": "look"}, or one level deeper as over HTTP."""
    action = data.get(ACTION_FIELD)
    if isinstance(action, dict):
        action = action.get(ACTION_FIELD)
    if not isinstance(action, str):
        raise wrong_type(f"a step needs {ACTION_FIELD!r}, a string")
    return action


def reset_outcome(observation: str, task: Task) -> _Fields:
    return _outcome(observation, {"task": protocol.task_fields(task)}, reward=None, is_done=False)


def _step_outcome(result: StepResult) -> _Fields:
    # All that our own protocol reports beside the observation and the reward.
    metadata = protocol.step_fields(result)
    del metadata["observation"], metadata["reward"]
    return _outcome(result.observation, metadata, reward=result.reward, is_done=result.is_last)


def _outcome(text: str, metadata: _Fields, *, reward: float | None, is_done: bool) -> _Fields:
    # The metadata twice: peers before 0.10 look inside the observation, later ones beside it.
    return {
        "observation": {TEXT_FIELD: text, "metadata": metadata},
        "reward": reward,
        "done": is_done,
        "metadata": metadata,
    }


def _error_frame(error: Exception, *, code: ErrorCode | None = None) -> bytes:
    kind, message = failure_of(error)
    code = code or CODES.get(kind, ErrorCode.EXECUTION_ERROR)
    data = {"message": message, "code": code, "kind": kind.type}
    return bodies.encode({"type": "error", "data": data})


def failure_of(error: Exception) -> tuple[ErrorKind, str]:
    """Return the kind of a failure and its message; a bug is logged, without details here."""
    if isinstance(error, ProtocolError):
        return error.kind, str(error)
    for cause, kind in KINDS.items():
        if isinstance(error, cause):
            return kind, str(error)
    logger.error("a call failed for a reason of the server's own", exc_info=error)
    return ErrorKind.INTERNAL, "the server failed; its log has the reason"
