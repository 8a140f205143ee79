"""Fills the tracker: `seed`. Tickets, their histories and wiki pages are drawn from one seed."""

from __future__ import annotations

import random
import tomllib
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import trac.wiki
from trac.env import Environment
from trac.ticket.model import Component, Milestone, Ticket, Version
from trac.util.datefmt import to_utimestamp
from trac.wiki.admin import WikiAdmin
from trac.wiki.model import WikiPage

from agentgym_rl.envs.scenarios.web.projects import NOW

_NUM_TICKETS = 320
_FIRST = datetime(2022, 11, 1, 9, tzinfo=UTC)
_PRIORITIES = ["blocker", "critical", "major", "major", "major", "minor", "minor", "trivial"]
_ENDS = ["fixed", "fixed", "fixed", "fixed", "invalid", "wontfix", "duplicate", "worksforme"]
_TOPICS = ["printing", "crash reports", "the new icons", "translations", "the web gallery",
           "faster start", "keyboard shortcuts", "the test plan"]  # fmt: skip


def seed(env: Environment) -> None:
    content = tomllib.loads(Path(__file__).with_name("content.toml").read_text())
    draws = random.Random("tracker")
    with env.db_transaction:
        _people(env, content["people"])
        _replace_defaults(env, content)
        for number, when in enumerate(_moments(draws)):
            _ticket(env, content, draws, number, when)
    manual = Path(trac.wiki.__file__).parent / "default-pages"
    env[WikiAdmin].load_pages(str(manual), ["WikiStart"])
    env.db_transaction("UPDATE wiki SET time = %s", (to_utimestamp(_FIRST),))
    for page in [*content["pages"], *_meetings(content, draws)]:
        _write(env, page["name"], page["text"].strip() + "\n", draws.choice(["amara", "bjorn"]))


def _people(env: Environment, people: list[dict]) -> None:
    seen = int(NOW.timestamp())
    for person in people:
        values = {"name": person["full"], "email": f"{person['name']}@lantern.example"}
        env.db_transaction("INSERT INTO session VALUES (%s, 1, %s)", (person["name"], seen))
        for name, value in values.items():
            env.db_transaction(
                "INSERT INTO session_attribute VALUES (%s, 1, %s, %s)",
                (person["name"], name, value),
            )
        group = "leads" if person.get("is_lead") else "developers"
        env.db_transaction("INSERT INTO permission VALUES (%s, %s)", (person["name"], group))
    for group, action in [
        ("developers", "TICKET_BATCH_MODIFY"),
        ("developers", "TICKET_EDIT_DESCRIPTION"),
        ("leads", "developers"),
        ("leads", "MILESTONE_ADMIN"),
        ("leads", "TICKET_ADMIN"),
        ("leads", "REPORT_ADMIN"),
    ]:
        env.db_transaction("INSERT INTO permission VALUES (%s, %s)", (group, action))


def _replace_defaults(env: Environment, content: dict) -> None:
    """Put the project's components, versions and milestones in the place of Trac's examples."""
    for table in ("component", "version", "milestone"):
        env.db_transaction(f"DELETE FROM {table}")
    for entry in content["components"]:
        component = Component(env)
        component.name, component.owner = entry["name"], entry["owner"]
        component.description = entry["description"]
        component.insert()
    for entry in content["versions"]:
        version = Version(env)
        version.name, version.time = entry["name"], _noon(entry["time"])
        version.insert()
    for entry in content["milestones"]:
        milestone = Milestone(env)
        milestone.name, milestone.description = entry["name"], entry["description"]
        milestone.due = _noon(entry["due"])
        milestone.completed = _noon(entry["completed"]) if "completed" in entry else None
        milestone.insert()


def _noon(day: date) -> datetime:
    return datetime.combine(day, time(12), UTC)


def _moments(draws: random.Random) -> list[datetime]:
    """Return when tickets are reported, in order."""
    length = (NOW - timedelta(hours=6) - _FIRST).total_seconds()
    return sorted(
        _FIRST + timedelta(seconds=int(draws.random() * length)) for _ in range(_NUM_TICKETS)
    )


def _ticket(
    env: Environment, content: dict, draws: random.Random, number: int, when: datetime
) -> None:
    kind, summary, component = _subject(content, number)
    people = [person["name"] for person in content["people"]]
    texts = content["texts"]
    ticket = Ticket(env)
    ticket["type"], ticket["summary"], ticket["component"] = kind, summary, component["name"]
    ticket["reporter"], ticket["owner"] = draws.choice(people), component["owner"]
    ticket["priority"] = draws.choice(_PRIORITIES)
    out = [one["name"] for one in content["versions"] if _noon(one["time"]) < when]
    ticket["version"] = draws.choice(out[-2:]) if out and kind == "defect" else ""
    is_closed = draws.random() < min(0.85, (NOW - when).days / 420)
    ticket["milestone"] = "" if is_closed else draws.choice(["2.3", "2.3", "2.4", "3.0", ""])
    ticket["keywords"] = " ".join(sorted(draws.sample(texts["keywords"], draws.randint(0, 2))))
    ticket["description"] = " ".join(draws.sample(texts[kind], 2))
    ticket["status"] = "new"
    ticket.insert(when=when)
    _history(ticket, content, draws, when, is_closed=is_closed)


def _subject(content: dict, number: int) -> tuple[str, str, dict]:
    """Return type, summary and component of a ticket; no summary comes twice."""
    every = [
        (kind, pattern, component, part)
        for kind, patterns in content["summaries"].items()
        for pattern in patterns
        for component in content["components"]
        for part in component["parts"]
    ]
    random.Random("subjects").shuffle(every)
    kind, pattern, component, part = every[number]
    said = pattern.replace("{part}", part)
    return kind, said[0].upper() + said[1:], component


def _history(
    ticket: Ticket, content: dict, draws: random.Random, when: datetime, *, is_closed: bool
) -> None:
    """Let people comment a ticket, take it, and close it for the milestone that comes next."""
    people = [person["name"] for person in content["people"]]
    age = (NOW - when).total_seconds()
    moments = sorted(
        when + timedelta(seconds=int(age * 0.9 * draws.random() ** 2) + 600)
        for _ in range(draws.randint(1, 5))
    )
    for place, moment in enumerate(moments):
        author = draws.choice(people)
        if place == 0 and draws.random() < 0.6:
            author = ticket["owner"]
            ticket["status"] = "accepted" if draws.random() < 0.5 else "assigned"
        if is_closed and place == len(moments) - 1:
            author = ticket["owner"]
            ticket["status"], ticket["resolution"] = "closed", draws.choice(_ENDS)
            ticket["milestone"] = next(
                one["name"]
                for one in content["milestones"]
                if _noon(one.get("completed", one["due"])) > moment
            )
        ticket.save_changes(author, draws.choice(content["texts"]["comments"]), when=moment)


def _meetings(content: dict, draws: random.Random) -> list[dict[str, str]]:
    """Return notes of the meetings, on the first Tuesday of each month, and their list."""
    people = [person["name"] for person in content["people"]]
    days = []
    for month in range(6, 18):
        first = date(2023 + (month - 1) // 12, (month - 1) % 12 + 1, 1)
        days.append(first + timedelta(days=(1 - first.weekday()) % 7))
    pages, names = [], []
    for place, day in enumerate(days):
        present = sorted(draws.sample(people, draws.randint(5, 9)))
        first, second = draws.sample(_TOPICS, 2)
        minutes = draws.choice(present)
        text = (
            f"= Meeting of {day} =\n\n * Present: {', '.join(present)}\n"
            f" * Minutes: {minutes}\n * Next meeting: {_next(days, place)}\n\n"
            f"== Decisions ==\n\n 1. {first.capitalize()}: {draws.choice(people)} prepares "
            f"a proposal.\n 1. {second.capitalize()}: postponed.\n"
        )
        names.append(f"MeetingNotes/{day}")
        pages.append({"name": names[-1], "text": text})
    listed = "".join(f" * [wiki:{name} {name.rpartition('/')[2]}]\n" for name in reversed(names))
    pages.append({"name": "MeetingNotes", "text": f"= Monthly meetings =\n\n{listed}"})
    return pages


def _next(days: list[date], place: int) -> date:
    return days[place + 1] if place + 1 < len(days) else date(2024, 6, 4)


def _write(env: Environment, name: str, text: str, author: str) -> None:
    page = WikiPage(env, name)
    page.text = text
    page.save(author, "", t=NOW - timedelta(days=20))
