"""Demonstrations of an environment's tasks (`collect_demonstrations`)."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.demos.demonstration import Demonstration, LocalExpert, Outcome
from agentgym_rl.envs.demos.processes import ExpertOrder, ExpertProcesses
from agentgym_rl.envs.execution.guarded import CALL_TIMEOUT_S, CallTimeoutError
from agentgym_rl.errors import EnvError
from agentgym_rl.types import Task

logger = logging.getLogger(__name__)

_MAX_HANGS = 3
"""A task on which the environment hangs is left out; this many end the demonstrations."""


def collect_demonstrations(
    source: str | type[Environment],
    tasks: Sequence[Task],
    *,
    num_demos: int,
    max_rounds: int,
    options: Mapping[str, object] | None = None,
    num_processes: int = 0,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> Generator[Demonstration]:
    """Yield up to `num_demos` demonstrations of an environment's tasks, in their order.

    `source` is the environment's name or its class; a class plays in this process, a name in
    `num_processes` of its own unless that is 0, with the same result. Tasks that the expert does
    not solve, or on which a call takes longer than `call_timeout_s`, are left out and counted in
    the log. Raises CallTimeoutError when the environment hangs repeatedly, and EnvError when it
    fails on every task. A caller that may stop before the end closes the generator: the
    environment does not outlive the interpreter.
    """
    cls = registry.env_class(source) if isinstance(source, str) else source
    chosen = dict(options or {})
    if isinstance(source, str) and num_processes:
        order = ExpertOrder(source, chosen, max_rounds, call_timeout_s)
        asked = _in_processes(order, tasks, min(num_processes, num_demos))
    else:
        made = registry.configured(cls, chosen)
        expert = LocalExpert(
            lambda: registry.construct(made, chosen),
            max_rounds=max_rounds,
            call_timeout_s=call_timeout_s,
        )
        asked = _here(expert, tasks)
    tally = _Tally(cls.spec.name)
    with asked as outcomes:
        for task, outcome in outcomes:
            tally.add(task, outcome)
            if outcome.demo is not None:
                yield outcome.demo
            if tally.num_found == num_demos:
                break
    tally.report(num_demos)


@contextmanager
def _here(expert: LocalExpert, tasks: Sequence[Task]) -> Generator[Iterator[tuple[Task, Outcome]]]:
    with closing(expert):
        yield ((task, expert.ask(task)) for task in tasks)


@contextmanager
def _in_processes(
    order: ExpertOrder, tasks: Sequence[Task], number: int
) -> Generator[Iterator[tuple[Task, Outcome]]]:
    with (
        closing(ExpertProcesses(order, number)) as experts,
        closing(experts.outcomes(tasks)) as outcomes,
    ):
        yield outcomes


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

    def add(self, task: Task, outcome: Outcome) -> None:
        """Count a task. Raises CallTimeoutError where the environment has hung too often."""
        self.num_found += outcome.demo is not None
        self.num_failed += outcome.demo is None
        match outcome.error:
            case None:
                return
            case CallTimeoutError():
                logger.warning("%s: the demonstration failed: %s", task.id, outcome.error)
                self.num_hangs += 1
                if self.num_hangs == _MAX_HANGS:
                    raise outcome.error
            case error:
                logger.warning("%s: the demonstration failed: %r", task.id, error)
                self.num_broken, self.broken = self.num_broken + 1, error

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
