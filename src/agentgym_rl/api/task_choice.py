"""What callers pass as `tasks`: a number, a file of ids, or a list of tasks or ids."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from agentgym_rl.errors import ConfigError
from agentgym_rl.rollout.chosen_tasks import TaskName
from agentgym_rl.types import Task

TasksArgument: TypeAlias = "int | str | os.PathLike[str] | Sequence[TaskName]"
"""This many tasks, the path of a JSON list of ids, or tasks and ids such as "babyai_12" or 12."""


@dataclass(frozen=True, slots=True)
class TaskChoice:
    """One of the three; the others are as they are here."""

    number: int = 0
    """This many; 0 for all."""
    file: str = ""
    named: tuple[TaskName, ...] = ()

    def settings(self) -> dict[str, object]:
        return {"env.eval_tasks_file": self.file} if self.file else {}


def task_choice(tasks: TasksArgument, *, smallest: int) -> TaskChoice:
    """Return what `tasks` means. Raises ConfigError with the three forms."""
    if isinstance(tasks, int) and not isinstance(tasks, bool):
        if tasks < smallest:
            raise ConfigError(f"tasks={tasks}: give a number of at least {smallest}; {_FORMS}")
        return TaskChoice(number=tasks)
    if isinstance(tasks, (str, os.PathLike)):
        check_task_file(Path(tasks), given=f"tasks={os.fspath(tasks)!r}", number="tasks={}")
        return TaskChoice(file=os.fspath(tasks))
    named = tuple(tasks) if isinstance(tasks, Sequence) else ()
    is_known = all(isinstance(each, Task | str | int) for each in named)
    if not named or not is_known:
        raise ConfigError(f"tasks={tasks!r} names no tasks; {_FORMS}")
    return TaskChoice(named=named)


def check_task_file(file: Path, *, given: str, number: str) -> None:
    """Raise ConfigError where there is no such file; `number` is how a number is given."""
    if file.is_file():
        return
    remedy = "name a JSON list of ids of tasks"
    if file.name.isdecimal():
        remedy += f", or for {file.name} tasks write {number.format(file.name)}"
    raise ConfigError(f"{given}: there is no such file; {remedy}")


_FORMS = (
    'write a number, the path of a JSON list of ids, or a list of tasks or ids such as "babyai_12"'
)
