"""An environment with a deadline on every call, for those who hold one without a server.

Calls run one after another on a daemon thread (runners.py). One that does not return in time raises
`CallTimeoutError`; its thread cannot be stopped and is left behind, and the environment with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from agentgym_rl.envs.base import Environment, JsonValue
from agentgym_rl.envs.execution.runners import QueuedCall, ThreadRunner
from agentgym_rl.errors import EnvTimeoutError
from agentgym_rl.types import StepResult, Task

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0
"""Default deadline of a call, that of the server."""


class CallTimeoutError(EnvTimeoutError):
    """A call did not return in time; what it was called on must not be used any more."""


class BlockingCaller:
    """Makes calls on one thread, each with a deadline. After a deadline passed, on a new one."""

    def __init__(self, call_timeout_s: float = CALL_TIMEOUT_S) -> None:
        if call_timeout_s <= 0:
            raise ValueError(f"call_timeout_s must be above 0, got {call_timeout_s:g}")
        self._timeout_s = call_timeout_s
        self._runner: ThreadRunner | None = None
        self.failed_call = ""
        """Name of the last call that raised."""

    def call(self, name: str, function: Callable[[], T]) -> T:
        """Return or raise what the function does; its name is for messages."""
        if self._runner is None:
            self._runner = ThreadRunner("env-guarded", loop=None)
        call: _BlockingCall[T] = _BlockingCall(function)
        self._runner.put([call])
        if not call.is_done.wait(self._timeout_s):
            self.close()
            raise CallTimeoutError(f"{name} did not return within {self._timeout_s:g} s")
        if call.error is not None:
            self.failed_call = name
            raise call.error
        return call.results[0]

    def close(self) -> None:
        """End the thread once its call returns. Safe to repeat."""
        if self._runner is not None:
            self._runner.stop()
            self._runner = None


class GuardedEnvironment:
    """The calls of one environment object, each with a deadline."""

    def __init__(self, make: Callable[[], Environment], caller: BlockingCaller) -> None:
        self._caller = caller
        self._is_lost = False
        self._env = caller.call("the constructor", make)

    def reset(self, task: Task) -> str:
        return self._call("reset", lambda: self._env.reset(task))

    def step(self, action: str) -> StepResult:
        return self._call("step", lambda: self._env.step(action))

    def available_actions(self) -> tuple[str, ...]:
        return self._call("available_actions", self._env.available_actions)

    def expert_action(self) -> str | None:
        return self._call("expert_action", self._env.expert_action)

    def expert_thought(self) -> str | None:
        return self._call("expert_thought", self._env.expert_thought)

    def expert_hindsight(self) -> Sequence[str] | None:
        return self._call("expert_hindsight", self._env.expert_hindsight)

    def details(self) -> Mapping[str, JsonValue]:
        return self._call("details", self._env.details)

    def render(self) -> bytes | None:
        return self._call("render", self._env.render)

    def close(self) -> None:
        """Close the environment, unless a call of it is still running."""
        if not self._is_lost:
            self._call("close", self._env.close)

    def _call(self, name: str, function: Callable[[], T]) -> T:
        try:
            return self._caller.call(name, function)
        except CallTimeoutError:
            self._is_lost = True
            raise


class _BlockingCall(QueuedCall, Generic[T]):
    """One call and what came of it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.results: list[T] = []
        """The one result, once there is one."""
        self.error: BaseException | None = None
        self.is_done = threading.Event()

    def run(self) -> None:
        try:
            self.results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised again where the call was made
            self.error = error

    def finish(self) -> None:
        self.is_done.set()
