"""Errands on the held-out tracker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.talk_steps import (
    find_topic,
    member_of,
    new_comments,
    post_comment,
    text,
    topics,
)
from agentgym_rl.envs.scenarios.web.tasks.tracker_steps import (
    LEAD,
    TrackerChanging,
    comment,
    developer,
    find_ticket,
    full_names,
    label,
    new_changes,
    new_pages,
    new_tickets,
    open_ticket,
    open_tickets,
    submit,
    tickets,
    to_top,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Outcome, Row, Seeded, Template

_REMARKS = [
    "I have seen this on two machines.",
    "A patch is on its way.",
    "Please attach a picture of the window.",
    "Works again after the last change.",
    "Let us talk about it on Tuesday.",
    "The cause is a missing index.",
    "I would wait for the next release.",
    "A test for this is written.",
    "Could you try it with an empty library?",
    "Same here with version 2.2.",
]
_PRIORITIES = ["blocker", "critical", "major", "minor", "trivial"]
_ENDS = ["fixed", "invalid", "wontfix", "worksforme"]
_NEW_TICKETS = [
    ("Thumbnails are blurred on wide screens", "defect", "interface", "minor"),
    ("Allow two cards to be read at once", "enhancement", "import", "major"),
    ("Update the list of cameras", "task", "import", "trivial"),
    ("Rotation is lost after export", "defect", "export", "critical"),
    ("Search by lens", "enhancement", "search", "minor"),
    ("Move the backups to another disk", "task", "catalogue", "major"),
    ("Names with commas are cut", "defect", "tags", "major"),
    ("Show who changed a picture last", "enhancement", "sync", "trivial"),
    ("Sign the installer for Windows", "task", "packaging", "blocker"),
    ("Sharpening runs twice", "defect", "editing", "critical"),
]
_NEW_PAGES = [
    ("TravelCosts", "Send receipts to Rosa until the tenth of the month."),
    ("OfficeKeys", "There are four keys. Björn has the list."),
    ("PressContacts", "Please let Amara answer questions of the press."),
    ("CameraLoans", "Cameras can be borrowed for two weeks."),
    ("TestLibraries", "The large test library has 80,000 pictures."),
    ("NamingRules", "Branches are named after their tickets."),
    ("PrinterSetup", "Use the tray at the back for photo paper."),
    ("VideoCalls", "Calls begin at five past the hour."),
    ("CodeReviews", "Every change is read by two people."),
    ("MailingLists", "Write to the list before you close a discussion."),
]


def remark(place: int) -> str:
    return _REMARKS[place % len(_REMARKS)]


class AddComment(TrackerChanging):
    """Comment a ticket."""

    name = "tracker-comment"
    number = 20
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, open_tickets(seeded))):
            user, said = developer(seeded, place), remark(place)
            yield Case(
                f"Add this comment to ticket #{row[0]}: {said}",
                users={"tracker": user},
                values={"ticket": row[0], "said": said, "user": user},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = (case.values["ticket"], case.values["user"], "comment", case.values["said"])
        return new_changes(outcome) == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_ticket(page, case.values["ticket"])
        yield from comment(page, text(case, "said"))
        yield from submit(page)
        yield from page.done()


class NewTicket(TrackerChanging):
    """Report something."""

    name = "tracker-new-ticket"
    number = 21
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, entry in enumerate(seeded.some(self, _NEW_TICKETS)):
            summary, kind, component, priority = entry
            user = developer(seeded, place)
            yield Case(
                f'Create a ticket with the summary "{summary}": type {kind}, component '
                f"{component}, priority {priority}. Its description is: {remark(place + 3)}",
                users={"tracker": user},
                values={
                    "summary": summary,
                    "type": kind,
                    "component": component,
                    "priority": priority,
                    "said": remark(place + 3),
                    "user": user,
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        names = ("summary", "type", "component", "priority", "said", "user")
        return new_tickets(outcome) == [tuple(case.values[name] for name in names)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "New ticket")
        yield from page.type("textbox", "Summary:", text(case, "summary"), enter=False)
        described = "Description: You may use WikiFormatting here."
        yield from page.type("textbox", described, text(case, "said"), enter=False)
        for field in ("Type", "Component", "Priority"):
            yield from page.select(f"{field}:", text(case, field.lower()))
        yield from page.click("button", "Create ticket")
        yield from page.done()


class SetPriority(TrackerChanging):
    """Change the priority of a ticket."""

    name = "tracker-set-priority"
    number = 22
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, open_tickets(seeded))):
            others = [one for one in _PRIORITIES if one != row[3]]
            user, priority = developer(seeded, place), others[place % len(others)]
            yield Case(
                f'Set the priority of the ticket "{row[1]}" to {priority}.',
                users={"tracker": user},
                values={
                    "ticket": row[0],
                    "summary": row[1],
                    "label": label(row),
                    "priority": priority,
                    "user": user,
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = (case.values["ticket"], case.values["user"], "priority", case.values["priority"])
        return new_changes(outcome) == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_ticket(page, text(case, "summary"), text(case, "label"))
        yield from page.click("link", "Modify")
        yield from page.select("Priority:", text(case, "priority"))
        yield from submit(page)
        yield from page.done()


class Resolve(TrackerChanging):
    """Close a ticket."""

    name = "tracker-resolve"
    number = 23
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, open_tickets(seeded))):
            end = _ENDS[place % len(_ENDS)]
            user = developer(seeded, place)
            yield Case(
                f"Resolve ticket #{row[0]} as {end}.",
                users={"tracker": user},
                values={"ticket": row[0], "end": end, "user": user},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        ticket, user = case.values["ticket"], case.values["user"]
        return new_changes(outcome) == [
            (ticket, user, "resolution", case.values["end"]),
            (ticket, user, "status", "closed"),
        ]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_ticket(page, case.values["ticket"])
        yield from resolve_as(page, text(case, "end"))
        yield from submit(page)
        yield from page.done()


def resolve_as(page: Page, end: str) -> Script:
    """Choose how a ticket is closed, in the form below the ticket that is open."""
    yield from page.click("link", "Modify")
    yield from page.click("radio", "resolve")
    yield from page.select(None, end, near="worksforme")


class WritePage(TrackerChanging):
    """Write a page of the wiki."""

    name = "tracker-write-page"
    number = 24
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, (name, said) in enumerate(seeded.some(self, _NEW_PAGES)):
            user = developer(seeded, place)
            yield Case(
                f"Create the wiki page {name} (its address is http://tracker.test/wiki/{name}) "
                f"with this text: {said}",
                users={"tracker": user},
                values={"name": name, "said": said, "user": user},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return new_pages(outcome) == [tuple(case.values[one] for one in ("name", "said", "user"))]

    def expert(self, case: Case, page: Page) -> Script:
        yield from write_page(page, text(case, "name"), text(case, "said"))
        yield from page.done()


def write_page(page: Page, name: str, said: str) -> Script:
    yield from page.goto(f"http://tracker.test/wiki/{name}")
    yield from page.click("button", "Create this page")
    yield from page.reach("textbox", "", nth=1)  # the first one is the search field
    yield f"type [{page.find('textbox', '', nth=1)}] [{said}] [0]"
    yield from submit(page)


class Duplicate(TrackerChanging):
    """Close a ticket as the duplicate of another and say so in both."""

    name = "tracker-duplicate"
    number = 40
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, open_tickets(seeded), 40)
        for place, (first, second) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
            user = developer(seeded, place)
            yield Case(
                f"Resolve ticket #{first[0]} as duplicate with the comment "
                f'"Duplicate of #{second[0]}.", and add the comment '
                f'"See also #{first[0]}." to ticket #{second[0]}.',
                users={"tracker": user},
                values={"first": first[0], "second": second[0], "user": user},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        first, second, user = (case.values[name] for name in ("first", "second", "user"))
        wanted: list[Row] = [
            (first, user, "comment", f"Duplicate of #{second}."),
            (first, user, "resolution", "duplicate"),
            (first, user, "status", "closed"),
            (second, user, "comment", f"See also #{first}."),
        ]
        return sorted(new_changes(outcome), key=str) == sorted(wanted, key=str)

    def expert(self, case: Case, page: Page) -> Script:
        first, second = case.values["first"], case.values["second"]
        yield from open_ticket(page, first)
        yield from resolve_as(page, "duplicate")
        yield from comment(page, f"Duplicate of #{second}.")
        yield from submit(page)
        yield from open_ticket(page, second)
        yield from comment(page, f"See also #{first}.")
        yield from submit(page)
        yield from page.done()


class NewMilestone(TrackerChanging):
    """Make a milestone and move a ticket there, as a lead."""

    name = "tracker-new-milestone"
    number = 41
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        ((num_before,),) = seeded.rows("tracker", "SELECT count(*) FROM milestone")
        for place, row in enumerate(seeded.some(self, open_tickets(seeded))):
            name = f"2.{place // 2 + 5}.{place % 2 + 1}"
            yield Case(
                f"Create the milestone {name} (without a due date), and then set the milestone of "
                f"ticket #{row[0]} to it.",
                users={"tracker": LEAD},
                values={"ticket": row[0], "name": name, "num_before": num_before},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "tracker", "SELECT name, due, completed FROM milestone ORDER BY rowid", ()
        )
        made = rows[int(text(case, "num_before")) :]
        wanted = (case.values["ticket"], LEAD, "milestone", case.values["name"])
        return made == [(case.values["name"], 0, 0)] and new_changes(outcome) == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Roadmap")
        yield from page.click("button", "Add new milestone")
        yield from page.type("textbox", "Name:", text(case, "name"), enter=False)
        yield from page.click("button", "Add milestone")
        yield from open_ticket(page, case.values["ticket"])
        yield from page.click("link", "Modify")
        yield from page.select("Milestone:", text(case, "name"))
        yield from submit(page)
        yield from page.done()


class PageAndTicket(TrackerChanging):
    """Write a page of the wiki and name it in a ticket."""

    name = "tracker-page-and-comment"
    number = 42
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, open_tickets(seeded), 10)
        for place, (row, (name, said)) in enumerate(zip(rows, _NEW_PAGES, strict=True)):
            user = developer(seeded, place)
            yield Case(
                f"Create the wiki page {name} (its address is http://tracker.test/wiki/{name}) "
                f"with the text: {said} Then add the comment "
                f'"See wiki:{name}" to ticket #{row[0]}.',
                users={"tracker": user},
                values={"name": name, "said": said, "ticket": row[0], "user": user},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        name, said, ticket, user = (case.values[one] for one in ("name", "said", "ticket", "user"))
        is_written = new_pages(outcome) == [(name, said, user)]
        return is_written and new_changes(outcome) == [
            (ticket, user, "comment", f"See wiki:{name}")
        ]

    def expert(self, case: Case, page: Page) -> Script:
        yield from write_page(page, text(case, "name"), text(case, "said"))
        yield from open_ticket(page, case.values["ticket"])
        yield from comment(page, f"See wiki:{case.values['name']}")
        yield from submit(page)
        yield from page.done()


class TellForum(TrackerChanging):
    """Look up the owner of a ticket and tell the forum."""

    name = "tracker-tell-forum"
    number = 43
    sites: ClassVar = ("tracker", "talk")
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        names = full_names(seeded)
        rows = seeded.some(self, tickets(seeded))
        places = seeded.some(self, topics(seeded))
        for place, (row, topic) in enumerate(zip(rows, places, strict=True)):
            member = member_of(seeded, place)
            yield Case(
                f"Find out the full name of the person who owns ticket #{row[0]}, and post it, "
                f'without anything else, as a comment in the topic "{topic[1]}" of the forum at '
                "http://talk.test/",
                users={"tracker": developer(seeded, place), "talk": member},
                values={
                    "ticket": row[0],
                    "said": names[str(row[8])],
                    "topic": topic[0],
                    "title": topic[1],
                    "member": member,
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = (case.values["topic"], case.values["member"], case.values["said"])
        return new_comments(outcome) == [wanted] and not new_changes(outcome)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_ticket(page, case.values["ticket"])
        yield from page.read(text(case, "said"))
        yield from to_top(page)
        yield from page.goto("http://talk.test/")
        yield from find_topic(page, text(case, "title"))
        yield from post_comment(page, text(case, "said"))
        yield from page.done()


TEMPLATES: list[Template] = [
    AddComment(),
    NewTicket(),
    SetPriority(),
    Resolve(),
    WritePage(),
    Duplicate(),
    NewMilestone(),
    PageAndTicket(),
    TellForum(),
]
