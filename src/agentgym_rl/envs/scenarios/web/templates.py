"""What a template of tasks is (`Template`), and the table of all of them (`all_templates`).

A template makes tasks from the seeded database of its sites: `cases` yields one `Case` per task, in
an order that never changes. It says whether an episode solved a case (`check`), how an expert does
(`expert`, a script on the real pages, see page.py), and which near misses must not count (`wrong`).

Writing one: subclass `Reading` where the task is a question and `Changing` where the task is to
change something, in a file of tasks/, and add an object of it to the file's TEMPLATES.

    class NumReviews(Reading):
        name = "shop-num-reviews"
        level = 1

        def cases(self, seeded):
            rows = seeded.rows("shop", "SELECT id, slug, title, num FROM ... ORDER BY id")
            for number, slug, title, num in seeded.some(self, rows):
                yield Case(f"How many reviews does {title} have?", answer=str(num),
                           path=f"/catalogue/{slug}_{number}/")

        def expert(self, case, page):
            yield from page.answer(case.answer, shown=f"{case.answer} reviews")
"""

from __future__ import annotations

import importlib
import itertools
import random
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, TypeVar

from agentgym_rl.envs.scenarios.web.answers import says
from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.projects import SITES, database_of
from agentgym_rl.envs.scenarios.web.site_process import Row, Value

T = TypeVar("T")
_reading = threading.Lock()

MAX_CASES = 20
"""Tasks of one template."""
_TASK_FILES = (
    "shop_reading",
    "shop_changing",
    "shop_account",
    "shop_basket",
    "shop_reviews",
    "office_reading",
    "office_changing",
    "office_products",
    "office_orders",
    "office_offers",
    "office_content",
    "forum_reading",
    "forum_changing",
    "code_reading",
    "code_changing",
    "map_tasks",
    "map_lookups",
    "map_saving",
    "wiki_tasks",
    "wiki_lookups",
    "wiki_watching",
    "two_sites",
    "two_sites_errands",
    "talk_reading",
    "talk_changing",
    "tracker_reading",
    "tracker_changing",
    "forum_finding",
    "forum_errands",
    "code_finding",
    "code_errands",
    "code_planning",
)
"""Modules of tasks/; each has TEMPLATES."""


@dataclass(frozen=True, slots=True)
class Case:
    """One task."""

    objective: str
    """What the agent is told to do, with everything it needs to know."""
    answer: str = ""
    """What a right answer says; empty where none is asked for."""
    path: str = "/"
    """Where the first site is opened."""
    users: Mapping[str, str] = field(default_factory=dict)
    """Site -> name of the user who is logged in there from the start."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """Whatever `check` and `expert` need to know of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an episode ended."""

    answer: str
    url: str
    """Of the page that was open."""
    query: Callable[[str, str, Sequence[Value]], list[Row]]
    """`query(site, sql, parameters)` reads the episode's database."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A near miss, which must not count: what is done, and the answer at the end."""

    name: str
    answer: str
    leaves_out: int | None = None
    """The expert's actions without this many of the last ones; None is no action at all."""
    of_other: Case | None = None
    """Whose expert acts instead, to the end."""


class Seeded:
    """The databases that episodes begin with, read-only."""

    def rows(self, site: str, sql: str, *parameters: Value) -> list[Row]:
        """Return what a query finds. Order it: two versions of SQLite may differ otherwise."""
        with _reading:  # episodes begin on many threads, and a connection serves one at a time
            return _seeded(SITES[site].project).execute(sql, parameters).fetchall()

    def some(self, template: Template, rows: Sequence[T], number: int = MAX_CASES) -> list[T]:
        """Return some of the rows, drawn the same way every time."""
        draws = random.Random(template.name)
        return draws.sample(rows, min(number, len(rows)))


class Template(ABC):
    """A kind of task. Has no state: what differs between tasks is in their cases."""

    name: ClassVar[str]
    """Begins with its site, unique, never changed."""
    number: ClassVar[int]
    """Within its site, unique, never changed: tasks are numbered by it."""
    sites: ClassVar[tuple[str, ...]]
    """Where it plays; the first one is open at the start."""
    category: ClassVar[str] = ""
    """What it is reported under; empty is the first site."""
    level: ClassVar[int]
    """1: on the start page. 2: one click or search away. 3: several pages, filters or sorting.
    4: one form that changes something. 5: several changes, or two sites."""
    split: ClassVar[str] = "both"
    """"train" or "test"; at levels 1 and 2 "both", which share no values; "heldout" for sites that
    nothing is trained on."""

    @abstractmethod
    def cases(self, seeded: Seeded) -> Iterable[Case]:
        """Yield the tasks, always the same, at least 10; those after `MAX_CASES` are not used."""

    @abstractmethod
    def check(self, case: Case, outcome: Outcome) -> bool:
        """Return whether the episode solved the case."""

    @abstractmethod
    def expert(self, case: Case, page: Page) -> Script:
        """Yield the actions of an expert, `stop` included."""

    @abstractmethod
    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        """Return at least three near misses; `other` is another case of this template."""


class Reading(Template):
    """A question; nothing has to be changed."""

    def check(self, case: Case, outcome: Outcome) -> bool:
        return says(outcome.answer, case.answer)

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        different = other.answer if not says(other.answer, case.answer) else f"not {case.answer}"
        return (
            Wrong("no action", ""),
            Wrong("another answer", different),
            Wrong("two answers", f"{case.answer} or {different}"),
        )


class Changing(Template):
    """Something has to be changed, which `check` looks up in the database."""

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        return (
            Wrong("no action", case.answer or "done"),
            Wrong("half done", case.answer or "done", leaves_out=1),
            Wrong("another change", case.answer or "done", of_other=other),
        )


@cache
def all_templates() -> tuple[Template, ...]:
    """Return every template of tasks/."""
    found = list[Template]()
    for name in _TASK_FILES:
        module = importlib.import_module(f"{__package__}.tasks.{name}")
        found += module.TEMPLATES
    return tuple(found)


@cache
def cases_of(name: str) -> tuple[Case, ...]:
    """Return the cases of a template, read once."""
    (template,) = (one for one in all_templates() if one.name == name)
    return tuple(itertools.islice(template.cases(Seeded()), MAX_CASES))


@cache
def _seeded(project: str) -> sqlite3.Connection:
    """Open a seeded database; what a project keeps beside it has the name of its file."""
    path = database_of(project)
    opened = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    for beside in sorted(path.parent.glob("*.sqlite3")):
        if beside != path:
            place = f"file:{beside}?mode=ro&immutable=1"
            opened.execute(f'ATTACH DATABASE ? AS "{beside.stem}"', (place,))
    return opened
