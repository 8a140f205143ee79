"""The client of an environment server (envs/server) over HTTP.

All clients of a source share their connections and, unless told otherwise, their requests
(senders.py). A call is repeated after a failure on the way only if that cannot do it twice: a step
carries its round number and a reset starts anew, so both are safe; a create is repeated only if it
never reached the server. Everything is bounded by the call's deadline.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import aiohttp

from agentgym_rl.envs import protocol
from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.client.base import EnvClient, EnvSource
from agentgym_rl.envs.client.connections import Connections
from agentgym_rl.envs.client.senders import BatchSender, RouteSender, Sender, request
from agentgym_rl.envs.protocol import Answer, Call, Health, Object, Op, ProtocolError
from agentgym_rl.errors import EnvBusyError, EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_PAUSE_S = 0.1
"""Doubled with each repeat: five of them take three to five seconds."""
_MAX_REPEATS = 5
_BUSY_PAUSE_S = 1.0
_CLOSE_TIMEOUT_S = 5.0


class HttpEnvSource(EnvSource):
    """Clients of the environment served at `url`. Belongs to the event loop of its first call.

    `timeout_s` is the deadline of each call, repeats included; the server has one of its own.
    Without `is_batched` every call is a request of its own, and `max_connections` should reach
    the number of episodes that run at a time.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        max_connections: int = 256,
        is_batched: bool = True,
    ) -> None:
        self._connections = Connections(url, token=token, max_connections=max_connections)
        sender = BatchSender if is_batched else RouteSender
        self._line = _Line(self._connections, sender(self._connections), timeout_s)
        self._spec: EnvSpec | None = None
        self._spec_lock = asyncio.Lock()

    async def spec(self) -> EnvSpec:
        async with self._spec_lock:
            if self._spec is None:
                self._spec = await self._line.get("/spec", protocol.decode_spec)
            return self._spec

    async def health(self) -> Health:
        """Return the state of the server."""
        return await self._line.get("/health", protocol.decode_health)

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def _new_client(self) -> EnvClient:
        return HttpEnvClient((await self.spec()).name, self._line)

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        return await self._line.get(f"/tasks?split={quote(split)}", protocol.decode_tasks)


class HttpEnvClient(EnvClient):
    """Plays one episode on a server; made by `HttpEnvSource`."""

    def __init__(self, env: str, line: _Line) -> None:
        super().__init__(env)
        self._line = line
        self._episode = ""

    async def _do_create(self) -> None:
        self._episode = await self._ask(Call(0, Op.CREATE), protocol.decode_episode)

    async def _do_reset(self, task: Task) -> str:
        call = Call(0, Op.RESET, self._episode, task)
        return await self._ask(call, protocol.decode_observation)

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        call = Call(0, Op.STEP, self._episode, None, round_index, action)
        return await self._ask(call, protocol.decode_step_result)

    async def _do_observation(self) -> str:
        call = Call(0, Op.OBSERVATION, self._episode)
        return await self._ask(call, protocol.decode_observation)

    async def _do_available_actions(self) -> tuple[str, ...]:
        return await self._ask(Call(0, Op.ACTIONS, self._episode), protocol.decode_actions)

    async def _do_details(self) -> Mapping[str, JsonValue]:
        return await self._ask(Call(0, Op.DETAILS, self._episode), protocol.decode_details)

    async def _do_close(self) -> None:
        if not self._episode:  # the create failed or was cancelled: the lease will run out
            return
        try:
            # One repeat, for a connection that went stale; beyond it the server's lease sees to it.
            await self._line.ask(
                Call(0, Op.CLOSE, self._episode),
                lambda body: None,
                self,
                timeout_s=_CLOSE_TIMEOUT_S,
                max_repeats=1,
            )
        except EnvError as error:
            logger.warning("the server will reap the episode, because close failed: %s", error)

    async def _ask(self, call: Call, decode: Callable[[Object], _T]) -> _T:
        return await self._line.ask(call, decode, self)


class _Line:
    """Calls to one server: deadline, repeats, and statuses turned into errors."""

    def __init__(self, connections: Connections, sender: Sender, timeout_s: float) -> None:
        self._connections = connections
        self._sender = sender
        self._timeout_s = timeout_s

    async def ask(
        self,
        call: Call,
        decode: Callable[[Object], _T],
        client: EnvClient,
        *,
        timeout_s: float = float("inf"),
        max_repeats: int = _MAX_REPEATS,
    ) -> _T:
        """Return the decoded answer to a client's call, or raise one of the EnvErrors."""
        timeout_s = min(timeout_s, self._timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                body = await self._answer(
                    partial(self._sender.send, call),
                    timeout_s,
                    is_repeatable=call.op is not Op.CREATE,
                    max_repeats=max_repeats,
                )
            return decode(body)
        except (TimeoutError, ProtocolError, _RefusedError, *_TRANSPORT_ERRORS) as error:
            raise self._told(error, client.where, call.op, timeout_s) from error

    async def get(self, path: str, decode: Callable[[Object], _T]) -> _T:
        """Return the decoded answer to a request that is of no episode."""
        try:
            async with asyncio.timeout(self._timeout_s):
                send = partial(request, self._connections, "GET", path)
                return decode(await self._answer(send, self._timeout_s))
        except (TimeoutError, ProtocolError, _RefusedError, *_TRANSPORT_ERRORS) as error:
            raise self._told(error, "env server", path, self._timeout_s) from error

    async def _answer(
        self,
        send: Callable[[], Awaitable[Answer]],
        timeout_s: float,
        *,
        is_repeatable: bool = True,
        max_repeats: int = _MAX_REPEATS,
    ) -> Object:
        """Send a call, again where that cannot do it twice; return the body of a good answer."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        num_repeats = 0
        while True:
            try:
                answer = await send()
            except _TRANSPORT_ERRORS as error:
                never_arrived = isinstance(
                    error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
                )
                if num_repeats == max_repeats or not (never_arrived or is_repeatable):
                    raise
                pause_s = _FIRST_PAUSE_S * 2**num_repeats
                num_repeats += 1
            else:
                if answer.status < HTTPStatus.MULTIPLE_CHOICES:
                    return answer.body
                pause_s = _BUSY_PAUSE_S
                is_late = asyncio.get_running_loop().time() + 1.5 * pause_s > deadline
                if answer.status != HTTPStatus.TOO_MANY_REQUESTS or is_late:
                    raise _RefusedError(answer)
            # Jitter, so that episodes that failed together do not come back together.
            await asyncio.sleep(pause_s * random.uniform(1.0, 1.5))

    def _told(self, error: Exception, where: str, what: str, timeout_s: float) -> EnvError:
        """Return our own error for what went wrong, with the place where it did."""
        place = f"{where}: {what} at {self._connections.url}"
        if isinstance(error, _RefusedError):
            kind = _ERRORS.get(error.answer.status, EnvError)
            message = protocol.decode_error(error.answer.body)
            if message.startswith(where):  # the environment's own failure, told in full
                return kind(message)
            return kind(f"{place}: HTTP {error.answer.status}: {message}")
        if isinstance(error, ProtocolError):
            return EnvError(f"{place}: unexpected answer: {error}")
        if isinstance(error, _TRANSPORT_ERRORS) and type(error) is not TimeoutError:
            return EnvError(f"{place}: {type(error).__name__}: {error}")
        return EnvTimeoutError(f"{place}: passed its deadline of {timeout_s:g} s")


class _RefusedError(Exception):
    """The server answered with a status that is not a success."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


_TRANSPORT_ERRORS = (aiohttp.ClientError, OSError)
_ERRORS: Mapping[int, type[EnvError]] = {
    HTTPStatus.GONE: EnvGoneError,
    HTTPStatus.TOO_MANY_REQUESTS: EnvBusyError,
    HTTPStatus.GATEWAY_TIMEOUT: EnvTimeoutError,
}
