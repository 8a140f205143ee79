"""Demonstrations: what the expert solves is kept, and what hangs is left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import psutil
import pytest

from agentgym_rl.envs.demos.collection import collect_demonstrations
from agentgym_rl.envs.demos.demonstration import Demonstration
from agentgym_rl.envs.execution.guarded import CallTimeoutError
from agentgym_rl.errors import EnvError
from agentgym_rl.types import StepResult, Task
from fakes import CountingEnv, hang


class HangsOnSome(CountingEnv):
    """Hangs on tasks 2 and 4, and on every large one."""

    def step(self, action: str) -> StepResult:
        if self._goal in (3, 5) or self._goal > 10:
            hang()
        return super().step(action)


def indices(name: str, number: int) -> Iterator[int]:
    tasks = CountingEnv.tasks("train")
    demos = collect_demonstrations(name, tasks, num_demos=number, max_rounds=10, call_timeout_s=0.2)
    return (demo.task.index for demo in demos)


def test_demonstrations_come_in_the_order_of_tasks(patient_calls: None):
    assert list(indices("fakes:CountingEnv", 3)) == [0, 2, 4]


def test_a_task_on_which_the_environment_hangs_is_left_out(patient_calls: None):
    assert list(indices("test_demos:HangsOnSome", 3)) == [0, 6, 8]


def test_an_environment_that_hangs_again_and_again_is_given_up(patient_calls: None):
    found = indices("test_demos:HangsOnSome", 9)
    assert [next(found), next(found), next(found)] == [0, 6, 8]
    with pytest.raises(CallTimeoutError, match=r"step did not return within 0.2 s"):
        next(found)


def test_an_environment_that_always_fails_is_not_one_without_an_expert():
    with pytest.raises(EnvError, match=r"failed in each of \d+ demonstrations, the last with .*"):
        list(indices("fakes:BrokenResetEnv", 3))


def test_an_expert_that_needs_too_long_is_left_out():
    task = Task("counting", "train", 18)
    demos = collect_demonstrations("fakes:CountingEnv", [task], num_demos=1, max_rounds=2)
    assert list(demos) == []


class DiesOnSome(CountingEnv):
    """Its process ends on tasks 2 and 4."""

    def step(self, action: str) -> StepResult:
        if self._goal in (3, 5):
            os._exit(3)
        return super().step(action)


def in_processes(name: str, number: int, num_processes: int) -> list[Demonstration]:
    tasks = CountingEnv.tasks("train")
    demos = collect_demonstrations(
        name,
        tasks,
        num_demos=number,
        max_rounds=10,
        num_processes=num_processes,
        call_timeout_s=3.0,
    )
    return list(demos)


def test_several_processes_find_what_one_finds():
    here = in_processes("fakes:CountingEnv", 6, 0)
    assert in_processes("fakes:CountingEnv", 6, 3) == here
    assert len(here) == 6


@pytest.mark.slow
def test_a_task_on_which_a_process_hangs_or_dies_is_left_out(caplog: pytest.LogCaptureFixture):
    assert [demo.task.index for demo in in_processes("test_demos:HangsOnSome", 3, 2)] == [0, 6, 8]
    caplog.clear()
    assert [demo.task.index for demo in in_processes("test_demos:DiesOnSome", 3, 2)] == [0, 6, 8]
    assert "the expert's process exited (3)" in caplog.text


def test_what_no_process_can_make_is_refused():
    with pytest.raises(ValueError, match="no option 'colour'"):
        list(
            collect_demonstrations(
                "textcraft",
                [Task("textcraft", "train", 0)],
                num_demos=1,
                max_rounds=2,
                options={"colour": "red"},
                num_processes=2,
            )
        )


def test_processes_end_with_the_one_who_asked():
    demos = collect_demonstrations(
        "fakes:CountingEnv", CountingEnv.tasks("train"), num_demos=5, max_rounds=9, num_processes=2
    )
    next(demos)
    children = [
        child
        for child in psutil.Process().children()
        if "agentgym_rl.envs.demos.child" in child.cmdline()
    ]
    assert len(children) == 2
    demos.close()
    assert not any(child.is_running() for child in children)


class Leaves(CountingEnv):
    """Asks to end the process, as scripts do."""

    def expert_action(self) -> str | None:
        if self._goal == 3:
            sys.exit(3)
        return super().expert_action()


@pytest.mark.parametrize("num_processes", [0, 2])
def test_an_expert_that_asks_to_end_costs_its_task_only(num_processes: int):
    found = in_processes("test_demos:Leaves", 3, num_processes)
    assert [demo.task.index for demo in found] == [0, 4, 6]
