"""What templates of the held-out tracker share: queries of its tables, and steps of experts."""

from __future__ import annotations

from typing import ClassVar

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.projects import NOW
from agentgym_rl.envs.scenarios.web.tasks.talk_steps import to_top
from agentgym_rl.envs.scenarios.web.templates import Changing, Outcome, Reading, Row, Seeded

LEAD = "amara"
FIRST = int(NOW.timestamp()) * 1_000_000
"""When episodes begin, in Trac's microseconds: what is younger, the episode made."""
_TICKETS = """
SELECT t.id, t.summary, t.type, t.priority, t.component, t.milestone, t.status, t.resolution,
    t.owner, t.reporter
FROM ticket t WHERE {condition} ORDER BY t.id
"""


class TrackerReading(Reading):
    """A question about the tracker."""

    sites: ClassVar = ("tracker",)
    category = "held-out"
    split = "heldout"


class TrackerChanging(Changing):
    """Something to do in the tracker."""

    sites: ClassVar = ("tracker",)
    category = "held-out"
    split = "heldout"


def tickets(seeded: Seeded, condition: str = "1") -> list[Row]:
    """Return (id, summary, type, priority, component, milestone, status, resolution, owner,
    reporter)."""
    return seeded.rows("tracker", _TICKETS.format(condition=condition))


def open_tickets(seeded: Seeded) -> list[Row]:
    return tickets(seeded, "t.status <> 'closed'")


def full_names(seeded: Seeded) -> dict[str, str]:
    """Return user -> name as pages show it."""
    rows = seeded.rows(
        "tracker", "SELECT sid, value FROM session_attribute WHERE name = 'name' ORDER BY sid"
    )
    return {str(user): str(name) for user, name in rows}


def developer(seeded: Seeded, place: int) -> str:
    """Return a user who is not a lead."""
    names = [name for name in full_names(seeded) if name not in ("amara", "bjorn")]
    return names[place % len(names)]


def label(row: Row) -> str:
    """Return how a search names a ticket."""
    ended = f": {row[7]}" if row[7] else ""
    return f"#{row[0]}: {row[2]}: {row[1]} ({row[6]}{ended})"


def new_changes(outcome: Outcome) -> list[Row]:
    """Return (ticket, user, field, new value) of what was changed; empty comments are not."""
    rows = outcome.query(
        "tracker",
        """SELECT ticket, author, field, trim(replace(COALESCE(newvalue, ''), char(13), ''))
        FROM ticket_change WHERE time >= ? ORDER BY ticket, field""",
        (FIRST,),
    )
    return [row for row in rows if row[2] != "comment" or row[3]]


def new_tickets(outcome: Outcome) -> list[Row]:
    """Return (summary, type, component, priority, description, reporter) of new tickets."""
    return outcome.query(
        "tracker",
        """SELECT summary, type, component, priority,
        trim(replace(description, char(13), '')), reporter FROM ticket WHERE time >= ?""",
        (FIRST,),
    )


def new_pages(outcome: Outcome) -> list[Row]:
    """Return (name, text, author) of pages that were written."""
    return outcome.query(
        "tracker",
        """SELECT name, trim(replace(text, char(13), ''), char(10) || ' '), author FROM wiki
        WHERE time >= ? ORDER BY name""",
        (FIRST,),
    )


def search(page: Page, words: str) -> Script:
    """Type into the field that every page has at its top, which has no name."""
    yield from to_top(page)
    yield from page.type("textbox", "", words)


def open_ticket(page: Page, number: object) -> Script:
    yield from search(page, f"#{number}")


def find_ticket(page: Page, summary: str, shown: str) -> Script:
    """Search for a ticket by its summary and open it."""
    yield from search(page, summary)
    yield from page.click("link", shown)


def comment(page: Page, said: str) -> Script:
    yield from page.type("textbox", "You may use WikiFormatting here.", said, enter=False)


def submit(page: Page) -> Script:
    yield from page.click("button", "Submit changes")
