"""The episodes of one environment as every dialect of a server sees them.

A dialect (app.py, compat/agentgym, compat/openenv) turns its own requests into these calls and the
answers and errors back into its own shapes. A backend plays the episodes: in this process, or in
worker processes.

What a call raises: `EnvBusyError` (no free place), `EnvGoneError` (no such episode any more),
`EnvTimeoutError`, `EnvError` (the environment failed; the episode is then gone),
`EpisodeStateError` (a step before the reset or after the end; the episode is as it was) and
`ProtocolError` (e.g. a wrong round).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.episode import EpisodeStateError
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.protocol import Answer, Call, ErrorKind, Object, Op, ProtocolError
from agentgym_rl.envs.service.server.backend import Backend
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.serving import bodies
from agentgym_rl.types import StepResult, Task

KINDS: Mapping[type[Exception], ErrorKind] = {
    EpisodeStateError: ErrorKind.WRONG_STATE,
    EnvBusyError: ErrorKind.BUSY,
    EnvGoneError: ErrorKind.GONE,
    EnvTimeoutError: ErrorKind.TIMEOUT,
    EnvError: ErrorKind.ENV_FAILED,
}
"""What a call raises, and the kind of failure it stands for; the base class comes last."""
_ERRORS = {kind.type: error for error, kind in KINDS.items()} | {
    ErrorKind.UNKNOWN_EPISODE.type: EnvGoneError
}


async def ask(backend: Backend, fields: Object) -> Answer:
    """Do one call and return its answer; the call's number is 0."""
    sink = _OneAnswer()
    backend.submit([{**fields, "call": 0}], sink)
    return protocol.decode_answer(await sink.line)


class EpisodeService:
    """Creates episodes and plays them. Episode ids are opaque and cannot be guessed."""

    def __init__(self, spec: EnvSpec, source: LocalEnvSource, backend: Backend) -> None:
        self.spec = spec
        self._source = source
        self._backend = backend

    async def tasks(self, split: str) -> tuple[Task, ...]:
        """Return every task of a split, in order. Raises ValueError for an unknown split."""
        return await self._source.tasks(split)

    async def create(self) -> str:
        """Take a place and return the id of its episode; a reset comes next."""
        return protocol.decode_episode(await self._ask(Call(0, Op.CREATE)))

    async def reset(self, episode: str, task: Task) -> str:
        return protocol.decode_observation(await self._ask(Call(0, Op.RESET, episode, task)))

    async def step(self, episode: str, round_index: int, action: str) -> StepResult:
        """Do round `round_index` (from 0 after each reset), or answer the latest one again."""
        call = Call(0, Op.STEP, episode, None, round_index, action)
        return protocol.decode_step_result(await self._ask(call))

    async def observation(self, episode: str) -> str:
        return protocol.decode_observation(await self._ask(Call(0, Op.OBSERVATION, episode)))

    async def available_actions(self, episode: str) -> tuple[str, ...]:
        return protocol.decode_actions(await self._ask(Call(0, Op.ACTIONS, episode)))

    async def details(self, episode: str) -> Mapping[str, JsonValue]:
        return protocol.decode_details(await self._ask(Call(0, Op.DETAILS, episode)))

    async def render(self, episode: str) -> bytes | None:
        return protocol.decode_image(await self._ask(Call(0, Op.IMAGE, episode)))

    async def close(self, episode: str) -> None:
        """Give the place back, also in the middle of a call. Safe to repeat, for any id."""
        await self._ask(Call(0, Op.CLOSE, episode))

    async def _ask(self, call: Call) -> Object:
        """Return the body of a good answer, or raise what the error stands for."""
        fields = protocol.call_fields(call)
        # A task must be plain JSON, as if it had come over the wire.
        answer = await ask(self._backend, bodies.load(bodies.encode(fields)))
        if answer.status < 300:
            return answer.body
        message = protocol.decode_error(answer.body)
        kind = answer.body["error"]["type"]
        if kind in _ERRORS:
            raise _ERRORS[kind](message)
        raise ProtocolError(next(k for k in ErrorKind if k.type == kind), message)


class _OneAnswer:
    """The sink of a single call."""

    def __init__(self) -> None:
        self.line: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def add(self, lines: bytes, num_answers: int = 1) -> None:
        if not self.line.done():  # who waited may have been cancelled
            self.line.set_result(lines)
