"""The client of any server that speaks OpenEnv's protocol: its environment becomes a scenario.

    source = OpenEnvSource("http://127.0.0.1:8000/openenv")     # ours: everything is exact
    source = OpenEnvSource("http://127.0.0.1:8001", options=OpenEnvOptions(max_rounds=10))

An episode is one WebSocket: when it is lost, the episode is gone. What a server of others leaves
open (which field is the text, what counts as success) is decided by `OpenEnvOptions`, in
mapping.py; tasks are in profile.py, sockets and deadlines in transport.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.compat.openenv.mapping import (
    BadActionError,
    OpenEnvOptions,
    is_over,
    observation_text,
    step_result,
    total_reward,
)
from agentgym_rl.envs.compat.openenv.profile import ServerProfile, describe
from agentgym_rl.envs.compat.openenv.protocol import ErrorCode
from agentgym_rl.envs.compat.openenv.transport import ErrorFrame, OpenEnvSocket, OpenEnvTransport
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.client.patience import OUTAGE_S
from agentgym_rl.envs.service.protocol import ErrorKind
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task


class OpenEnvSource(EnvSource):
    """Clients of the environment served at `url`. Belongs to the event loop of its first call.

    `env` names the environment of a server that is not ours, where its own name will not do.
    `timeout_s` is the deadline of each call; a server that cannot be reached is waited for up to
    `outage_s` when an episode is opened, and a moment while `has_others` says that there are other
    servers. Where the server has no task API, the tasks are seeds:
    `options` says how many.
    """

    def __init__(
        self,
        url: str,
        *,
        env: str | None = None,
        token: str | None = None,
        timeout_s: float = 60.0,
        outage_s: float = OUTAGE_S,
        has_others: Callable[[], bool] = lambda: False,
        options: OpenEnvOptions | None = None,
    ) -> None:
        self._transport = OpenEnvTransport(
            url, token=token, timeout_s=timeout_s, outage_s=outage_s, has_others=has_others
        )
        self._env = env
        self._options = options or OpenEnvOptions()
        self._profile: ServerProfile | None = None
        self._lock = asyncio.Lock()

    async def spec(self) -> EnvSpec:
        return (await self._described()).spec

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def _new_client(self) -> EnvClient:
        return OpenEnvClient(await self._described(), self._transport, self._options)

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        profile = await self._described()
        async with self._transport.calling("env server", "tasks"):
            return await profile.tasks(split, self._transport, self._options)

    async def _described(self) -> ServerProfile:
        async with self._lock:
            if self._profile is None:
                async with self._transport.calling("env server", "spec"):
                    self._profile = await describe(self._transport, self._env, self._options)
            return self._profile


class OpenEnvClient(EnvClient):
    """Plays one episode through a socket; made by `OpenEnvSource`."""

    def __init__(
        self, profile: ServerProfile, transport: OpenEnvTransport, options: OpenEnvOptions
    ) -> None:
        super().__init__(profile.spec.name)
        self._profile = profile
        self._transport = transport
        self._options = options
        self._socket: OpenEnvSocket | None = None
        self._observation = ""
        self._reward = 0.0
        """The reward of the latest outcome as the server gave it."""

    async def _do_create(self) -> None:
        self._socket = await self._transport.open(self.where)

    async def _do_reset(self, task: Task) -> str:
        async with self._calling_server("reset") as socket:
            outcome = await socket.exchange("reset", self._profile.reset_data(task))
            if is_over(outcome):
                raise EnvError("the server ended the episode with the reset")
            self._observation = observation_text(outcome, self._options.observation_field)
            self._reward = total_reward(outcome)
        return self._observation

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        try:
            data = self._profile.action.encode(action)
        except BadActionError as error:
            return self._refused(str(error))
        async with self._calling_server("step") as socket:
            try:
                outcome = await socket.exchange("step", data)
            except ErrorFrame as frame:
                if frame.kind is not None or frame.code != ErrorCode.VALIDATION_ERROR:
                    raise
                # Another server's way to say that the agent's action does not fit its schema.
                return self._refused(f"{frame}: {frame.details}")
            result = step_result(outcome, self._options, reward_before=self._reward)
            self._reward = total_reward(outcome)
            self._observation = result.observation
        return result

    async def _do_observation(self) -> str:
        return self._observation

    async def _do_available_actions(self) -> tuple[str, ...]:
        if not self._profile.is_ours:
            return ()
        async with self._calling_server("available_actions") as socket:
            return protocol.decode_actions(await socket.exchange("actions"))

    async def _do_details(self) -> Mapping[str, JsonValue]:
        async with self._calling_server("details") as socket:
            state = await socket.exchange("state")
        return state.get("details", {}) if self._profile.is_ours else state

    async def _do_close(self) -> None:
        if self._socket is not None:
            await self._socket.close()

    @asynccontextmanager
    async def _calling_server(self, what: str) -> AsyncIterator[OpenEnvSocket]:
        """Give the socket for one call, with its deadline; failures become ours."""
        assert self._socket is not None, "create comes first"
        async with self._transport.calling(self.where, what):
            try:
                yield self._socket
            except ErrorFrame as frame:
                is_gone = frame.kind is None and frame.code == ErrorCode.SESSION_ERROR
                kind = EnvGoneError if is_gone else _ERRORS.get(frame.kind or "", EnvError)
                raise kind(str(frame)) from frame

    def _refused(self, message: str) -> StepResult:
        self._observation = message
        return StepResult(message, valid_action=False)


_ERRORS: Mapping[str, type[EnvError]] = {
    ErrorKind.GONE.type: EnvGoneError,
    ErrorKind.TIMEOUT.type: EnvTimeoutError,
}
