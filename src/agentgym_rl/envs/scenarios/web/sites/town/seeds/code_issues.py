"""Issues, labels, milestones, merge requests and notes of a project: `Tracker`."""

from __future__ import annotations

import random
import re
import sqlite3
from datetime import datetime, timedelta

from agentgym_rl.envs.scenarios.web.sites.town.seeds.code_files import Sources
from agentgym_rl.envs.scenarios.web.sites.town.seeds.people import Person, words

LABELS = (
    ("bug", "#d1242f", "Something does not work"),
    ("documentation", "#0969da", "Texts and examples"),
    ("feature", "#1a7f37", "Something new"),
    ("good first issue", "#8250df", "Small and well described"),
    ("maintenance", "#6e7781", "Keeps the project healthy"),
    ("needs info", "#bf8700", "Waiting for the reporter"),
    ("urgent", "#a40e26", "Before anything else"),
)
_KINDS = {"bug": "bug", "feature": "feature", "docs": "documentation", "chore": "maintenance"}
_WEIGHTS = (5, 4, 2, 2)
_SLOT = re.compile(r"\{(\w+)\}")


class Tracker:
    """Writes what people plan and discuss in projects."""

    def __init__(self, database: sqlite3.Connection, rng: random.Random, now: datetime) -> None:
        self._database = database
        self._rng = rng
        self._now = now
        data = words("projects")["issues"]
        assert isinstance(data, dict)
        self._phrases = data
        self._labels: dict[str, int] = {}
        self._milestones: list[int] = []

    def fill(self, project_id: int, sources: Sources, team: list[Person]) -> None:
        """Write labels, milestones and issues of a project."""
        self._write_labels(project_id)
        self._write_milestones(project_id)
        taken = set[str]()
        moments = sorted(
            self._now - timedelta(days=300 * self._rng.random(), minutes=self._rng.randrange(900))
            for _ in range(self._rng.randrange(9, 21))
        )
        for moment in moments:
            kind = self._rng.choices(list(_KINDS), _WEIGHTS)[0]
            title = self._text(f"{kind}_titles", sources)
            while title in taken:
                title = self._text(f"{kind}_titles", sources)
            taken.add(title)
            self._issue(project_id, len(taken), kind, title, sources, team, moment)

    def _write_labels(self, project_id: int) -> None:
        self._labels = {}
        for name, color, description in LABELS:
            cursor = self._database.execute(
                "INSERT INTO code_label (project_id, name, color, description) VALUES (?,?,?,?)",
                (project_id, name, color, description),
            )
            self._labels[name] = cursor.lastrowid or 0

    def _write_milestones(self, project_id: int) -> None:
        self._milestones = []
        first = self._rng.randrange(1, 4)
        for number in range(self._rng.randrange(2, 4)):
            due = self._now + timedelta(days=45 * number + self._rng.randrange(-20, 25))
            is_closed = number == 0 and due < self._now
            cursor = self._database.execute(
                "INSERT INTO code_milestone (project_id, title, description, due, is_closed)"
                " VALUES (?,?,?,?,?)",
                (project_id, f"v{first}.{number}", f"Release {first}.{number}",
                 due.date().isoformat(), is_closed),
            )  # fmt: skip
            self._milestones.append(cursor.lastrowid or 0)

    def _issue(
        self,
        project_id: int,
        iid: int,
        kind: str,
        title: str,
        sources: Sources,
        team: list[Person],
        created: datetime,
    ) -> None:
        rng = self._rng
        is_open = rng.random() < 0.6
        notes, moment = [], created
        for _ in range(min(6, int(rng.expovariate(0.5)))):
            moment += (self._now - moment) * rng.random() * 0.4
            notes.append((rng.choice(team).id, self._text("notes", sources), moment))
        closed = moment + (self._now - moment) * rng.random() * 0.5 if not is_open else None
        author = rng.choice(team)
        assignee = rng.choice(team).id if rng.random() < 0.6 else None
        milestone = rng.choice(self._milestones) if rng.random() < 0.45 else None
        cursor = self._database.execute(
            "INSERT INTO code_issue (project_id, iid, title, description, author_id, assignee_id,"
            " milestone_id, is_open, due, created, updated, closed)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (project_id, iid, title, self._text(f"{kind}_bodies", sources), author.id, assignee,
             milestone, is_open, None, _at(created), _at(closed or moment),
             _at(closed) if closed else None),
        )  # fmt: skip
        issue_id = cursor.lastrowid
        names = {_KINDS[kind]}
        names |= {
            name for name in ("good first issue", "needs info", "urgent") if rng.random() < 0.13
        }
        self._database.executemany(
            "INSERT INTO code_issue_labels (issue_id, label_id) VALUES (?,?)",
            [(issue_id, self._labels[name]) for name in sorted(names)],
        )
        self._database.executemany(
            "INSERT INTO code_note (issue_id, author_id, body, is_system, created)"
            " VALUES (?,?,?,0,?)",
            [(issue_id, author_id, body, _at(when)) for author_id, body, when in notes],
        )
        if closed:
            self._database.execute(
                "INSERT INTO code_note (issue_id, author_id, body, is_system, created)"
                " VALUES (?,?,'closed this issue',1,?)",
                (issue_id, (rng.choice(team)).id, _at(closed)),
            )

    def merge_request(
        self,
        project_id: int,
        sources: Sources,
        team: list[Person],
        what: tuple[int, str, str, int, int, Person, str, Person, datetime],
    ) -> None:
        """Write a merge request with reviews."""
        rng = self._rng
        iid, title, branch, head, base, author, state, merger, moment = what
        reviewer = rng.choice([one for one in team if one is not author])
        finished = moment if state == "merged" else moment + (self._now - moment) * 0.5
        description = f"{title}.\n\nSee the discussion in the issues. Reviewed locally."
        cursor = self._database.execute(
            "INSERT INTO code_mergerequest (project_id, iid, title, description, author_id,"
            " assignee_id, reviewer_id, milestone_id, state, source, target, head_id, base_id,"
            " merged_by_id, created, updated, finished) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (project_id, iid, title, description, author.id, author.id,
             reviewer.id if rng.random() < 0.7 else None,
             rng.choice(self._milestones) if rng.random() < 0.3 else None, state, branch, "main",
             head, base, merger.id if state == "merged" else None,
             _at(moment - timedelta(hours=3)), _at(finished if state != "open" else moment),
             _at(finished) if state != "open" else None),
        )  # fmt: skip
        number = cursor.lastrowid
        if rng.random() < 0.6:
            label = self._labels[rng.choice(["bug", "feature", "maintenance", "documentation"])]
            self._database.execute(
                "INSERT INTO code_mergerequest_labels (mergerequest_id, label_id) VALUES (?,?)",
                (number, label),
            )
        for _ in range(rng.randrange(4)):
            when = moment + (self._now - moment) * rng.random() * 0.4
            self._database.execute(
                "INSERT INTO code_note (merge_request_id, author_id, body, is_system, created)"
                " VALUES (?,?,?,0,?)",
                (number, rng.choice(team).id, self._text("review_notes", sources), _at(when)),
            )
        if state == "merged" or rng.random() < 0.3:
            self._database.execute(
                "INSERT INTO code_approval (merge_request_id, user_id) VALUES (?,?)",
                (number, reviewer.id),
            )

    def _text(self, kind: str, sources: Sources) -> str:
        rng = self._rng
        module = rng.choice(sources.modules)
        noun, noun2 = rng.sample(list(sources.nouns), 2)
        function = rng.choice(module.functions)
        verb = function.name.partition("_")[0]
        values = {
            "verb": verb, "noun": noun, "noun2": noun2, "module": module.name,
            "Module": module.name.replace("_", " ").capitalize(), "noun_cap": noun.capitalize(),
            "version": sources.version_text, "count": str(rng.randrange(20, 900)),
        }  # fmt: skip
        return _SLOT.sub(lambda match: values[match[1]], rng.choice(self._phrases[kind]))


def _at(moment: datetime) -> str:
    return moment.replace(microsecond=0, tzinfo=None).isoformat(" ")
