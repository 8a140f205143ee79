"""The contract of envs/base.py as a test that any environment can be put through.

`check("babyai")` plays many tasks with a seeded mixture of expert, listed and garbage actions,
plays the same actions again (same object, fresh object, interleaved with another task), and
reports what broke as sentences with a remedy. It never raises for what an environment does, and
every call has a deadline: an environment that hangs ends the check with a finding.
"""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.guarded import (
    CALL_TIMEOUT_S,
    CallThread,
    CallTimeoutError,
    GuardedEnvironment,
)
from agentgym_rl.envs.laws import (
    details_problems,
    raising_law,
    render_problems,
    result_problems,
    spec_problems,
)
from agentgym_rl.types import StepResult, Task

_GARBAGE = (
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
_MAX_PLAYED_ROUNDS = 12
_MAX_LISTED_ACTIONS = 5
_MAX_EXAMPLES = 2
_EXPERT_PATIENCE = 10
"""Times spec.max_rounds. A slow expert shows in its success rate; one that never ends is broken."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found. `problems` are sentences; empty means that the contract holds."""

    env: str
    problems: tuple[str, ...]
    num_tasks: int
    """Tasks that were played."""
    num_episodes: int
    num_steps: int
    num_expert_episodes: int
    """Episodes that an expert played from the start; 0 where there is no expert."""
    num_expert_successes: int
    """Those that it solved within `spec.max_rounds`."""

    @property
    def is_ok(self) -> bool:
        return not self.problems

    @property
    def expert_success_rate(self) -> float | None:
        """The share of tasks that the expert solved within `spec.max_rounds`; None without one."""
        if not self.num_expert_episodes:
            return None
        return self.num_expert_successes / self.num_expert_episodes


def check(
    env: str | type[Environment],
    *,
    options: Mapping[str, object] | None = None,
    tasks_per_split: int = 20,
    seed: int = 0,
    call_timeout_s: float = CALL_TIMEOUT_S,
) -> CheckReport:
    """Check an environment, given by name, "module:Class" or class, over tasks of every split.

    A call that takes longer than `call_timeout_s` is a finding and ends the check.
    """
    cls = registry.env_class(env) if isinstance(env, str) else env
    cls = registry.configured(cls, options or {})
    thread = CallThread(call_timeout_s)
    try:
        return _Checker(cls, dict(options or {}), seed, thread).run(tasks_per_split)
    finally:
        thread.close()


@dataclass(slots=True)
class _Findings:
    """Problems by law, so that one bug over a hundred tasks is one sentence with a count."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, law: str, example: str) -> None:
        self.counts[law] = self.counts.get(law, 0) + 1
        examples = self.examples.setdefault(law, [])
        if len(examples) < _MAX_EXAMPLES:
            examples.append(example)

    def sentences(self) -> tuple[str, ...]:
        return tuple(
            f"{law} Seen in {count} place(s), e.g. {'; '.join(self.examples[law])}"
            for law, count in self.counts.items()
        )


@dataclass(frozen=True, slots=True)
class _Transcript:
    """One episode as it went."""

    task: Task
    first: str
    actions: tuple[str, ...]
    results: tuple[StepResult, ...]


class _UnplayableError(Exception):
    """The finding is noted, and the episode cannot go on."""


class _HungError(Exception):
    """The finding is noted, and nothing more of the environment can be trusted to return."""


class _Checker:
    def __init__(
        self, cls: type[Environment], options: dict[str, object], seed: int, thread: CallThread
    ) -> None:
        self._class = cls
        self._thread = thread
        self._options = options
        self._random = random.Random(seed)
        self._garbage = itertools.cycle(_GARBAGE)
        self._findings = _Findings()
        self._num_tasks = 0
        self._num_episodes = 0
        self._num_steps = 0
        self._num_expert_episodes = 0
        self._num_expert_successes = 0

    def run(self, tasks_per_split: int) -> CheckReport:
        spec = self._class.spec
        for law, example in spec_problems(spec):
            self._findings.add(law, example)
        with suppress(_HungError):
            self._check_all(tasks_per_split)
        return CheckReport(
            env=spec.name,
            problems=self._findings.sentences(),
            num_tasks=self._num_tasks,
            num_episodes=self._num_episodes,
            num_steps=self._num_steps,
            num_expert_episodes=self._num_expert_episodes,
            num_expert_successes=self._num_expert_successes,
        )

    def _check_all(self, tasks_per_split: int) -> None:
        transcripts: list[_Transcript] = []
        for task in self._sample_tasks(tasks_per_split):
            self._num_tasks += 1
            transcript = self._check_task(task)
            if transcript is not None:
                transcripts.append(transcript)
        for one, other in itertools.pairwise(transcripts):
            with self._watching(f"{one.task.id} interleaved with {other.task.id}"):
                self._check_isolation(one, other)

    # Tasks

    def _sample_tasks(self, tasks_per_split: int) -> list[Task]:
        """Check the lists of tasks and draw from each."""
        sampled: list[Task] = []
        seen: dict[int, str] = {}
        for split in self._class.spec.splits:
            with self._watching(f"tasks({split!r})"):
                tasks = self._list_tasks(split)
                if self._list_tasks(split) != tasks:
                    self._findings.add(
                        "tasks() must give the same list every time: sort what it reads.", split
                    )
                self._check_tasks(split, tasks, seen)
                sampled += self._random.sample(tasks, min(tasks_per_split, len(tasks)))
        return sampled

    def _list_tasks(self, split: str) -> list[Task]:
        return self._thread.call("tasks", lambda: list(self._class.tasks(split)))

    def _check_tasks(self, split: str, tasks: Sequence[Task], seen: dict[int, str]) -> None:
        spec = self._class.spec
        if not tasks:
            self._findings.add("A split that spec declares must have tasks: drop it.", split)
        for task in tasks:
            if (task.env, task.split) != (spec.name, split):
                self._findings.add(
                    "A task must carry spec.name and the split it was listed under.", repr(task)
                )
            if task.category not in spec.categories:
                self._findings.add("Every category must be in spec.categories: add it.", repr(task))
            if task.index in seen:
                self._findings.add(
                    "Task.index must be unique over all splits: number on across them.",
                    f"{task.id} in {seen[task.index]!r} and {split!r}",
                )
            seen[task.index] = split

    # Episodes

    def _check_task(self, task: Task) -> _Transcript | None:
        """Check everything that concerns one task; None when it could not be played."""
        transcript: _Transcript | None = None
        with self._watching(f"task {task.id}"), self._environment() as env:
            transcript = self._play(env, task)
            self._check_rewards(transcript)
            self._check_replay(env, transcript, "on the same object, after the episode")
        if transcript is None:
            return None
        with self._watching(f"task {task.id} on a second object"), self._environment() as env:
            self._check_replay(env, transcript, "on a second object")
            self._check_listed_actions(env, transcript)
        with self._watching(f"task {task.id} played by the expert"), self._environment() as env:
            self._check_expert(env, task)
        return transcript

    def _play(self, env: GuardedEnvironment, task: Task) -> _Transcript:
        """Play mixed actions until the end or a few rounds."""
        first = self._reset(env, task)
        self._check_views(env, task)
        actions: list[str] = []
        results: list[StepResult] = []
        while len(actions) < _MAX_PLAYED_ROUNDS and not (results and results[-1].is_last):
            actions.append(self._choose(env))
            results.append(self._step(env, actions[-1], task))
        self._check_views(env, task)
        return _Transcript(task, first, tuple(actions), tuple(results))

    def _choose(self, env: GuardedEnvironment) -> str:
        draw = self._random.random()
        if draw < 0.4 and (action := env.expert_action()) is not None:
            return action
        if draw < 0.7 and (listed := env.available_actions()):
            return self._random.choice(listed)
        return next(self._garbage)

    def _check_views(self, env: GuardedEnvironment, task: Task) -> None:
        """Look at what viewers are shown; a replay without it finds out if looking changes it."""
        details, picture = env.details(), env.render()
        for law in details_problems(details):
            self._findings.add(law, f"task {task.id}: {str(details)[:200]}")
        for law in render_problems(picture):
            self._findings.add(law, f"task {task.id}: {str(picture)[:60]}")

    def _check_rewards(self, transcript: _Transcript) -> None:
        low, high = self._class.spec.reward_range
        total = sum(result.reward for result in transcript.results)
        if not low - 1e-6 <= total <= high + 1e-6:
            self._findings.add(
                "The rewards of an episode must sum to a value in spec.reward_range: widen it.",
                f"task {transcript.task.id}: {total:g} is not in [{low:g}, {high:g}]",
            )

    def _check_replay(self, env: GuardedEnvironment, transcript: _Transcript, how: str) -> None:
        """Play the same actions again and compare."""
        law = (
            "The same task and actions must give the same results: draw from "
            "random.Random(task.seed), never iterate over a set, keep nothing from the last "
            "episode, and let available_actions, expert_action, details and render change nothing."
        )
        first = self._reset(env, transcript.task)
        if first != transcript.first:
            self._findings.add(law, f"task {transcript.task.id}, first observation, {how}")
            return
        for index, action in enumerate(transcript.actions):
            if self._step(env, action, transcript.task) != transcript.results[index]:
                where = f"task {transcript.task.id}, round {index} ({action[:30]!r}), {how}"
                self._findings.add(law, where)
                return

    def _check_listed_actions(self, env: GuardedEnvironment, transcript: _Transcript) -> None:
        """Do listed actions from one state of the episode, each after a replay up to it."""
        rounds = [
            i
            for i in range(len(transcript.actions))
            if i == 0 or not transcript.results[i - 1].is_last
        ]
        prefix = transcript.actions[: self._random.choice(rounds)] if rounds else ()
        self._replay(env, transcript.task, prefix)
        listed = env.available_actions()
        for action in self._random.sample(listed, min(_MAX_LISTED_ACTIONS, len(listed))):
            self._replay(env, transcript.task, prefix)
            if not self._step(env, action, transcript.task).valid_action:
                self._findings.add(
                    "Every action that available_actions lists must be valid: list fewer.",
                    f"task {transcript.task.id}, round {len(prefix)}: {action[:60]!r}",
                )

    def _check_expert(self, env: GuardedEnvironment, task: Task) -> None:
        self._reset(env, task)
        action = env.expert_action()
        if action is None:
            return
        self._num_expert_episodes += 1
        max_rounds = self._class.spec.max_rounds
        for round_index in range(_EXPERT_PATIENCE * max_rounds):
            result = self._step(env, action, task)
            if result.success:
                self._num_expert_successes += round_index < max_rounds
                return
            action = None if result.is_last else env.expert_action()
            if action is None:
                break
        self._findings.add(
            "An expert must solve its task: return None from expert_action where there is none.",
            f"task {task.id}",
        )

    def _check_isolation(self, one: _Transcript, other: _Transcript) -> None:
        """Play two tasks in turns on two objects; each must go as it went alone."""
        with self._environment() as env_one, self._environment() as env_other:
            seen_one: list[str | StepResult] = [self._reset(env_one, one.task)]
            seen_other: list[str | StepResult] = [self._reset(env_other, other.task)]
            for action_one, action_other in itertools.zip_longest(one.actions, other.actions):
                if action_one is not None:
                    seen_one.append(self._step(env_one, action_one, one.task))
                if action_other is not None:
                    seen_other.append(self._step(env_other, action_other, other.task))
        if seen_one != [one.first, *one.results] or seen_other != [other.first, *other.results]:
            self._findings.add(
                "Two objects must not share state: move class attributes, module globals and "
                "global random generators into the object.",
                f"tasks {one.task.id} and {other.task.id} in turns",
            )

    # Single calls

    @contextmanager
    def _environment(self) -> Iterator[GuardedEnvironment]:
        env = GuardedEnvironment(
            lambda: registry.construct(self._class, self._options), self._thread
        )
        try:
            yield env
        finally:
            env.close()
            env.close()  # closing again must be harmless

    @contextmanager
    def _watching(self, what: str) -> Iterator[None]:
        """Turn an exception into a finding."""
        try:
            yield
        except _UnplayableError:
            return
        except CallTimeoutError as error:
            self._findings.add(
                "Every call must return: a server would give up on it too. The check ended there.",
                f"{what}: {error}",
            )
            raise _HungError from error
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what it raises is the finding
            call = self._thread.failed_call
            self._findings.add(
                raising_law(call),
                f"{what}: {call} raised {type(error).__name__}: "
                f"{str(error)[:200]}{_place_of(error)}",
            )

    def _replay(self, env: GuardedEnvironment, task: Task, actions: Sequence[str]) -> None:
        self._reset(env, task)
        for action in actions:
            self._step(env, action, task)

    def _reset(self, env: GuardedEnvironment, task: Task) -> str:
        self._num_episodes += 1
        observation = env.reset(task)
        if not isinstance(observation, str) or not observation.strip():
            self._findings.add(
                "reset must return text that states the goal.", f"task {task.id}: {observation!r}"
            )
        return observation

    def _step(self, env: GuardedEnvironment, action: str, task: Task) -> StepResult:
        self._num_steps += 1
        result = env.step(action)
        for law in result_problems(result):
            self._findings.add(law, f"task {task.id}, action {action[:30]!r}: {str(result)[:200]}")
        if not isinstance(result, StepResult):
            raise _UnplayableError
        return result


def _place_of(error: BaseException) -> str:
    """Return where in the author's code it was raised, e.g. " (chess.py, line 12)"."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
