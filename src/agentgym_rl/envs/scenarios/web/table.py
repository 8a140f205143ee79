"""The tasks of all templates by number and split (`tasks_of`, `find`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from agentgym_rl.envs.scenarios.web.projects import SITES
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
_PER_SITE = 1000 * _PER_TEMPLATE


@dataclass(frozen=True, slots=True)
class Entry:
    """A task with its template and case."""

    task: Task
    template: Template
    case: Case


def tasks_of(split: str) -> tuple[Task, ...]:
    """Return the tasks of a split: the first case of every template, then the second, ..."""
    found = _entries(is_held_out=split == HELD_OUT)
    entries = [entry for entry in found.values() if entry.task.split == split]
    entries.sort(key=lambda entry: (entry.task.index % _PER_TEMPLATE, entry.task.index))
    return tuple(entry.task for entry in entries)


def find(index: int) -> Entry:
    """Return the entry of a task's number. Raises ValueError where there is none."""
    entry = _entries(is_held_out=index // _PER_SITE in _held_out_sites()).get(index)
    if entry is None:
        raise ValueError(f"web has no task {index}")
    return entry


@cache
def _held_out_sites() -> set[int]:
    """Return the numbers of the sites that only held-out tasks are on."""
    return {SITES[one.sites[0]].number for one in all_templates() if one.split == HELD_OUT}


@cache
def _entries(*, is_held_out: bool) -> dict[int, Entry]:
    """Return the tasks of the held-out sites, or of all others: each needs its own templates."""
    assert MAX_CASES <= _PER_TEMPLATE
    entries: dict[int, Entry] = {}
    for template in all_templates():
        if (template.split == HELD_OUT) != is_held_out:
            continue
        first = SITES[template.sites[0]].number * _PER_SITE + template.number * _PER_TEMPLATE
        cases = cases_of(template.name)
        for place, case in enumerate(cases):
            split = _split(template.split, place, len(cases))
            category = template.category or template.sites[0]
            task = Task(ENV_NAME, split, first + place, category, str(template.level))
            assert task.index not in entries, f"{template.name} has the number of another template"
            entries[task.index] = Entry(task, template, case)
    return entries


def _split(split: str, place: int, number: int) -> str:
    """Return where a case belongs; the values of one split are in no other."""
    if split in ("test", HELD_OUT):
        return split
    last_fifth = place >= number - max(1, number // 5)
    if last_fifth:
        return "test_values"
    before = place >= number - 2 * max(1, number // 5)
    return "test" if before and split == "both" else "train"
