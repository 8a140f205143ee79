"""The client of an environment in this process: each episode on a daemon thread of its own.

The server (envs/server) holds these clients too, so a remote episode runs exactly as a local one.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping
from typing import TypeVar, TypeVarTuple

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.envs.client.base import EnvClient, EnvSource, without_surrogates
from agentgym_rl.envs.worker_thread import (
    CallAbandonedError,
    CallExpiredError,
    CallFailedError,
    WorkerThread,
)
from agentgym_rl.errors import EnvError, EnvGoneError, EnvTimeoutError
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_CLOSE_TIMEOUT_S = 5.0
_episode_numbers = itertools.count(1)


class LocalEnvClient(EnvClient):
    """Plays one environment object, made on first use by `factory` on the episode's own thread.

    A call that passes `timeout_s` raises `EnvTimeoutError` and leaves the object and its thread
    behind: the environment is closed when the call returns, if ever.
    """

    def __init__(self, env: str, factory: Callable[[], Environment], *, timeout_s: float) -> None:
        super().__init__(env)
        self._factory = factory
        self._timeout_s = timeout_s
        self._thread = WorkerThread(f"env-{env}-{next(_episode_numbers)}")
        self._environment: Environment | None = None
        self._observation = ""

    @property
    def is_left_behind(self) -> bool:
        """Whether the thread is still inside a call although the client is closed or spent."""
        return self._is_finished and self._thread.is_busy

    async def _do_create(self) -> None:
        await self._on_thread("create", self._build)

    async def _do_reset(self, task: Task) -> str:
        self._observation = await self._on_thread("reset", self._reset, task)
        return self._observation

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        result = await self._on_thread("step", self._step, action)
        self._observation = result.observation
        return result

    async def _do_observation(self) -> str:
        return self._observation

    async def _do_available_actions(self) -> tuple[str, ...]:
        return await self._on_thread("available_actions", self._available_actions)

    async def _do_close(self) -> None:
        if not (self._thread.is_busy or self._thread.is_stopped):
            try:
                await self._thread.call(self._close_environment, timeout_s=_CLOSE_TIMEOUT_S)
            except (CallFailedError, CallExpiredError, CallAbandonedError) as error:
                logger.warning("%s: close failed: %s", self.where, error)
        self._thread.stop(self._close_environment)

    async def _on_thread(self, what: str, fn: Callable[[*_Ts], _T], *args: *_Ts) -> _T:
        """Call on the episode's thread, turning each kind of failure into our own."""
        try:
            return await self._thread.call(fn, *args, timeout_s=self._timeout_s)
        except CallExpiredError:
            self._thread.stop(self._close_environment)
            raise EnvTimeoutError(
                f"{self.where}: {what} passed its deadline of {self._timeout_s:g} s"
            ) from None
        except CallAbandonedError as error:
            raise EnvGoneError(f"{self.where}: {what} on a closed client") from error
        except CallFailedError as error:
            self._thread.stop(self._close_environment)
            raise EnvError(f"{self.where}: {what} raised {error}") from error.cause

    # What follows runs on the thread.

    def _build(self) -> None:
        self._environment = self._factory()

    def _reset(self, task: Task) -> str:
        return _checked_text(self._playing().reset(task), "the observation of reset")

    def _step(self, action: str) -> StepResult:
        return _checked_result(self._playing().step(action))

    def _available_actions(self) -> tuple[str, ...]:
        actions = self._playing().available_actions()
        return tuple(_checked_text(action, "an available action") for action in actions)

    def _playing(self) -> Environment:
        assert self._environment is not None, "create comes first"
        return self._environment

    def _close_environment(self) -> None:
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()


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
        self._class = registry.env_class(env) if isinstance(env, str) else env
        self._options = dict(options or {})
        registry.check_options(self._class, self._options)
        self._timeout_s = timeout_s

    async def spec(self) -> EnvSpec:
        return self._class.spec

    async def aclose(self) -> None:
        """Nothing to give back: every client holds its own thread."""

    def new_client(self) -> LocalEnvClient:
        """Return a client that has no environment object yet; its `create` makes it."""
        return LocalEnvClient(
            self._class.spec.name,
            lambda: registry.construct(self._class, self._options),
            timeout_s=self._timeout_s,
        )

    async def _new_client(self) -> EnvClient:
        return self.new_client()

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        name = self._class.spec.name
        thread = WorkerThread(f"env-{name}-tasks")  # a first call may read large files
        try:
            return tuple(await thread.call(self._class.tasks, split, timeout_s=self._timeout_s))
        except CallExpiredError:
            message = f"env {name}: tasks passed its deadline of {self._timeout_s:g} s"
            raise EnvTimeoutError(message) from None
        except CallFailedError as error:
            raise EnvError(f"env {name}: tasks({split!r}) raised {error}") from error.cause
        finally:
            thread.stop()


def _checked_text(value: object, what: str) -> str:
    """Return `value` as plain text that UTF-8 can carry, or raise TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be str, not {type(value).__name__}")
    return without_surrogates(value)


def _checked_result(result: object) -> StepResult:
    """Return `result` in plain types, or raise: what JSON cannot carry must fail here as well."""
    if not isinstance(result, StepResult):
        raise TypeError(f"step must return StepResult, not {type(result).__name__}")
    for name in ("terminated", "truncated", "success", "valid_action"):
        flag = getattr(result, name)  # the four flags are checked alike
        if not isinstance(flag, bool):
            raise TypeError(f"StepResult.{name} must be bool, not {type(flag).__name__}")
    reward = float(result.reward)
    if not math.isfinite(reward):
        raise ValueError(f"StepResult.reward must be finite, not {reward}")
    return StepResult(
        observation=_checked_text(result.observation, "StepResult.observation"),
        reward=reward,
        terminated=result.terminated,
        truncated=result.truncated,
        success=result.success,
        valid_action=result.valid_action,
    )
