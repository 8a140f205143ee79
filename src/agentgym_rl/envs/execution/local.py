"""The client of an environment in this process.

Each episode has a daemon thread of its own, or all share one where the environment only computes
(`Environment.shares_thread`).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.episode import EnvEpisode
from agentgym_rl.envs.execution.thread_calls import (
    CallAbandonedError,
    CallExpiredError,
    CallFailedError,
    CallThread,
    SharedThread,
    ThreadCaller,
)
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_CLOSE_TIMEOUT_S = 5.0
_episode_numbers = itertools.count(1)


class LocalEnvClient(EnvClient):
    """Plays one environment object, made on first use by `factory` on the episode's thread.

    A call that passes `timeout_s` raises `EnvTimeoutError` and leaves the object and its thread
    behind: the environment is closed when the call returns, if ever.
    """

    def __init__(
        self,
        env: str,
        factory: Callable[[], Environment],
        *,
        timeout_s: float,
        thread: SharedThread | None = None,
    ) -> None:
        """`thread` is one that other episodes use too; without it the episode gets its own."""
        super().__init__(env)
        self._episode = EnvEpisode(factory)
        self._timeout_s = timeout_s
        self._has_own_thread = thread is None
        self._calls = ThreadCaller(thread or CallThread(f"env-{env}-{next(_episode_numbers)}"))

    async def _do_create(self) -> None:
        await self._on_thread("create", self._episode.build)

    async def _do_reset(self, task: Task) -> str:
        return await self._on_thread("reset", self._episode.reset, task)

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        return await self._on_thread("step", self._episode.step, action)

    async def _do_observation(self) -> str:
        return self._episode.observation()

    async def _do_available_actions(self) -> tuple[str, ...]:
        return await self._on_thread("available_actions", self._episode.available_actions)

    async def _do_details(self) -> Mapping[str, JsonValue]:
        return await self._on_thread("details", self._episode.details)

    async def _do_render(self) -> bytes | None:
        return await self._on_thread("render", self._episode.render)

    async def _do_close(self) -> None:
        # On a shared thread whatever comes next finds the environment closed at any rate.
        if self._has_own_thread and not (self._calls.is_busy or self._calls.is_stopped):
            try:
                await self._calls.call(self._episode.close, timeout_s=_CLOSE_TIMEOUT_S)
            except (CallFailedError, CallExpiredError, CallAbandonedError) as error:
                logger.warning("%s: close failed: %s", self.where, error)
        self._calls.stop(self._episode.close)

    async def _on_thread(self, what: str, fn: Callable[[*_Ts], _T], *args: *_Ts) -> _T:
        """Call on the episode's thread; a failure leaves the episode behind."""
        try:
            with _failures(f"{self.where}: {what}", self._timeout_s):
                return await self._calls.call(fn, *args, timeout_s=self._timeout_s)
        except EnvError:
            self._calls.stop(self._episode.close)
            raise


class LocalEnvSource(EnvSource):
    """Clients of an environment in this process.

    `env` is a registered name, a "module:Class" string or the class itself; `options` go to its
    constructor. Raises ValueError for an unknown name or option.
    """

    def __init__(
        self,
        env: str | type[Environment],
        *,
        options: Mapping[str, object] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        cls = registry.env_class(env) if isinstance(env, str) else env
        self._options = dict(options or {})
        self.env_class = registry.configured(cls, self._options)
        self._timeout_s = timeout_s
        self._thread: SharedThread | None = None
        if self.env_class.shares_thread:
            self._thread = SharedThread(f"env-{self.env_class.spec.name}", timeout_s=timeout_s)

    async def spec(self) -> EnvSpec:
        return self.env_class.spec

    async def aclose(self) -> None:
        """End the thread that the clients share, if they do, after what it is doing."""
        if self._thread is not None:
            self._thread.stop()

    async def _new_client(self) -> EnvClient:
        return LocalEnvClient(
            self.env_class.spec.name,
            lambda: registry.construct(self.env_class, self._options),
            timeout_s=self._timeout_s,
            thread=self._thread,
        )

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        name = self.env_class.spec.name
        calls = ThreadCaller(CallThread(f"env-{name}-tasks"))  # a first call may read large files
        tasks = self.env_class.tasks
        try:
            with _failures(f"env {name}: tasks({split!r})", self._timeout_s):
                return tuple(await calls.call(tasks, split, timeout_s=self._timeout_s))
        finally:
            calls.stop()


@contextmanager
def _failures(what: str, timeout_s: float) -> Iterator[None]:
    """Turn each kind of failure of a call into ours."""
    try:
        yield
    except CallExpiredError:
        raise EnvTimeoutError(f"{what} passed its deadline of {timeout_s:g} s") from None
    except CallAbandonedError as error:
        raise EnvGoneError(f"{what} on a closed client") from error
    except CallFailedError as error:
        raise EnvError(f"{what} raised {error}") from error.cause
