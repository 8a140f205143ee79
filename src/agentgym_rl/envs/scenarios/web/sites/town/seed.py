"""Fills the tables of the four sites (`seed`). Deterministic: one seed gives one database.

What no episode changes (articles, places, roads) goes into a second database beside the template,
which all episodes share (reference.py).
"""

from __future__ import annotations

import hashlib
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import connection
from django.utils import timezone

from agentgym_rl.envs.scenarios.web.sites.town.reference import REFERENCE
from agentgym_rl.envs.scenarios.web.sites.town.seeds.articles import make_articles, write_articles
from agentgym_rl.envs.scenarios.web.sites.town.seeds.atlas import write_atlas
from agentgym_rl.envs.scenarios.web.sites.town.seeds.code_rows import seed_code
from agentgym_rl.envs.scenarios.web.sites.town.seeds.corpus import read_cities, read_passages
from agentgym_rl.envs.scenarios.web.sites.town.seeds.forum_rows import seed_forum
from agentgym_rl.envs.scenarios.web.sites.town.seeds.people import PASSWORD, Person, make_people
from agentgym_rl.envs.scenarios.web.sites.town.seeds.ways import write_ways

_SEED = 0


def seed() -> None:
    """Write everything into tables that exist already, and the reference beside them."""
    now = timezone.now()
    people = make_people(_SEED)
    connection.ensure_connection()
    database = connection.connection
    _write_people(database, people, now)
    seed_forum(database, people, _SEED, now)
    seed_code(database, people, _SEED, now)
    database.executemany(
        "INSERT INTO map_placelist (user_id, name) VALUES (1,?)",
        [("Favourites",), ("Want to go",), ("Work trips",)],
    )
    database.commit()
    path = Path(settings.MEDIA_ROOT).parent / REFERENCE
    _write_reference(path, people, now)
    write_ways(database)


def _write_people(database: sqlite3.Connection, people: list[Person], now: datetime) -> None:
    salt = "town"
    digest = hashlib.md5(f"{salt}{PASSWORD}".encode(), usedforsecurity=False).hexdigest()
    for person in people:
        joined = (now - timedelta(days=person.days)).replace(tzinfo=None).isoformat(" ", "seconds")
        database.execute(
            "INSERT INTO auth_user (id, password, last_login, is_superuser, username, first_name,"
            " last_name, email, is_staff, is_active, date_joined)"
            " VALUES (?,?,NULL,0,?,?,?,?,0,1,?)",
            (person.id, f"md5${salt}${digest}", person.username, person.first, person.last,
             f"{person.username}@mail.example", joined),
        )  # fmt: skip
        database.execute(
            "INSERT INTO accounts_profile (user_id, bio, location, website, status)"
            " VALUES (?,?,?,'','')",
            (person.id, person.bio, person.city),
        )


def _write_reference(path: Path, people: list[Person], now: datetime) -> None:
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = OFF")
    passages = read_passages()
    cities = read_cities(passages)
    write_articles(database, make_articles(passages, cities), people, now.replace(tzinfo=None))
    write_atlas(database, cities)
    database.commit()
    database.execute("ANALYZE")
    database.execute("VACUUM")
    database.commit()
    database.close()
