"""Expert demonstrations: an environment's own expert plays its tasks."""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.execution.guarded import (
    CALL_TIMEOUT_S,
    BlockingCaller,
    CallTimeoutError,
    GuardedEnvironment,
)
from agentgym_rl.errors import EnvError
from agentgym_rl.types import Task

logger = logging.getLogger(__name__)

_MAX_HANGS = 3
"""A task on which the environment hangs is left out; this many end the demonstrations."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A solved task: the observation before each action, what the expert thinks, the action."""

    task: Task
    observations: tuple[str, ...]
    actions: tuple[str, ...]
    thoughts: tuple[str, ...] = ()
    """One per action, empty where the expert gives no reason; or none at all."""


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
            reasons = tuple(thoughts) if any(thoughts) else ()
            return Demonstration(task, tuple(observations), tuple(actions), reasons)
        if result.is_last:
            return None
        observations.append(result.observation)
    return None


def collect_demonstrations(
    source: str | type[Environment],
    tasks: Sequence[Task],
    *,
    num_demos: int,
    max_rounds: int,
    options: Mapping[str, object] | None = None,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> Generator[Demonstration]:
    """Yield up to `num_demos` demonstrations of an environment's tasks, in their order.

    `source` is the environment's name or its class. Tasks that the expert does not solve, or on
    which a call takes longer than `call_timeout_s`, are left out and counted in the log. Raises
    CallTimeoutError when the environment hangs repeatedly, and EnvError when it fails on every
    task. A caller that may stop before the end closes the generator: the environment does not
    outlive the interpreter.
    """
    cls = registry.env_class(source) if isinstance(source, str) else source
    name, caller = cls.spec.name, BlockingCaller(call_timeout_s)
    chosen = dict(options or {})

    def make() -> Environment:
        return registry.construct(registry.configured(cls, chosen), chosen)

    env = GuardedEnvironment(make, caller)
    tally = _Tally(name)
    try:
        for task in tasks:
            if tally.num_found == num_demos:
                break
            demo = None
            try:
                demo = demonstrate(env, task, max_rounds=max_rounds)
            except CallTimeoutError as error:
                tally.num_hangs += 1
                logger.warning("%s: the demonstration failed: %s", task.id, error)
                if tally.num_hangs == _MAX_HANGS:
                    raise
                env = GuardedEnvironment(make, caller)
            except Exception as error:  # noqa: BLE001 - one broken task must not end a run
                logger.warning("%s: the demonstration failed: %r", task.id, error)
                tally.num_broken, tally.broken = tally.num_broken + 1, error
            if demo is None:
                tally.num_failed += 1
            else:
                tally.num_found += 1
                yield demo
    finally:
        env.close()
        caller.close()
    tally.report(num_demos)


@dataclass(slots=True)
class _Tally:
    """What became of the tasks of an environment."""

    env: str
    num_found: int = 0
    num_failed: int = 0
    """Tasks without a demonstration, whatever the reason."""
    num_hangs: int = 0
    num_broken: int = 0
    broken: Exception | None = None
    """The last error that the environment raised."""

    def report(self, num_wanted: int) -> None:
        """Log what is missing. Raises EnvError when the environment failed on every task."""
        num_tasks = self.num_found + self.num_failed
        if self.broken is not None and self.num_broken == num_tasks:
            raise EnvError(
                f"{self.env} failed in each of {num_tasks} demonstrations, "
                f"the last with {self.broken!r}"
            ) from self.broken
        if self.num_failed:
            logger.info(
                "%s: the expert did not solve %d of %d tasks", self.env, self.num_failed, num_tasks
            )
        if self.num_found < num_wanted:
            logger.warning(
                "%s: found only %d of %d demonstrations", self.env, self.num_found, num_wanted
            )
