"""The checker passes a good environment and names the law that a bad one breaks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from agentgym_rl.envs.base import Environment, EnvSpec, JsonValue
from agentgym_rl.envs.checker import check
from agentgym_rl.types import StepResult, Task
from fakes import (
    BrokenResetEnv,
    BrokenStartEnv,
    CountingEnv,
    TroubleEnv,
    fake_spec,
    hang,
)


def test_a_good_environment_has_no_problems():
    report = check(CountingEnv, tasks_per_split=10)
    assert report.problems == ()
    assert report.is_ok
    assert report.num_tasks == 20
    assert report.num_steps > 500
    assert report.expert_success_rate == 1.0


def test_the_same_seed_gives_the_same_check():
    assert check(CountingEnv, seed=3) == check(CountingEnv, seed=3)


def test_names_and_options_are_taken():
    assert check("fakes:CountingEnv", options={"largest": 2}, tasks_per_split=2).is_ok


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


class Impure(CountingEnv):
    """Asking the expert moves the world."""

    def expert_action(self) -> str | None:
        self._count += 1
        return "add 1"


class Sharing(CountingEnv):
    """Every object has the same counter."""

    _shared: ClassVar[list[int]] = [0]

    def reset(self, task: Task) -> str:
        self._shared[0] = 0
        return super().reset(task)

    def step(self, action: str) -> StepResult:
        self._shared[0] += 1
        return replace(super().step(action), observation=str(self._shared[0]))


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


class Unfinished(CountingEnv):
    """Says success without an end."""

    def step(self, action: str) -> StepResult:
        return replace(super().step(action), terminated=False)


class Generous(CountingEnv):
    """Pays more than it declares."""

    def step(self, action: str) -> StepResult:
        return replace(super().step(action), reward=0.7)


class WrongFlag(CountingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), valid_action=1)


class WrongReward(CountingEnv):
    def step(self, action: str) -> StepResult:
        return replace(super().step(action), reward=float("inf"))


class WrongAnswer(CountingEnv):
    def step(self, action: str) -> StepResult:
        return super().step(action).observation  # type: ignore[return-value]  # the bug


class Silent(CountingEnv):
    def reset(self, task: Task) -> str:
        super().reset(task)
        return ""


class OverlongList(CountingEnv):
    """Lists an action that it refuses."""

    def step(self, action: str) -> StepResult:
        return replace(super().step(action), valid_action=action in ("add 1", "add 2"))


class LostExpert(CountingEnv):
    """Its expert goes beyond the goal."""

    def expert_action(self) -> str | None:
        return "add 3"


class ClosesOnce(CountingEnv):
    def close(self) -> None:
        super().close()
        if self.num_closes > 1:
            raise RuntimeError("closed twice")


class NewCategory(CountingEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", categories=("small",))


class SameIndices(CountingEnv):
    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return [replace(task, index=task.index // 2) for task in super().tasks(split)]


class NoTests(CountingEnv):
    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        return super().tasks(split) if split == "train" else []


class BadSpec(CountingEnv):
    spec: ClassVar[EnvSpec] = fake_spec("counting", max_rounds=0, reward_range=(1.0, 0.0))


class UnwritableDetails(CountingEnv):
    def details(self) -> Mapping[str, JsonValue]:
        return {"seen": {self._count}}  # type: ignore[dict-item]  # the bug


class NoDetails(CountingEnv):
    def details(self) -> Mapping[str, JsonValue]:
        return None  # type: ignore[return-value]  # the bug


class WrongPicture(CountingEnv):
    def render(self) -> bytes | None:
        return b"GIF89a"


class MovingPicture(CountingEnv):
    """Looking moves the world."""

    def render(self) -> bytes | None:
        self._count += 1
        return None


class BrokenList(CountingEnv):
    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        raise FileNotFoundError("tasks.json")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (Forgetful, "same task and actions must give the same"),
        (Sticky, "keep nothing from the last episode"),
        (Impure, "let available_actions, expert_action, details and render change"),
        (Sharing, "must not share state"),
        (Touchy, "step must not raise"),
        (Touchy, "ValueError: what? (test_checker.py, line"),
        (UnwritableDetails, "details must be plain JSON"),
        (NoDetails, "details must return a mapping"),
        (WrongPicture, "bytes of a PNG file"),
        (MovingPicture, "render change nothing"),
        (BrokenList, "tasks raised FileNotFoundError: tasks.json"),
        (Quitter, "SystemExit"),
        (Unfinished, "success implies terminated"),
        (Generous, "spec.reward_range: widen it"),
        (WrongFlag, "must be bool"),
        (WrongReward, "must be finite"),
        (WrongAnswer, "must return a StepResult"),
        (Silent, "states the goal"),
        (OverlongList, "'add 3'"),
        (LostExpert, "must solve its task"),
        (ClosesOnce, "close raised RuntimeError: closed twice"),
        (NewCategory, "spec.categories: add it"),
        (SameIndices, "unique over all splits"),
        (NoTests, "must have tasks"),
        (BadSpec, "max_rounds must be at least 1"),
        (BrokenResetEnv, "OSError: no data"),
        (BrokenStartEnv, "the constructor raised RuntimeError: no display"),
    ],
)
def test_each_broken_law_is_named(env: type[Environment], words: str):
    report = check(env, tasks_per_split=10)
    assert not report.is_ok
    assert any(words in problem for problem in report.problems), report.problems


def test_one_bug_over_many_tasks_is_one_sentence_with_a_count():
    (problem,) = check(Silent, tasks_per_split=5).problems
    assert "Seen in" in problem
    assert problem.count("task counting/") == 2


def test_trouble_that_needs_a_magic_word_is_not_found():
    assert check(TroubleEnv, tasks_per_split=3).is_ok


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
