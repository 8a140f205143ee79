"""One demonstration, and how one environment object gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.execution.guarded import (
    BlockingCaller,
    CallTimeoutError,
    GuardedEnvironment,
)
from agentgym_rl.errors import EnvError
from agentgym_rl.types import Task


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A solved task: the observation before each action, what the expert thinks, the action."""

    task: Task
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    thoughts: tuple[str, ...] = ()
    """One per action, empty where the expert gives no reason; or none at all."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a task; without a demonstration or an error the expert did not solve it."""

    demo: Demonstration | None = None
    error: Exception | None = None
    """Why the environment broke; a CallTimeoutError where it hangs."""


def demonstrate(
    env: Environment | GuardedEnvironment, task: Task, *, max_rounds: int
) -> Demonstration | None:
    """Return how the expert solves the task; None where it does not within `max_rounds`."""
    observations, actions, thoughts = [env.reset(task)], list[str](), list[str]()
    while len(actions) < max_rounds:
        action = env.expert_action()
        if action is None:
            return None
        actions.append(action)
        thoughts.append(env.expert_thought() or "")
        result = env.step(action)
        if result.success:
            told = tuple(env.expert_hindsight() or thoughts)
            if len(told) != len(actions):
                raise ValueError(
                    f"expert_hindsight gave {len(told)} thoughts of {len(actions)} actions"
                )
            reasons = told if any(told) else ()
            return Demonstration(task, tuple(observations), tuple(actions), reasons)
        if result.is_last:
            return None
        observations.append(result.observation)
    return None


class LocalExpert:
    """The expert of one environment object, which another one replaces when it hangs."""

    def __init__(
        self, make: Callable[[], Environment], *, max_rounds: int, call_timeout_s: float
    ) -> None:
        self._make, self._max_rounds = make, max_rounds
        self._caller = BlockingCaller(call_timeout_s)
        self._env = GuardedEnvironment(make, self._caller)

    def ask(self, task: Task) -> Outcome:
        """Return what comes of a task. Raises only where no other environment can be made."""
        try:
            return Outcome(demonstrate(self._env, task, max_rounds=self._max_rounds))
        except CallTimeoutError as error:
            self._env = GuardedEnvironment(self._make, self._caller)
            return Outcome(error=error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - one broken task ends no run
            return Outcome(error=EnvError(repr(error)) if isinstance(error, SystemExit) else error)

    def close(self) -> None:
        self._env.close()
        self._caller.close()
