"""Questions that are answered on the held-out tracker."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.tracker_steps import (
    TrackerReading,
    developer,
    find_ticket,
    full_names,
    label,
    search,
    tickets,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Seeded, Template

_FIELDS = {"type": 2, "priority": 3, "component": 4, "milestone": 5}
_ROW = re.compile(r"^\|\| (\w+) \|\| (.+?) \|\| (.+?) \|\| (\w+) \|\|$", re.MULTILINE)
_MINUTES = re.compile(r"Minutes: (\w+)")


class FieldHere(TrackerReading):
    """What does a ticket say, on the page that is open?"""

    name = "tracker-field-here"
    number = 1
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = tickets(seeded, "t.milestone <> ''")
        for place, row in enumerate(seeded.some(self, rows)):
            field = list(_FIELDS)[place % len(_FIELDS)]
            yield Case(
                f"What is the {field} of this ticket?",
                str(row[_FIELDS[field]]),
                path=f"/ticket/{row[0]}",
                users={"tracker": developer(seeded, place)},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer)


class TicketNumber(TrackerReading):
    """Which number does a ticket have?"""

    name = "tracker-ticket-number"
    number = 2
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, tickets(seeded))):
            yield Case(
                f'What is the number of the ticket "{row[1]}"?',
                str(row[0]),
                users={"tracker": developer(seeded, place)},
                values={"summary": row[1], "label": label(row)},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from search(page, str(case.values["summary"]))
        yield from page.answer(case.answer, shown=str(case.values["label"]))


class BuildServer(TrackerReading):
    """What does the wiki say about a build server?"""

    name = "tracker-build-server"
    number = 3
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        ((text,),) = seeded.rows("tracker", "SELECT text FROM wiki WHERE name = 'BuildServers'")
        questions = [
            question
            for server, system, memory, person in _ROW.findall(str(text))
            for question in (
                (f"Which system does the build server {server} run?", system),
                (f"Who looks after the build server {server}?", person),
                (f"How much memory does the build server {server} have?", memory),
            )
        ]
        for place, (question, answer) in enumerate(seeded.some(self, questions)):
            yield Case(question, answer, users={"tracker": developer(seeded, place)})

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Build servers")
        yield from page.answer(case.answer)


class Reporter(TrackerReading):
    """Who reported a ticket?"""

    name = "tracker-reporter"
    number = 4
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        names = full_names(seeded)
        for place, row in enumerate(seeded.some(self, tickets(seeded))):
            yield Case(
                f'Who reported the ticket "{row[1]}"? Give the full name.',
                names[str(row[9])],
                users={"tracker": developer(seeded, place)},
                values={"summary": row[1], "label": label(row)},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_ticket(page, str(case.values["summary"]), str(case.values["label"]))
        yield from page.answer(case.answer)


class InMilestone(TrackerReading):
    """How many tickets of a component does a milestone have?"""

    name = "tracker-in-milestone"
    number = 5
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "tracker",
            """SELECT t.milestone, t.component, count(*) FROM ticket t
            JOIN milestone m ON m.name = t.milestone WHERE m.completed = 0
            GROUP BY 1, 2 ORDER BY 1, 2""",
        )
        for place, (milestone, component, number) in enumerate(seeded.some(self, rows)):
            yield Case(
                f"How many tickets of the component {component}, active and closed, does the "
                f"milestone {milestone} have?",
                str(number),
                users={"tracker": developer(seeded, place)},
                values={"milestone": milestone, "component": component},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Roadmap")
        yield from page.click("link", f"Milestone: {case.values['milestone']}")
        yield from page.reach("link", str(case.values["component"]))
        yield from page.answer(case.answer, shown=f"/ {case.answer}")


class QueryCount(TrackerReading):
    """How many open tickets of a kind are there?"""

    name = "tracker-query-count"
    number = 6
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "tracker",
            """SELECT component, type, count(*) FROM ticket WHERE status <> 'closed'
            GROUP BY 1, 2 ORDER BY 1, 2""",
        )
        for place, (component, kind, number) in enumerate(seeded.some(self, rows)):
            yield Case(
                f"How many tickets of the type {kind} in the component {component} are not closed?",
                str(number),
                users={"tracker": developer(seeded, place)},
                values={"component": component, "type": kind},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "View tickets")
        yield from page.click("link", "New Custom Query")
        yield from page.click("button", None, near="| Owner |")
        for field in ("Component", "Type"):
            yield from page.select("And", field)
            value = str(case.values[field.lower()])
            yield from page.select(None, value, near=f"| {field} |", nth=1)
        yield from page.click("button", "Update")
        yield from page.answer(case.answer, shown=f"({case.answer} match")


class Minutes(TrackerReading):
    """Who took the minutes of a meeting?"""

    name = "tracker-minutes"
    number = 7
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "tracker", "SELECT name, text FROM wiki WHERE name LIKE 'MeetingNotes/%' ORDER BY name"
        )
        for place, (name, text) in enumerate(seeded.some(self, rows)):
            day = str(name).rpartition("/")[2]
            found = _MINUTES.search(str(text))
            assert found is not None, name
            yield Case(
                f"Who took the minutes of the monthly meeting of {day}?",
                found[1],
                users={"tracker": developer(seeded, place)},
                values={"day": day},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Notes of the monthly meetings")
        yield from page.click("link", str(case.values["day"]))
        yield from page.answer(case.answer, shown=f"Minutes: {case.answer}")


TEMPLATES: list[Template] = [
    FieldHere(),
    TicketNumber(),
    BuildServer(),
    Reporter(),
    InMilestone(),
    QueryCount(),
    Minutes(),
]
