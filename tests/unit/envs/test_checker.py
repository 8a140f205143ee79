"""The checker passes a good environment and names the law that a bad one breaks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from agentgym_rl.envs.base import Environment, JsonValue
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.envs.checking.laws import Law
from agentgym_rl.types import StepResult, Task
from broken_envs import BROKEN
from fakes import (
    BrokenResetEnv,
    BrokenStartEnv,
    CountingEnv,
    TroubleEnv,
    hang,
)


def test_a_good_environment_has_no_problems():
    report = check(CountingEnv, tasks_per_split=10)
    assert report.num_processes == 2
    assert report.problems == ()
    assert report.is_ok
    assert report.num_tasks == 20
    assert report.num_steps > 500
    assert report.expert_success_rate == 1.0


def test_the_same_seed_gives_the_same_check():
    assert check(CountingEnv, seed=3, num_processes=0) == check(
        CountingEnv, seed=3, num_processes=0
    )


def test_names_and_options_are_taken():
    assert check("fakes:CountingEnv", options={"largest": 2}, tasks_per_split=2).is_ok


@pytest.mark.parametrize("law", BROKEN)
def test_an_environment_that_breaks_one_law_is_caught_and_the_law_named(
    law: str, patient_calls: None
):
    num_processes = 2 if law == "same-in-every-process" else 0
    timeout_s = 0.5 if law == "calls-return" else 60.0
    report = check(
        BROKEN[law], tasks_per_split=10, num_processes=num_processes, call_timeout_s=timeout_s
    )
    assert report.broken == (law,), report.problems
    (problem,) = report.problems
    assert problem.startswith(f"{law}: ")


def test_every_law_has_its_broken_environment_and_its_place_in_the_docs():
    assert list(BROKEN) == [law.title for law in Law]
    docs = Path("docs/environments.md").read_text(encoding="utf-8")
    assert [law.title for law in Law if f"`{law.title}`" not in docs] == []


class Forgetful(CountingEnv):
    """Draws without a seed."""

    _numbers = itertools.count()

    def reset(self, task: Task) -> str:
        return f"{super().reset(task)} {next(self._numbers)}"


class Sticky(CountingEnv):
    """Keeps something from the last episode."""

    def __init__(self) -> None:
        super().__init__()
        self._num_episodes = 0

    def reset(self, task: Task) -> str:
        self._num_episodes += 1
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        return replace(super().step(action), observation=f"Episode {self._num_episodes}.")


class Touchy(CountingEnv):
    """Raises on an action it does not know."""

    def step(self, action: str) -> StepResult:
        if not action.startswith("add"):
            raise ValueError("what?")
        return super().step(action)


class Quitter(CountingEnv):
    """Ends the process on an action it does not know."""

    def step(self, action: str) -> StepResult:
        if not action.startswith("add"):
            raise SystemExit(1)
        return super().step(action)


class WrongAnswer(CountingEnv):
    def step(self, action: str) -> StepResult:
        return super().step(action).observation  # type: ignore[return-value]  # the bug


class InfiniteReward(CountingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), reward=float("inf"))


class NoText(CountingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), observation=None)


class NoDetails(CountingEnv):
    def details(self) -> Mapping[str, JsonValue]:
        return None  # type: ignore[return-value]  # the bug


class MovingPicture(CountingEnv):
    """Looking moves the world."""

    def render(self) -> bytes | None:
        self._count += 1
        return None


class EmptySplit(CountingEnv):
    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return super().tasks(split) if split == "train" else []


class NotTasks(CountingEnv):
    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return [1, 2]  # type: ignore[list-item]  # the bug


class NoSpec(CountingEnv):
    spec = None  # type: ignore[assignment]  # the bug


class HashedList(CountingEnv):
    """Lists its actions in the order in which this process has a set."""

    def available_actions(self) -> tuple[str, ...]:
        return tuple(set(super().available_actions()))


class HashedTasks(CountingEnv):
    """The same for its tasks."""

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        by_name = {str(task.index): task for task in super().tasks(split)}
        return [by_name[name] for name in set(by_name)]


class NumberedActions(CountingEnv):
    def available_actions(self) -> tuple[str, ...]:
        return 3  # type: ignore[return-value]  # the bug

    def step(self, action: str) -> StepResult:
        return StepResult("Nothing happens.")

    def expert_action(self) -> str | None:
        return None


@pytest.mark.parametrize(
    ("env", "law", "words"),
    [
        (Forgetful, "same-every-time", "first observation"),
        (Sticky, "same-every-time", "on the same object, after the episode"),
        (Touchy, "any-text-is-an-action", "ValueError: what? (test_checker.py, line"),
        (Quitter, "any-text-is-an-action", "SystemExit"),
        (WrongAnswer, "step-result", "'Count: "),
        (NoText, "step-result", "observation=None"),
        (InfiniteReward, "finite-reward", "reward=inf"),
        (NoDetails, "plain-details", "None"),
        (MovingPicture, "looking-changes-nothing", "on a second object"),
        (EmptySplit, "splits-have-tasks", "tasks('test') has an empty list"),
        (NotTasks, "splits-have-tasks", "tasks('train') has 1"),
        (NoSpec, "complete", "spec is None"),
        (NumberedActions, "listed-actions", "3"),
        (BROKEN["complete"], "complete", "there is no reset"),
        (BROKEN["any-text-is-an-action"], "any-text-is-an-action", "round 25"),
        (BROKEN["rewards-in-range"], "rewards-in-range", "round 20: -1.05 is not in [-1, 1]"),
        (BROKEN["refuses-unknown-tasks"], "refuses-unknown-tasks", "split='no such split'"),
        (BROKEN["splits-have-tasks"], "splits-have-tasks", "FileNotFoundError: test.json"),
        (BrokenResetEnv, "starts-every-task", "OSError: no data"),
        (BrokenStartEnv, "constructs", "the constructor raised RuntimeError: no display"),
    ],
)
def test_a_finding_says_what_was_seen(env: type[Environment], law: str, words: str):
    report = check(env, tasks_per_split=10, num_processes=0)
    assert law in report.broken, report.problems
    assert any(words in problem for problem in report.problems), report.problems


@pytest.mark.parametrize(
    ("env", "law", "words"),
    [
        (HashedList, "same-in-every-process", "available_actions differs in two fresh processes"),
        (HashedTasks, "same-tasks", "in two fresh processes"),
    ],
)
def test_orders_that_differ_between_processes_are_found(
    env: type[Environment], law: str, words: str
):
    report = check(env, tasks_per_split=2)
    assert report.broken == (law,), report.problems
    assert words in report.problems[0]


def test_a_class_without_a_name_elsewhere_is_checked_in_this_process_only():
    class Local(CountingEnv):
        pass

    report = check(Local, tasks_per_split=2)
    assert report.is_ok
    assert report.num_processes == 0


def test_one_bug_over_many_tasks_is_one_sentence_with_a_count():
    (problem,) = check(BROKEN["starts-every-task"], tasks_per_split=5, num_processes=0).problems
    assert "Seen in" in problem
    assert problem.count("task counting/") == 2


def test_trouble_that_needs_a_magic_word_is_not_found():
    assert check(TroubleEnv, tasks_per_split=3, num_processes=0).is_ok


class Hanging(CountingEnv):
    """Waits in one of its calls."""

    where: ClassVar[str]

    def reset(self, task: Task) -> str:
        if self.where == "reset":
            hang()
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        if self.where == "step" and not action.startswith("add"):
            hang()
        return super().step(action)

    def close(self) -> None:
        if self.where == "close":
            hang()
        super().close()


@pytest.mark.parametrize("where", ["reset", "step", "close"])
def test_a_call_that_hangs_is_a_finding_and_ends_the_check(where: str, patient_calls: None):
    env = type("Stuck", (Hanging,), {"where": where})
    report = check(env, tasks_per_split=5, call_timeout_s=0.2)
    (problem,) = report.problems
    assert f"{where} did not return within 0.2 s" in problem
    assert 1 <= report.num_tasks < 10


def test_a_list_of_tasks_that_hangs_is_a_finding(patient_calls: None):
    class StuckList(CountingEnv):
        @classmethod
        def tasks(cls, split: str) -> Sequence[Task]:
            hang()
            return []

    report = check(StuckList, call_timeout_s=0.2)
    assert "tasks did not return within 0.2 s" in report.problems[0]
    assert report.num_tasks == 0


def test_an_impossible_deadline_is_refused():
    with pytest.raises(ValueError, match="call_timeout_s must be above 0"):
        check(CountingEnv, call_timeout_s=0)


class FailingEnv(CountingEnv):
    def step(self, action: str) -> StepResult:
        raise ZeroDivisionError("no such count")


def test_an_exception_that_keeps_the_expert_from_being_asked_is_named():
    report = check(FailingEnv, tasks_per_split=2, num_processes=0)
    assert report.expert_success_rate is None
    assert "step raised ZeroDivisionError: no such count (test_checker.py" in report.expert_failure
    assert check(CountingEnv, tasks_per_split=2, num_processes=0).expert_failure == ""


def test_a_missing_expert_is_no_failure():
    class NoExpertEnv(CountingEnv):
        def expert_action(self) -> None:
            return None

    report = check(NoExpertEnv, tasks_per_split=2, num_processes=0)
    assert report.expert_success_rate is None and report.expert_failure == ""
