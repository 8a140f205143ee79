"""The contract of envs/base.py as a test that any environment can be put through.

`check("babyai")` plays many tasks with a seeded mixture of expert, listed and garbage actions, some
of them far beyond the usual length of an episode; plays the same actions again (same object, fresh
object, interleaved with another task, in fresh processes); offers unknown tasks; and
reports the laws (laws.py) that are broken, each with a remedy. It never raises for what an
environment does, and every call has a deadline: one that hangs ends the check with a finding.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment, EnvSpec
from agentgym_rl.envs.checking.check_play import (
    EpisodeRecord,
    HungError,
    Mixture,
    Player,
    UnplayableError,
)
from agentgym_rl.envs.checking.check_process import (
    ProcessFailedError,
    Recording,
    replay_in_processes,
    result_fields,
)
from agentgym_rl.envs.checking.laws import Law, spec_problems, task_problems
from agentgym_rl.envs.execution.guarded import CALL_TIMEOUT_S, BlockingCaller, GuardedEnvironment
from agentgym_rl.lookup import importable_name
from agentgym_rl.types import StepResult, Task

_SHORT_ROUNDS = 12
_MIN_LONG_ROUNDS, _MAX_LONG_ROUNDS = 40, 200
"""Of the long episodes, which last for twice `spec.max_rounds` within these."""
_SHORT = Mixture(expert=0.4, listed=0.3)
_LONG = (Mixture(expert=0.0, listed=0.0), Mixture(expert=0.0, listed=0.8))
"""Without an expert, who would end the episode: bad actions only, and mostly possible ones."""
_MAX_LISTED_ACTIONS = 5
_MAX_IN_TURNS = 20
_MAX_REPLAYED_IN_PROCESSES = 12
_EXPERT_PATIENCE = 10
"""Times spec.max_rounds. A slow expert shows in its success rate; one that never ends is broken."""
_IN_THE_WAY = frozenset(
    {
        *(Law.CONSTRUCTS, Law.STARTS_EVERY_TASK, Law.ANY_TEXT_IS_AN_ACTION, Law.STEP_RESULT),
        *(Law.SAME_TASKS, Law.SAME_EVERY_TIME, Law.LOOKING_CHANGES_NOTHING, Law.LISTED_ACTIONS),
        *(Law.NAMED_NUMBERS, Law.SPLITS_HAVE_TASKS, Law.EXTRAS_DO_NOT_RAISE, Law.FINITE_REWARD),
        Law.CLOSES_ANY_TIME,
    }
)
"""What is broken in one process shows in others as well, so these are compared only without it."""
_ROUNDING = 1e-6
_NO_SPLIT = "no such split"
_NO_LEVEL = "no such level"
_NO_INDICES = (-1, 2**53)
"""No task can have them: one is negative, and JSON does not carry the other exactly."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What a check found. `problems` are sentences; empty means that the contract holds."""

    env: str
    problems: tuple[str, ...]
    broken: tuple[str, ...]
    """The names of the broken laws, in the order of `problems`."""
    num_tasks: int
    """Tasks that were played."""
    num_episodes: int
    num_steps: int
    num_expert_episodes: int
    """Episodes that an expert played from the start; 0 where there is no expert."""
    num_expert_successes: int
    """How many of them it solved within `spec.max_rounds`."""
    expert_failure: str
    """The exception that kept the expert from ever being asked; empty where it was asked."""
    num_processes: int
    """Fresh processes in which episodes were played again; 0 for a class that has no name there,
    such as one defined inside a function."""

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
    num_processes: int = 2,
) -> CheckReport:
    """Check an environment, given by name, "module:Class" or class, over tasks of every split.

    A call that takes longer than `call_timeout_s` is a finding and ends the check.
    """
    options = dict(options or {})
    cls = registry.env_class(env) if isinstance(env, str) else env
    name = env if isinstance(env, str) else importable_name(cls)
    caller = BlockingCaller(call_timeout_s)
    try:
        checker = _Checker(registry.configured(cls, options), options, seed, caller)
        if checker.is_playable():
            with suppress(HungError):
                checker.check_tasks(tasks_per_split)
                if name and num_processes:
                    checker.check_processes(name, num_processes, timeout_s=5 * call_timeout_s)
        return checker.report()
    finally:
        caller.close()


class _Checker:
    def __init__(
        self, cls: type[Environment], options: dict[str, object], seed: int, caller: BlockingCaller
    ) -> None:
        self._class = cls
        self._options = options
        self._random = random.Random(seed)
        self._player = Player(cls, options, self._random, caller)
        self._findings = self._player.findings
        self._to_replay: list[EpisodeRecord] = []
        """Episodes for the fresh processes."""
        self._num_tasks = 0
        self._is_expert_asked = False
        self._num_expert_episodes = 0
        self._num_expert_successes = 0
        self._num_processes = 0

    def report(self) -> CheckReport:
        spec = getattr(self._class, "spec", None)  # a class of a user's may lack it
        name = spec.name if isinstance(spec, EnvSpec) else self._class.__qualname__
        return CheckReport(
            env=str(name),
            problems=self._findings.sentences(),
            broken=tuple(law.title for law in self._findings.by_law),
            num_tasks=self._num_tasks,
            num_episodes=self._player.num_episodes,
            num_steps=self._player.num_steps,
            num_expert_episodes=self._num_expert_episodes,
            num_expert_successes=self._num_expert_successes,
            expert_failure="" if self._is_expert_asked else self._player.first_exception,
            num_processes=self._num_processes,
        )

    def is_playable(self) -> bool:
        """Check the class and its spec; unless they are right, nothing can be played."""
        spec = getattr(self._class, "spec", None)  # as above
        missing = sorted(self._class.__abstractmethods__)
        if missing:
            self._findings.add(Law.COMPLETE, f"there is no {', '.join(missing)}")
        if not isinstance(spec, EnvSpec):
            self._findings.add(Law.COMPLETE, f"spec is {spec!r:.60}")
            return False
        for law, value in spec_problems(spec):
            self._findings.add(law, f"{value!r:.200}")
        return not self._findings.by_law

    def check_tasks(self, tasks_per_split: int) -> None:
        transcripts: list[EpisodeRecord] = []
        for tasks in self._sample_tasks(tasks_per_split):
            for task in tasks:
                self._num_tasks += 1
                transcript = self._check_task(task)
                if transcript is not None:
                    transcripts.append(transcript)
            with self._player.watching(f"a long episode of task {tasks[0].id}"):
                self._check_long_episodes(tasks[0])
            with self._player.watching(f"an unknown task like {tasks[0].id}"):
                self._check_unknown_tasks(tasks[0])
        with self._player.watching("tasks"):
            self._check_refusal("tasks", partial(self._player.list_tasks, _NO_SPLIT), _NO_SPLIT)
        for one, other in itertools.pairwise(transcripts[: _MAX_IN_TURNS + 1]):
            with self._player.watching(f"{one.task.id} interleaved with {other.task.id}"):
                self._check_isolation(one, other)

    # Tasks

    def _sample_tasks(self, tasks_per_split: int) -> list[list[Task]]:
        """Check the lists of tasks and draw from each."""
        sampled: list[list[Task]] = []
        seen: dict[int, str] = {}
        for split in self._class.spec.splits:
            with self._player.watching(f"tasks({split!r})"):
                tasks = self._player.list_tasks(split)
                if self._player.list_tasks(split) != tasks:
                    self._findings.add(Law.SAME_TASKS, f"tasks({split!r}), called twice")
                self._check_list(split, tasks, seen)
                if tasks:
                    sampled.append(self._random.sample(tasks, min(tasks_per_split, len(tasks))))
        return sampled

    def _check_list(self, split: str, tasks: Sequence[Task], seen: dict[int, str]) -> None:
        strangers = [task for task in tasks if not isinstance(task, Task)]
        if strangers or not tasks:
            what = f"{strangers[0]!r:.60}" if strangers else "an empty list"
            self._findings.add(Law.SPLITS_HAVE_TASKS, f"tasks({split!r}) has {what}")
        if strangers:
            raise UnplayableError
        for task in tasks:
            for law in task_problems(task, self._class.spec, split):
                self._findings.add(law, repr(task))
            if task.index in seen:
                where = f"{task.id} in {seen[task.index]!r} and {split!r}"
                self._findings.add(Law.UNIQUE_INDEX, where)
            seen[task.index] = split

    def _check_unknown_tasks(self, task: Task) -> None:
        """Offer unknown tasks, each of which must be refused."""
        unknown = [
            replace(task, split=_NO_SPLIT),
            *(replace(task, index=index) for index in _NO_INDICES),
        ]
        if task.level:
            unknown.append(replace(task, level=_NO_LEVEL))
        if task.payload:
            unknown.append(replace(task, payload={_NO_LEVEL: None}))
        for stranger in unknown:
            with self._player.environment() as env:
                self._check_refusal("reset", partial(env.reset, stranger), stranger)

    def _check_refusal(self, name: str, call: Callable[[], object], unknown: str | Task) -> None:
        """Check that a call raises ValueError for an unknown split or task."""
        try:
            call()
        except ValueError:
            return
        except Exception as error:  # noqa: BLE001 - what it raises is the finding
            found = f"raised {type(error).__name__} for"
        else:
            found = "accepted"
        self._findings.add(Law.REFUSES_UNKNOWN_TASKS, f"{name} {found} {unknown!r}")

    # Episodes

    def _check_task(self, task: Task) -> EpisodeRecord | None:
        """Check everything that concerns one task; None when it could not be played."""
        player, transcript = self._player, None
        with player.watching(f"task {task.id}"), player.environment() as env:
            transcript = player.play(env, task, mixture=_SHORT, max_rounds=_SHORT_ROUNDS)
            self._check_rewards(transcript)
            self._check_replay(env, transcript, "on the same object, after the episode")
        if transcript is None:
            return None
        with player.watching(f"task {task.id} on a second object"), player.environment() as env:
            self._check_replay(env, transcript, "on a second object")
            self._check_listed_actions(env, transcript)
        with player.watching(f"task {task.id} played by the expert"), player.environment() as env:
            self._check_expert(env, task)
        if len(self._to_replay) < _MAX_REPLAYED_IN_PROCESSES:
            self._to_replay.append(transcript)
        return transcript

    def _check_long_episodes(self, task: Task) -> None:
        """Play far beyond the usual end: some things go wrong only then."""
        player = self._player
        twice = 2 * self._class.spec.max_rounds
        max_rounds = min(max(twice, _MIN_LONG_ROUNDS), _MAX_LONG_ROUNDS)
        for mixture in _LONG:
            with player.environment() as env:
                transcript = player.play(env, task, mixture=mixture, max_rounds=max_rounds)
            self._check_rewards(transcript)
            with player.environment() as env:
                self._check_replay(env, transcript, "in a long episode on a second object")
            self._to_replay.append(transcript)

    def _check_rewards(self, transcript: EpisodeRecord) -> None:
        """Check the sum of rewards after every round, since a limit may cut the episode there."""
        low, high = self._class.spec.reward_range
        limit = max(self._class.spec.max_rounds, _SHORT_ROUNDS)
        rewards = [result.reward for result in transcript.results[:limit]]
        if not all(map(math.isfinite, rewards)):
            return  # another law
        for index, total in enumerate(itertools.accumulate(rewards)):
            if not low - _ROUNDING <= total <= high + _ROUNDING:
                self._findings.add(
                    Law.REWARDS_IN_RANGE,
                    f"task {transcript.task.id}, round {index}: {total:g} is not in "
                    f"[{low:g}, {high:g}]",
                )
                return

    def _check_replay(self, env: GuardedEnvironment, before: EpisodeRecord, how: str) -> None:
        """Play the same actions again and compare."""
        again = self._player.replay(env, before.task, before.actions)
        if again.is_like(before):
            return
        where = f"task {before.task.id}, {_first_difference(before, again)}, {how}"
        self._findings.add(self._law_of_difference(before), where)

    def _law_of_difference(self, before: EpisodeRecord) -> Law:
        """Return why an episode went differently: it was looked at the first time, or at random."""
        replays: list[EpisodeRecord] = []
        for _ in range(2):
            with self._player.environment() as env:
                replays.append(self._player.replay(env, before.task, before.actions))
        is_steady = replays[0].is_like(replays[1]) and not replays[0].is_like(before)
        return Law.LOOKING_CHANGES_NOTHING if is_steady else Law.SAME_EVERY_TIME

    def _check_listed_actions(self, env: GuardedEnvironment, transcript: EpisodeRecord) -> None:
        """Do listed actions from one state of the episode, each after a replay up to it."""
        rounds = [
            i
            for i in range(len(transcript.actions))
            if i == 0 or not transcript.results[i - 1].is_last
        ]
        prefix = transcript.actions[: self._random.choice(rounds)] if rounds else ()
        task = transcript.task
        self._player.replay(env, task, prefix)
        listed = self._player.listed(env, task)
        for action in self._random.sample(listed, min(_MAX_LISTED_ACTIONS, len(listed))):
            self._player.replay(env, task, prefix)
            result = self._player.step(env, action, task, round_index=len(prefix))
            if not result.valid_action:
                where = f"task {task.id}, round {len(prefix)}: {action[:60]!r} is refused"
                self._findings.add(Law.LISTED_ACTIONS, where)

    def _check_expert(self, env: GuardedEnvironment, task: Task) -> None:
        self._player.reset(env, task)
        action = self._player.advised(env, task)
        self._is_expert_asked = True
        if action is None:
            return
        self._num_expert_episodes += 1
        max_rounds = self._class.spec.max_rounds
        for round_index in range(_EXPERT_PATIENCE * max_rounds):
            result = self._player.step(env, action, task, round_index=round_index)
            if result.success:
                self._num_expert_successes += round_index < max_rounds
                return
            action = None if result.is_last else self._player.advised(env, task)
            if action is None:
                break
        self._findings.add(Law.EXPERT_SOLVES, f"task {task.id}")

    def _check_isolation(self, one: EpisodeRecord, other: EpisodeRecord) -> None:
        """Play two tasks in turns on two objects; each must go as it went alone."""
        player = self._player
        results: tuple[list[StepResult], list[StepResult]] = ([], [])
        with player.environment() as env_one, player.environment() as env_other:
            sides = ((env_one, one, results[0]), (env_other, other, results[1]))
            firsts = [player.reset(env, transcript.task) for env, transcript, _ in sides]
            for index in range(max(len(one.actions), len(other.actions))):
                for env, transcript, seen in sides:
                    if index < len(transcript.actions):
                        action = transcript.actions[index]
                        seen.append(player.step(env, action, transcript.task, round_index=index))
        in_turns = [
            replace(transcript, first=first, results=tuple(seen))
            for (_, transcript, seen), first in zip(sides, firsts, strict=True)
        ]
        if in_turns[0].is_like(one) and in_turns[1].is_like(other):
            return
        if self._is_steady(one) and self._is_steady(other):
            where = f"tasks {one.task.id} and {other.task.id} in turns"
            self._findings.add(Law.OWN_STATE, where)

    def _is_steady(self, transcript: EpisodeRecord) -> bool:
        """Whether an episode alone goes as it went; else another law is broken."""
        with self._player.environment() as env:
            again = self._player.replay(env, transcript.task, transcript.actions)
        return again.is_like(transcript)

    # Processes

    def check_processes(self, name: str, num_processes: int, *, timeout_s: float) -> None:
        """Play episodes again in fresh processes and compare them with each other and with ours."""
        if not self._to_replay or not _IN_THE_WAY.isdisjoint(self._findings.by_law):
            return
        plays = [(transcript.task, transcript.actions) for transcript in self._to_replay]
        try:
            recordings = replay_in_processes(
                name, self._options, plays, num_processes=num_processes, timeout_s=timeout_s
            )
        except ProcessFailedError as error:
            self._findings.add(Law.SAME_IN_EVERY_PROCESS, f"a fresh process failed: {error}")
            return
        self._num_processes = num_processes
        for one, other in itertools.pairwise(recordings):
            for law, where in self._differences(one, other):
                self._findings.add(law, where)
        for transcript, seen in zip(self._to_replay, recordings[0].plays, strict=True):
            texts = [item for item in seen if not isinstance(item, list)]
            ours = [transcript.first, *map(result_fields, transcript.results)]
            if texts != ours and Law.SAME_IN_EVERY_PROCESS not in self._findings.by_law:
                where = f"task {transcript.task.id}, in a fresh process and here"
                self._findings.add(Law.SAME_IN_EVERY_PROCESS, where)

    def _differences(self, one: Recording, other: Recording) -> Iterator[tuple[Law, str]]:
        for split in self._class.spec.splits:
            if one.tasks[split] != other.tasks[split]:
                yield Law.SAME_TASKS, f"tasks({split!r}), in two fresh processes"
        for transcript, seen, seen_too in zip(self._to_replay, one.plays, other.plays, strict=True):
            if seen != seen_too:
                pairs = zip(seen, seen_too, strict=False)  # one may have ended before the other
                mine = next((mine for mine, theirs in pairs if mine != theirs), None)
                what = "available_actions" if isinstance(mine, list) else "an answer"
                where = f"task {transcript.task.id}: {what} differs in two fresh processes"
                yield Law.SAME_IN_EVERY_PROCESS, where


def _first_difference(one: EpisodeRecord, other: EpisodeRecord) -> str:
    """Return where two plays of the same actions part."""
    if one.first != other.first:
        return "first observation"
    pairs = zip(one.results, other.results, strict=True)
    index = next(index for index, (mine, theirs) in enumerate(pairs) if mine != theirs)
    return f"round {index} ({one.actions[index][:30]!r})"
