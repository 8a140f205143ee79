"""The client of an environment server (service/server) over HTTP.

All clients of a source share their connections and requests (batches.py). No call can be done
twice: a step carries its round number, a create a key, and a reset starts anew. So each is sent
again while the server cannot be reached (patience.py).

A server that was restarted knows none of its episodes. The client then plays its episode there once
more, with the actions it has sent so far, and compares what comes back: the contract of
environments promises the same. Whoever plays the episode notices nothing but the time.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import aiohttp

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.client.batches import BatchSender, get
from agentgym_rl.envs.service.client.connections import ERRORS, MAX_CONNECTIONS, Connections
from agentgym_rl.envs.service.client.patience import OUTAGE_S, Outages, Tries
from agentgym_rl.envs.service.protocol import (
    Answer,
    Call,
    ErrorKind,
    Health,
    Object,
    Op,
    ProtocolError,
)
from agentgym_rl.errors import (
    EnvAwayError,
    EnvBusyError,
    EnvError,
    EnvGoneError,
    EnvTimeoutError,
)
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_SHORT_TIMEOUT_S = 5.0
_SHORT_OUTAGE_S = 1.0
"""For calls that need not outlast a restart: what they ask or end is over with the server."""
_AWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)
"""What stands in front of a server says so while that is away."""


class HttpEnvSource(EnvSource):
    """Clients of the environment served at `url`. Belongs to the event loop of its first call.

    `timeout_s` is how long an answer may take; the server has its own deadline. A server that
    cannot be reached is waited for up to `outage_s`, less at the first contact, and a moment while
    `has_others` says that other servers have the same environment.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        outage_s: float = OUTAGE_S,
        has_others: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connections = Connections(url, token=token, max_connections=MAX_CONNECTIONS)
        outages = Outages(url, outage_s, has_others=has_others)
        self._calls = _ServerCalls(self._connections, outages, timeout_s)
        self._spec: EnvSpec | None = None
        self._spec_lock = asyncio.Lock()

    async def spec(self) -> EnvSpec:
        async with self._spec_lock:
            if self._spec is None:
                self._spec = await self._calls.get("/spec", protocol.decode_spec)
            return self._spec

    async def health(self) -> Health:
        return await self._calls.get("/health", protocol.decode_health, outage_s=_SHORT_OUTAGE_S)

    async def check(self) -> None:
        health = await self.health()
        if health.status == "draining" or health.num_episodes >= health.capacity:
            raise EnvBusyError(
                f"the server at {self._connections.url} takes no new episode: it is "
                f"{health.status} and has {health.num_episodes} of {health.capacity}"
            )

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def _new_client(self) -> EnvClient:
        return HttpEnvClient((await self.spec()).name, self._calls)

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        return await self._calls.get(f"/tasks?split={quote(split)}", protocol.decode_tasks)


class HttpEnvClient(EnvClient):
    """Plays one episode on a server; made by `HttpEnvSource`."""

    def __init__(self, env: str, line: _ServerCalls) -> None:
        super().__init__(env)
        self._calls = line
        self._episode = ""
        self._is_lost = False
        """Whether the server has forgotten the episode."""
        self._is_away = False
        """Whether the last call found no server."""
        self._first = ""
        self._played: list[tuple[str, StepResult]] | None = None
        """The actions of the episode and what came of them; None before its reset."""

    async def _do_create(self) -> None:
        # A key of its own each time: the place of an episode that is lost is not wanted back.
        call = Call(0, Op.CREATE, key=secrets.token_urlsafe(16))
        self._episode = await self._calls.ask(call, protocol.decode_episode, self)

    async def _do_reset(self, task: Task) -> str:
        self._played = None
        call = Call(0, Op.RESET, task=task)
        self._first = await self._ask(call, protocol.decode_observation)
        self._played = []
        return self._first

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        call = Call(0, Op.STEP, round_index=round_index, action=action)
        result = await self._ask(call, protocol.decode_step_result)
        assert self._played is not None, "a reset comes first"
        self._played.append((action, result))
        return result

    async def _do_observation(self) -> str:
        return await self._ask(Call(0, Op.OBSERVATION), protocol.decode_observation)

    async def _do_available_actions(self) -> tuple[str, ...]:
        return await self._ask(Call(0, Op.ACTIONS), protocol.decode_actions)

    async def _do_details(self) -> Mapping[str, JsonValue]:
        return await self._ask(Call(0, Op.DETAILS), protocol.decode_details)

    async def _do_close(self) -> None:
        # The create failed or was cancelled, or the server is away: its lease ends the episode.
        if not self._episode or self._is_away:
            return
        try:
            # Not for long: after that the server's lease ends the episode.
            await self._calls.ask(
                Call(0, Op.CLOSE, self._episode),
                lambda body: None,
                self,
                timeout_s=_SHORT_TIMEOUT_S,
                outage_s=_SHORT_OUTAGE_S,
            )
        except EnvError as error:
            logger.warning("the server will reap the episode, because close failed: %s", error)

    async def _ask(self, call: Call, decode: Callable[[Object], _T]) -> _T:
        """Return the answer to a call of the episode, which is brought back where it is lost."""
        tries: Tries | None = None
        while True:
            try:
                if self._is_lost:
                    await self._bring_back()
                return await self._calls.ask(call._replace(episode=self._episode), decode, self)
            except _UnknownEpisodeError as error:
                self._is_lost = True
                tries = tries or self._calls.outages.tries()
                await tries.pause(error)
            except EnvAwayError:
                self._is_away = True
                raise

    async def _bring_back(self) -> None:
        """Take a new place and bring the episode to where it was."""
        await self._do_create()
        if self._played is not None:
            assert self.task is not None, "a reset comes first"
            reset = Call(0, Op.RESET, self._episode, self.task)
            first = await self._calls.ask(reset, protocol.decode_observation, self)
            self._compare(first == self._first, "the first observation")
            for index, (action, before) in enumerate(self._played):
                step = Call(0, Op.STEP, self._episode, None, index, action)
                result = await self._calls.ask(step, protocol.decode_step_result, self)
                self._compare(result == before, f"round {index}")
        self._is_lost = False

    def _compare(self, is_same: bool, what: str) -> None:
        if not is_same:
            raise EnvGoneError(
                f"{self.where}: the server was restarted, and {what} was another when the episode "
                "was played again: an environment must do the same for the same actions"
            )


class _ServerCalls:
    """Calls to one server: deadlines, repeats, and statuses turned into errors."""

    def __init__(self, connections: Connections, outages: Outages, timeout_s: float) -> None:
        self._connections = connections
        self._sender = BatchSender(connections)
        self.outages = outages
        self._timeout_s = timeout_s

    async def ask(
        self,
        call: Call,
        decode: Callable[[Object], _T],
        client: EnvClient,
        *,
        timeout_s: float = float("inf"),
        outage_s: float | None = None,
    ) -> _T:
        """Return the decoded answer to a client's call, or raise one of the EnvErrors."""
        timeout_s = min(timeout_s, self._timeout_s)
        try:
            return decode(await self._answer(partial(self._sender.send, call), timeout_s, outage_s))
        except (TimeoutError, ProtocolError, _RefusedError, *_TRANSPORT_ERRORS) as error:
            raise self._as_env_error(error, client.where, call.op, timeout_s) from error

    async def get(
        self, path: str, decode: Callable[[Object], _T], *, outage_s: float | None = None
    ) -> _T:
        """Return the decoded answer to a request that is of no episode."""
        try:
            send = partial(get, self._connections, path)
            return decode(await self._answer(send, self._timeout_s, outage_s))
        except (TimeoutError, ProtocolError, _RefusedError, *_TRANSPORT_ERRORS) as error:
            raise self._as_env_error(error, "env server", path, self._timeout_s) from error

    async def _answer(
        self, send: Callable[[], Awaitable[Answer]], timeout_s: float, outage_s: float | None
    ) -> Object:
        """Send a call until it is answered; return the body of a good answer."""

        async def send_unless_away() -> Answer:
            answer = await send()
            if answer.status in _AWAY:
                raise _RefusedError(answer)
            return answer

        answer = await self.outages.outlast(
            send_unless_away,
            is_away=self._is_away,
            is_busy=lambda answer: answer.status == HTTPStatus.TOO_MANY_REQUESTS,
            timeout_s=timeout_s,
            max_s=outage_s,
        )
        if answer.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _RefusedError(answer)
        return answer.body

    async def _is_away(self, error: Exception) -> bool:
        """Whether the server, not the call, is what an exception is about."""
        if type(error) is TimeoutError:
            return not await self._is_there()  # else the call only takes too long
        return isinstance(error, (_RefusedError, *_TRANSPORT_ERRORS))

    async def _is_there(self) -> bool:
        """Whether the server answers at all."""
        try:
            async with asyncio.timeout(_SHORT_TIMEOUT_S):
                return (await get(self._connections, "/health")).status not in _AWAY
        except (TimeoutError, ProtocolError, *_TRANSPORT_ERRORS):
            return False

    def _as_env_error(self, error: Exception, where: str, what: str, timeout_s: float) -> EnvError:
        """Return our own error for what went wrong, with the place where it did."""
        place = f"{where}: {what} at {self._connections.url}"
        if isinstance(error, _RefusedError):
            kind = _kind_of(error.answer)
            message = protocol.decode_error(error.answer.body)
            if error.answer.status in _AWAY:
                return EnvAwayError(f"{place}: HTTP {error.answer.status}: {message}")
            if message.startswith(where):  # the environment's own failure, reported in full
                return kind(message)
            return kind(f"{place}: HTTP {error.answer.status}: {message}")
        if isinstance(error, ProtocolError):
            return EnvError(f"{place}: unexpected answer: {error}")
        if isinstance(error, _TRANSPORT_ERRORS) and type(error) is not TimeoutError:
            return EnvAwayError(f"{place}: {type(error).__name__}: {error}")
        return EnvTimeoutError(f"{place}: passed its deadline of {timeout_s:g} s")


class _UnknownEpisodeError(EnvGoneError):
    """The server has never had the episode."""


class _RefusedError(Exception):
    """The server answered with a status that is not a success."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


_TRANSPORT_ERRORS = (aiohttp.ClientError, OSError)


def _kind_of(answer: Answer) -> type[EnvError]:
    """Return what a refusal is to us."""
    error = answer.body.get("error")
    if isinstance(error, dict) and error.get("type") == ErrorKind.UNKNOWN_EPISODE.type:
        return _UnknownEpisodeError
    return ERRORS.get(answer.status, EnvError)
