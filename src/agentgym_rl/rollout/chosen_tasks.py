"""Which tasks a recipe trains and evaluates on: those of a split, or of a file of ids.

A file is a JSON list, or one value per line, as AgentGym-RL's are:

    [{"item_id": "textcraft_12"}, {"item_id": "textcraft_7"}]
    ["textcraft_12", "textcraft_7"]

An id is "textcraft_12", "textcraft/12" or the bare number. Splits are not the same there and here,
so a file chooses from all of them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.rollout.tasks import select_tasks
from agentgym_rl.runs.regular_files import MEGABYTE, read_regular
from agentgym_rl.types import Task

logger = logging.getLogger(__name__)

TaskName: TypeAlias = Task | str | int
"""A task, or its id as in a file."""
_MAX_BYTES = 64 * MEGABYTE
_ID = re.compile(r"(.+)[_/](\d{1,18})", re.DOTALL)


async def tasks_of(
    source: EnvSource, config: EnvConfig, spec: EnvSpec, *, tested: bool
) -> list[Task]:
    """Return the tasks to evaluate on (`tested`) or to train on. Raises ValueError as below."""
    lists = [await source.tasks(split) for split in task_splits(config, spec, tested=tested)]
    return choose_tasks(config, spec, [task for tasks in lists for task in tasks], tested=tested)


async def named_tasks(source: EnvSource, spec: EnvSpec, names: Sequence[TaskName]) -> list[Task]:
    """Return the tasks that a program names. Raises ValueError for what names none."""
    if all(isinstance(name, Task) for name in names):
        return find_tasks((), spec, names)
    lists = [await source.tasks(split) for split in spec.splits]
    return find_tasks([task for tasks in lists for task in tasks], spec, names)


def find_tasks(tasks: Sequence[Task], spec: EnvSpec, names: Sequence[TaskName]) -> list[Task]:
    """Return what `names` mean among `tasks`, each once: a task is itself, an id as in a file."""
    given = [
        name if isinstance(name, Task) else _index(name, spec, f"tasks, item {place}")
        for place, name in enumerate(names, start=1)
    ]
    wanted = [each for each in given if isinstance(each, int)]
    found = dict(zip(wanted, _numbered(tasks, spec, wanted, "tasks"), strict=True))
    return list(dict.fromkeys(found[each] if isinstance(each, int) else each for each in given))


def task_splits(config: EnvConfig, spec: EnvSpec, *, tested: bool) -> tuple[str, ...]:
    """Return the splits whose tasks `choose_tasks` needs: all, where a file chooses."""
    if config.eval_tasks_file if tested else config.tasks_file:
        return spec.splits
    return (config.eval_split if tested else config.split,)


def choose_tasks(
    config: EnvConfig, spec: EnvSpec, tasks: Sequence[Task], *, tested: bool
) -> list[Task]:
    """Return those of `tasks` that the recipe's files, categories and levels let through.

    Where only training has a file, evaluation leaves its tasks out. Raises ValueError for a file
    that cannot be read, and for an id of no task.
    """
    file = config.eval_tasks_file if tested else config.tasks_file
    setting = "env.eval_tasks_file" if tested else "env.tasks_file"
    if file:
        tasks = _listed(tasks, spec, file, setting)
    if tested and config.tasks_file:
        tasks = _apart(config, spec, tasks)
    return select_tasks(config, spec, tasks)


def _apart(config: EnvConfig, spec: EnvSpec, tasks: Sequence[Task]) -> list[Task]:
    """Return tasks to evaluate on without those trained on, unless a file names them."""
    trained = set(_indices(spec, config.tasks_file, "env.tasks_file"))
    rest = [task for task in tasks if task.index not in trained]
    if config.eval_tasks_file:
        if len(rest) < len(tasks):
            logger.warning(
                "%d of the %d tasks of %s are in %s as well: the evaluation is on tasks trained on",
                len(tasks) - len(rest), len(tasks), config.eval_tasks_file, config.tasks_file,
            )  # fmt: skip
        return list(tasks)
    if not rest:
        raise ValueError(
            f"env.tasks_file={config.tasks_file!r} has every task of split {config.eval_split!r}, "
            "so none is left to evaluate on: set env.eval_tasks_file, or eval.tasks=0"
        )
    return rest


def _listed(tasks: Sequence[Task], spec: EnvSpec, file: str, setting: str) -> list[Task]:
    """Return the tasks that a file names, in its order."""
    wanted = _indices(spec, file, setting)
    return _numbered(tasks, spec, wanted, f"{setting}={file!r}")


def _numbered(
    tasks: Sequence[Task], spec: EnvSpec, wanted: Sequence[int], given: str
) -> list[Task]:
    known: dict[int, Task] = {}
    for task in tasks:
        known.setdefault(task.index, task)
    unknown = [index for index in wanted if index not in known]
    if unknown:
        raise ValueError(
            f"{given}: {len(unknown)} of its {len(wanted)} ids are not tasks of "
            f"{spec.name}, such as {unknown[0]}; they are numbered {min(known, default=0)} to "
            f"{max(known, default=0)}"
        )
    return [known[index] for index in wanted]


def _indices(spec: EnvSpec, file: str, setting: str) -> list[int]:
    """Return the numbers of the tasks in a file, each once."""
    try:
        text = read_regular(Path(file).resolve(), max_bytes=_MAX_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise ValueError(f"{setting}={file!r} cannot be read: {error}") from error
    found = [
        _index(item, spec, f"{setting}={file!r}, item {place}")
        for place, item in enumerate(_items(text, f"{setting}={file!r}"), start=1)
    ]
    if not found:
        raise ValueError(f"{setting}={file!r} holds no ids of tasks")
    return list(dict.fromkeys(found))


def _items(text: str, given: str) -> Iterator[object]:
    try:
        if text.lstrip().startswith("["):
            yield from json.loads(text)
            return
        yield from (json.loads(line) for line in text.split("\n") if line.strip())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{given} is not a JSON list of ids: {error}") from error


def _index(item: object, spec: EnvSpec, given: str) -> int:
    name = item.get("item_id") if isinstance(item, dict) else item
    if isinstance(name, int) and not isinstance(name, bool) and name >= 0:
        return name
    found = _ID.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f'{given}: {item!r} is not the id of a task, such as "{spec.name}_12"')
    if found[1] != spec.name:
        raise ValueError(f"{given}: {name!r} is a task of {found[1]!r}, not of {spec.name!r}")
    return int(found[2])
