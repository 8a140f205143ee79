"""`tasks=` of `evaluate` and `rollout`: a number, a file, or a list; and what `--tasks` says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import agentgym_rl as ag
from agentgym_rl.api.progress_lines import ProgressLines
from agentgym_rl.api.task_choice import TaskChoice, TasksArgument, task_choice
from agentgym_rl.cli.evaluate import EvalOptions, run_evaluation
from agentgym_rl.envs.scenarios.textcraft.env import TextCraft
from agentgym_rl.errors import ConfigError
from agentgym_rl.rollout.chosen_tasks import find_tasks
from agentgym_rl.types import Episode, StopReason, Task

TASKS = [task for split in TextCraft.spec.splits for task in TextCraft.tasks(split)]


def test_each_form_is_what_it_looks_like(tmp_path: Path):
    file = tmp_path / "12"  # a file whose name is a number is a file
    file.write_text("[12]")
    task = Task("textcraft", "test", 3)
    assert task_choice(8, smallest=0) == TaskChoice(number=8)
    assert task_choice(str(file), smallest=0) == task_choice(file, smallest=1)
    assert task_choice(file, smallest=0).settings() == {"env.eval_tasks_file": str(file)}
    named = task_choice(["textcraft_12", 3, task], smallest=1)
    assert named == TaskChoice(named=("textcraft_12", 3, task)) and named.settings() == {}


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ("50", "tasks='50': there is no such file; .* for 50 tasks write tasks=50"),
        ("nowhere.json", "tasks='nowhere.json': there is no such file; name a JSON list of ids"),
        (-1, "tasks=-1: give a number of at least 0; write a number, the path"),
        (True, "tasks=True names no tasks; write a number"),
        ([], r"tasks=\[\] names no tasks"),
        ([1.5], r"tasks=\[1\.5\] names no tasks"),
        (None, "tasks=None names no tasks"),
    ],
)
def test_anything_else_is_refused_with_the_forms(tasks: TasksArgument, told: str):
    with pytest.raises(ConfigError, match=told):
        ag.evaluate("m", "babyai", tasks=tasks)


def test_rollout_plays_at_least_one_task():
    with pytest.raises(ConfigError, match="tasks=0: give a number of at least 1"):
        ag.rollout("m", "babyai", tasks=0)


def test_ids_are_tasks_of_any_split_and_tasks_are_themselves():
    own = Task("textcraft", "test", 10**6, payload={"a": 1})
    found = find_tasks(TASKS, TextCraft.spec, ["textcraft_12", own, 3, "textcraft/12", own])
    assert [task.index for task in found] == [12, 10**6, 3] and found[1] is own
    with pytest.raises(ValueError, match="tasks: 1 of its 2 ids are not tasks of textcraft"):
        find_tasks(TASKS, TextCraft.spec, [3, 10**6])
    with pytest.raises(ValueError, match="tasks, item 1: 'babyai_3' is a task of 'babyai'"):
        find_tasks(TASKS, TextCraft.spec, ["babyai_3"])


def test_an_id_that_names_no_task_is_refused_before_a_model_is_loaded():
    with pytest.raises(ConfigError, match="tasks: 1 of its 1 ids are not tasks of textcraft"):
        ag.evaluate("m", "textcraft", tasks=[10**6])


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("50", "--tasks 50: there is no such file; .* for 50 tasks write --limit 50"),
        ("ids.json", "--tasks ids.json: there is no such file; name a JSON list of ids"),
    ],
)
def test_the_command_line_says_what_tasks_is(file: str, told: str):
    with pytest.raises(ConfigError, match=told):
        run_evaluation("m", EvalOptions(["babyai"], tasks=Path(file)), [])


def test_progress_says_what_will_be_played_and_now_and_then_how_far_it_is(
    capsys: pytest.CaptureFixture[str],
):
    now = 0.0
    lines = ProgressLines(k=2, hint=" (all)", clock=lambda: now)
    lines.begin("babyai, at most 8 rounds", 6)
    whole = Episode(
        task=TASKS[0], sample_index=0, stop_reason=StopReason.SUCCESS, reward=1.0, success=True,
        rounds=(), messages=(), samples=(), seconds=1.0,
    )  # fmt: skip
    lost = replace(whole, stop_reason=StopReason.TIMEOUT, reward=None, success=False, error="gone")
    lines.on_kept([whole])
    for now in (1.0, 12.0, 13.0, 14.0):  # noqa: B007 - the clock
        lines.on_episode(whole)
    lines.on_episode(lost)
    assert capsys.readouterr().err.splitlines() == [
        "babyai, at most 8 rounds: 3 tasks, 2 samples each (all)",
        "1 of 6 episodes are there already",
        "3/6 episodes, success 100.0%, 18 s left",
        "6/6 episodes, success 100.0%, 1 failed",
    ]
