"""The tasks of all templates by number and split (`tasks_of`, `find`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from agentgym_rl.envs.scenarios.web.projects import SITES, build_missing
from agentgym_rl.envs.scenarios.web.templates import (
    MAX_CASES,
    Case,
    Template,
    all_templates,
    cases_of,
)
from agentgym_rl.types import Task

ENV_NAME = "web"
HELD_OUT = "heldout"
SPLITS = ("train", "test", "test_values", HELD_OUT)
"""`test` has templates of its own from level 3 on; `test_values` has those of `train` with other
values; `heldout` has sites of its own, which no other split has."""
CATEGORIES = ("shop", "backoffice", "forum", "code", "map", "wiki", "held-out")
_PER_TEMPLATE = 100
_PER_SITE = 1000
"""Templates."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A task with its template and case."""

    task: Task
    template: Template
    case: Case


def tasks_of(split: str) -> tuple[Task, ...]:
    """Return the tasks of a split: the first case of every template, then the second, ..."""
    is_held_out = split == HELD_OUT
    templates = [one for one in all_templates() if (one.split == HELD_OUT) == is_held_out]
    build_missing(SITES[site].project for template in templates for site in template.sites)
    tasks = [
        entry.task
        for template in templates
        for entry in entries_of(template)
        if entry.task.split == split
    ]
    return tuple(sorted(tasks, key=lambda task: (task.index % _PER_TEMPLATE, task.index)))


def find(index: int) -> Entry:
    """Return the entry of a task's number. Raises ValueError where there is none."""
    number, place = divmod(index, _PER_TEMPLATE)
    template = _numbered().get(number)
    entries = entries_of(template) if template is not None else ()
    if place >= len(entries):
        raise ValueError(f"web has no task {index}")
    return entries[place]


@cache
def entries_of(template: Template) -> tuple[Entry, ...]:
    """Return the tasks of one template, for which only its own sites need to be built."""
    assert MAX_CASES <= _PER_TEMPLATE
    cases = cases_of(template.name)
    category = template.category or template.sites[0]
    entries = list[Entry]()
    for place, case in enumerate(cases):
        split = _split(template.split, place, len(cases))
        index = _number(template) * _PER_TEMPLATE + place
        task = Task(ENV_NAME, split, index, category, str(template.level))
        entries.append(Entry(task, template, case))
    return tuple(entries)


@cache
def _numbered() -> dict[int, Template]:
    """Return all templates by their numbers."""
    found: dict[int, Template] = {}
    for template in all_templates():
        other = found.setdefault(_number(template), template)
        assert other is template, f"{template.name} has the number of {other.name}"
    return found


def _number(template: Template) -> int:
    return SITES[template.sites[0]].number * _PER_SITE + template.number


def _split(split: str, place: int, number: int) -> str:
    """Return where a case belongs; the values of one split are in no other."""
    if split in ("test", HELD_OUT):
        return split
    last_fifth = place >= number - max(1, number // 5)
    if last_fifth:
        return "test_values"
    before = place >= number - 2 * max(1, number // 5)
    return "test" if before and split == "both" else "train"
