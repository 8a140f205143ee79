"""The calls of a check: each with a deadline, every answer looked at, every exception a finding.

What is called in which order, and what is compared, is in checker.py.
"""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.envs.checking.laws import (
    Law,
    is_broken_details,
    is_broken_list,
    is_broken_picture,
    raising_law,
    result_problems,
)
from agentgym_rl.envs.checking.wrong_calls import wrong_calls
from agentgym_rl.envs.execution.guarded import BlockingCaller, CallTimeoutError, GuardedEnvironment
from agentgym_rl.types import StepResult, Task

GARBAGE = (
    "",
    " \t\n",
    "x" * 100_000,
    "\x00\x07\x1b[31m\x7f",
    "épée ☃ 漢字 \U0001f600 \u202ertl",
    "Thought: I should look around.\nAction:\nlook around",
    '{"name": "click", "arguments": {"id": 3}}',
    "<search>who wrote it</search>",
    "click [12]",
    "'; DROP TABLE tasks; --",
    "%s %n {0} {} \\",
    "((((([[[[[",
    "-1",
    "../../etc/passwd",
    "go to go to go to",
    "1 2 3 NaN inf",
)
_MAX_EXAMPLES = 2


@dataclass(slots=True)
class Findings:
    """Problems by law, so that one bug over a hundred tasks is one sentence with a count."""

    by_law: dict[Law, list[str]] = field(default_factory=dict)

    def add(self, law: Law, example: str) -> None:
        self.by_law.setdefault(law, []).append(example)

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for each broken law, which begins with its name."""
        return tuple(
            f"{law.title}: {law.value} Seen in {len(examples)} place(s), e.g. "
            f"{'; '.join(examples[:_MAX_EXAMPLES])}"
            for law, examples in self.by_law.items()
        )


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One episode as it went."""

    task: Task
    first: str
    actions: tuple[str, ...]
    results: tuple[StepResult, ...]

    def is_like(self, other: EpisodeRecord) -> bool:
        """Whether the other went the same way; a reward that is not a number equals itself."""
        return self == other or repr(self) == repr(other)


@dataclass(frozen=True, slots=True)
class Mixture:
    """How often an expert's, a listed or else a garbage action is taken."""

    expert: float
    listed: float


class UnplayableError(Exception):
    """The episode cannot continue; the finding is recorded."""


class HungError(Exception):
    """A call did not return, so no other can be trusted to; the finding is recorded."""


class Player:
    """Plays episodes of one class and records which laws its answers break."""

    def __init__(
        self,
        cls: type[Environment],
        options: Mapping[str, object],
        draw: random.Random,
        caller: BlockingCaller,
    ) -> None:
        self._class = cls
        self._options = options
        self._random = draw
        self._caller = caller
        spec = getattr(cls, "spec", None)  # a class of a user's may lack it
        wrong = wrong_calls(spec.tools) if isinstance(spec, EnvSpec) else ()
        self._garbage = itertools.cycle((*wrong, *GARBAGE))
        self.findings = Findings()
        self.first_exception = ""
        """Where the environment first raised something, and what; empty where it never did."""
        self.num_episodes = 0
        self.num_steps = 0

    @contextmanager
    def environment(self) -> Iterator[GuardedEnvironment]:
        """Give a new object, and close it twice, which must be harmless."""
        env = GuardedEnvironment(
            lambda: registry.construct(self._class, self._options), self._caller
        )
        try:
            yield env
        finally:
            env.close()
            env.close()

    @contextmanager
    def watching(self, what: str) -> Iterator[None]:
        """Turn an exception into a finding."""
        try:
            yield
        except UnplayableError:
            return
        except CallTimeoutError as error:
            self.findings.add(Law.CALLS_RETURN, f"{what}: {error}")
            raise HungError from error
        except HungError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what it raises is the finding
            self._note_exception(what, error)

    def list_tasks(self, split: str) -> list[Task]:
        return self._caller.call("tasks", lambda: list(self._class.tasks(split)))

    def play(
        self, env: GuardedEnvironment, task: Task, *, mixture: Mixture, max_rounds: int
    ) -> EpisodeRecord:
        """Play drawn actions until the end or the limit on rounds; look at it before and after."""
        first = self.reset(env, task)
        self._look(env, task)
        actions: list[str] = []
        results: list[StepResult] = []
        while len(actions) < max_rounds and not (results and results[-1].is_last):
            actions.append(self._choose(env, task, mixture))
            results.append(self.step(env, actions[-1], task, round_index=len(results)))
        self._look(env, task)
        return EpisodeRecord(task, first, tuple(actions), tuple(results))

    def replay(self, env: GuardedEnvironment, task: Task, actions: Sequence[str]) -> EpisodeRecord:
        """Play these actions without looking at anything else."""
        first = self.reset(env, task)
        results = [
            self.step(env, action, task, round_index=index) for index, action in enumerate(actions)
        ]
        return EpisodeRecord(task, first, tuple(actions), tuple(results))

    def reset(self, env: GuardedEnvironment, task: Task) -> str:
        self.num_episodes += 1
        observation = env.reset(task)
        if not isinstance(observation, str) or not observation.strip():
            self.findings.add(
                Law.STARTS_EVERY_TASK, f"task {task.id}: reset returned {observation!r:.60}"
            )
        return observation

    def step(
        self, env: GuardedEnvironment, action: str, task: Task, *, round_index: int
    ) -> StepResult:
        self.num_steps += 1
        where = f"task {task.id}, round {round_index}, action {action[:30]!r}"
        try:
            result = env.step(action)
        except CallTimeoutError:
            raise
        except (Exception, SystemExit) as error:
            self._note_exception(where, error)
            raise UnplayableError from error
        for law, problem in result_problems(result):
            self.findings.add(law, f"{where}: {problem}")
        if not isinstance(result, StepResult):
            raise UnplayableError
        return result

    def listed(self, env: GuardedEnvironment, task: Task) -> tuple[str, ...]:
        """Return the listed actions; empty where the list itself is wrong."""
        actions = env.available_actions()
        if is_broken_list(actions):
            self.findings.add(Law.LISTED_ACTIONS, f"task {task.id}: {actions!r:.60}")
            return ()
        return tuple(actions)

    def advised(self, env: GuardedEnvironment, task: Task) -> str | None:
        """Return the expert's action; None where it gives none that is a text."""
        action = env.expert_action()
        if action is not None and not isinstance(action, str):
            self.findings.add(Law.EXPERT_SOLVES, f"task {task.id}: it says {action!r:.60}")
            return None
        return action

    def _choose(self, env: GuardedEnvironment, task: Task, mixture: Mixture) -> str:
        draw = self._random.random()
        if draw < mixture.expert and (action := self.advised(env, task)) is not None:
            return action
        if draw < mixture.expert + mixture.listed and (listed := self.listed(env, task)):
            return self._random.choice(listed)
        return next(self._garbage)

    def _look(self, env: GuardedEnvironment, task: Task) -> None:
        """Look at what viewers are shown; a replay without it shows whether looking changed it."""
        details, picture = env.details(), env.render()
        if is_broken_details(details):
            self.findings.add(Law.PLAIN_DETAILS, f"task {task.id}: {str(details)[:200]}")
        if is_broken_picture(picture):
            self.findings.add(Law.PICTURE_OR_NOTHING, f"task {task.id}: {str(picture)[:60]}")

    def _note_exception(self, where: str, error: BaseException) -> None:
        call = self._caller.failed_call
        raised = f"{type(error).__name__}: {str(error)[:200]}{_place_of(error)}"
        finding = f"{where}: {call} raised {raised}"
        self.first_exception = self.first_exception or finding
        self.findings.add(raising_law(call), finding)


def _place_of(error: BaseException) -> str:
    """Return where in the author's code it was raised, e.g. " (chess.py, line 12)"."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
