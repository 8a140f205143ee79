"""Fills the forum's tables: `seed_forum`. Scores are the sums of votes, and counts are counts."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta

from agentgym_rl.envs.scenarios.web.sites.town.forum.models import hot_rank
from agentgym_rl.envs.scenarios.web.sites.town.seeds.forum_texts import (
    Subject,
    Talk,
    choose_kind,
    subjects,
)
from agentgym_rl.envs.scenarios.web.sites.town.seeds.people import Person, words

NUM_SUBMISSIONS = 1600
NUM_COMMENTS = 8400
_MODERATED = ("homelab", "cycling", "books", "trains")
"""Forums that the agent's account moderates."""
_SUBSCRIBED = ("coffee", "cycling", "homelab", "books", "python", "trains", "hiking", "mapping")
_DAYS = 400
"""How far back the forum reaches."""


@dataclass
class _Rows:
    submissions: list[tuple[object, ...]]
    comments: list[tuple[object, ...]]
    votes: list[tuple[int, int, int]]
    comment_votes: list[tuple[int, int, int]]
    titles: set[tuple[int, str]]


def seed_forum(
    database: sqlite3.Connection, people: list[Person], seed: int, now: datetime
) -> None:
    """Write forums, submissions, comments, votes and moderation."""
    rng = random.Random(f"{seed}/forum")
    all_subjects = subjects()
    _write_forums(database, all_subjects, people, rng, now)
    rows = _Rows([], [], [], [], set())
    for number in range(NUM_SUBMISSIONS):
        forum_id = 1 + number % len(all_subjects)
        _submission(rows, number + 1, forum_id, all_subjects[forum_id - 1], people, rng, now)
    _write(database, rows)
    _write_moderation(database, all_subjects, people, rng, now)
    _write_search(database)


def _write_forums(
    database: sqlite3.Connection,
    all_subjects: list[Subject],
    people: list[Person],
    rng: random.Random,
    now: datetime,
) -> None:
    rules = words("phrases")["rules"]
    assert isinstance(rules, dict)
    for number, subject in enumerate(all_subjects, start=1):
        is_agents = subject.name in _MODERATED
        members = rng.sample(people[1:], rng.randrange(20, 160))
        if subject.name in _SUBSCRIBED:
            members.append(people[0])
        sidebar = (
            f"Welcome to {subject.title}! New here? Say hello, read the rules and search before you"
            f" post. Weekly thread on {rng.choice(['Monday', 'Wednesday', 'Friday'])}."
        )
        created = now - timedelta(days=rng.randrange(_DAYS + 10, 2400), hours=rng.randrange(24))
        database.execute(
            "INSERT INTO forum_forum VALUES (?,?,?,?,?,?,?)",
            (number, subject.name, subject.title, subject.description, sidebar, _at(created),
             len(members)),
        )  # fmt: skip
        database.executemany(
            "INSERT INTO forum_subscription (user_id, forum_id) VALUES (?,?)",
            sorted((person.id, number) for person in members),
        )
        moderators = rng.sample(people[1:], rng.randrange(1, 4)) + people[:1] * is_agents
        database.executemany(
            "INSERT INTO forum_moderator (user_id, forum_id) VALUES (?,?)",
            [(person.id, number) for person in moderators],
        )
        chosen = sorted(rng.sample(range(len(rules["titles"])), rng.randrange(3, 6)))
        database.executemany(
            "INSERT INTO forum_rule (forum_id, position, title, text) VALUES (?,?,?,?)",
            [
                (number, place, rules["titles"][rule], rules["texts"][rule])
                for place, rule in enumerate(chosen, start=1)
            ],
        )


def _submission(
    rows: _Rows,
    number: int,
    forum_id: int,
    subject: Subject,
    people: list[Person],
    rng: random.Random,
    now: datetime,
) -> None:
    """Add a submission with its votes and comments."""
    talk, kind, taken = Talk(rng, subject), choose_kind(rng), rows.titles
    title = talk.title(kind)
    while (forum_id, title) in taken:
        talk = Talk(rng, subject)
        title = talk.title(kind)
    taken.add((forum_id, title))
    author = people[0] if rng.random() < 0.012 else rng.choice(people[1:])
    age = _DAYS * (1 - (number - rng.random()) / NUM_SUBMISSIONS) ** 1.4
    created = now - timedelta(days=age, minutes=rng.randrange(5, 50))
    url = body = ""
    if kind == "link":
        domains = words("phrases")["domains"]
        assert isinstance(domains, dict)
        slug = "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
        url = f"https://{rng.choice(domains['names'])}/{created:%Y/%m}/{slug}"
    else:
        body = talk.body(kind)
    appeal = rng.lognormvariate(2.2, 1.1)
    score = _vote(rows.votes, number, author.id, people, rng, appeal)
    num_comments = min(60, int(rng.expovariate(NUM_SUBMISSIONS / NUM_COMMENTS)) + (appeal > 12))
    _comments(rows, number, num_comments, talk, people, rng, created, now)
    is_locked = rng.random() < 0.015
    rows.submissions.append(
        (number, title, url, body, _at(created), None, score, num_comments,
         hot_rank(score, created), is_locked, False, False, author.id, forum_id)
    )  # fmt: skip


def _vote(
    votes: list[tuple[int, int, int]],
    target: int,
    author: int,
    people: list[Person],
    rng: random.Random,
    appeal: float,
) -> int:
    """Add the votes on one target and return their sum. The author votes for it; the agent never
    has, so that every task about voting starts at the same point."""
    num_voters = min(len(people) - 2, int(appeal * rng.uniform(0.7, 1.4)))
    taste = min(0.97, max(0.3, rng.gauss(0.85, 0.12)))
    voters = [one for one in rng.sample(range(2, len(people) + 1), num_voters) if one != author]
    cast = [(target, voter, 1 if rng.random() < taste else -1) for voter in sorted(voters)]
    if author != 1:
        cast.append((target, author, 1))
    votes += cast
    return sum(value for _, _, value in cast)


def _comments(
    rows: _Rows,
    submission: int,
    count: int,
    talk: Talk,
    people: list[Person],
    rng: random.Random,
    created: datetime,
    now: datetime,
) -> None:
    span = min(timedelta(days=4), (now - created) * 0.9)
    moments = sorted(created + span * rng.random() ** 2 for _ in range(count))
    thread: list[tuple[int, int]] = []  # (number, depth)
    said: set[str] = set()
    for moment in moments:
        number = len(rows.comments) + 1
        parent, depth = None, 0
        if thread and rng.random() < 0.5:
            chosen, at = rng.choice(thread[-8:])
            if at < 5:
                parent, depth = chosen, at + 1
        text = talk.comment(is_reply=parent is not None)
        for _ in range(6):
            if text not in said:
                break
            text = talk.comment(is_reply=parent is not None)
        said.add(text)
        author = people[0] if rng.random() < 0.006 else rng.choice(people[1:])
        score = _vote(
            rows.comment_votes, number, author.id, people, rng, rng.lognormvariate(0.6, 0.9)
        )
        rows.comments.append(
            (number, text, _at(moment), None, score, False, author.id, parent, submission)
        )
        thread.append((number, depth))


def _write(database: sqlite3.Connection, rows: _Rows) -> None:
    marks = ",".join("?" * 14)
    database.executemany(
        "INSERT INTO forum_submission (id, title, url, body, created, edited, score, num_comments,"
        " hot, is_locked, is_sticky, is_removed, author_id, forum_id)"
        f" VALUES ({marks})",
        rows.submissions,
    )
    database.executemany(
        "INSERT INTO forum_comment (id, body, created, edited, score, is_removed, author_id,"
        " parent_id, submission_id) VALUES (?,?,?,?,?,?,?,?,?)",
        rows.comments,
    )
    for table, column, votes in (
        ("forum_vote", "submission_id", rows.votes),
        ("forum_commentvote", "comment_id", rows.comment_votes),
    ):
        database.executemany(
            f"INSERT INTO {table} ({column}, user_id, value) VALUES (?,?,?)", votes
        )


def _write_moderation(
    database: sqlite3.Connection,
    all_subjects: list[Subject],
    people: list[Person],
    rng: random.Random,
    now: datetime,
) -> None:
    """Pin one submission per forum, and let the moderators have done something."""
    rules = words("phrases")["rules"]
    assert isinstance(rules, dict)
    for forum_id in range(1, len(all_subjects) + 1):
        moderators = [
            row[0]
            for row in database.execute(
                "SELECT user_id FROM forum_moderator WHERE forum_id=? AND user_id<>1", (forum_id,)
            )
        ]
        for person in rng.sample(people[80:], rng.randrange(1, 4)):
            reason, by = rng.choice(rules["reasons"]), rng.choice(moderators)
            created = now - timedelta(days=rng.randrange(3, 200), hours=rng.randrange(24))
            expires = (now + timedelta(days=rng.randrange(5, 90))).date().isoformat()
            database.execute(
                "INSERT INTO forum_ban (forum_id, user_id, by_id, reason, created, expires)"
                " VALUES (?,?,?,?,?,?)",
                (forum_id, person.id, by, reason, _at(created),
                 expires if rng.random() < 0.5 else None),
            )  # fmt: skip
            _log(database, forum_id, by, f"banned {person.username}: {reason}", created)
        found = database.execute(
            "SELECT id, title, is_locked FROM forum_submission WHERE forum_id=? ORDER BY id",
            (forum_id,),
        ).fetchall()
        for _, title, is_locked in found:
            if is_locked:
                moment = now - timedelta(days=rng.randrange(1, 30))
                _log(database, forum_id, moderators[0], f"locked “{title}”", moment)
        if rng.random() < 0.5:
            database.execute(
                "UPDATE forum_submission SET is_sticky=1 WHERE id=?", (rng.choice(found)[0],)
            )


def _log(
    database: sqlite3.Connection, forum_id: int, user_id: int, text: str, moment: datetime
) -> None:
    database.execute(
        "INSERT INTO forum_moderationaction (forum_id, moderator_id, text, created)"
        " VALUES (?,?,?,?)",
        (forum_id, user_id, text[:300], _at(moment)),
    )


def _write_search(database: sqlite3.Connection) -> None:
    """Make the indexes of search, which triggers keep up to date in an episode."""
    for table, columns in (("submission", "title, body"), ("comment", "body")):
        new = ", ".join(f"new.{name}" for name in columns.split(", "))
        old = ", ".join(f"old.{name}" for name in columns.split(", "))
        index, source = f"forum_{table}_search", f"forum_{table}"
        database.executescript(f"""
            CREATE VIRTUAL TABLE {index} USING fts5({columns}, content='{source}',
                content_rowid='id', tokenize='porter unicode61');
            INSERT INTO {index}({index}) VALUES ('rebuild');
            CREATE TRIGGER {index}_new AFTER INSERT ON {source} BEGIN
                INSERT INTO {index}(rowid, {columns}) VALUES (new.id, {new});
            END;
            CREATE TRIGGER {index}_gone AFTER DELETE ON {source} BEGIN
                INSERT INTO {index}({index}, rowid, {columns}) VALUES ('delete', old.id, {old});
            END;
            CREATE TRIGGER {index}_changed AFTER UPDATE OF {columns} ON {source} BEGIN
                INSERT INTO {index}({index}, rowid, {columns}) VALUES ('delete', old.id, {old});
                INSERT INTO {index}(rowid, {columns}) VALUES (new.id, {new});
            END;
        """)


def _at(moment: datetime) -> str:
    """Return a moment as Django stores it in SQLite."""
    return moment.replace(microsecond=0, tzinfo=None).isoformat(" ")
