"""The people of the sites: `make_people`. The first one is whom the agent acts as."""

from __future__ import annotations

import random
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

AGENT = "samcarter"
"""Username of the account that the prepared session belongs to."""
PASSWORD = "open-sesame"
"""Of every account: the people are made up."""
NUM_PEOPLE = 240
NUM_DEVELOPERS = 72
"""The first of the people also have accounts on the code hosting."""


@dataclass(frozen=True)
class Person:
    """Somebody with an account. `id` counts from 1."""

    id: int
    username: str
    first: str
    last: str
    bio: str
    city: str
    days: int
    """Since when, in days before the clock of the sites."""


def words(name: str) -> dict[str, object]:
    """Return one of the word lists beside this file."""
    return _read(name)


@cache
def _read(name: str) -> dict[str, object]:
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


def make_people(seed: int) -> list[Person]:
    """Return everybody, the same ones for the same seed."""
    rng = random.Random(f"{seed}/people")
    lists = {key: list(map(str, value)) for key, value in words("people").items()}  # type: ignore[arg-type]
    people = [Person(1, AGENT, "Sam", "Carter", "", "Utrecht", 800)]
    taken = {AGENT}
    while len(people) < NUM_PEOPLE:
        first, last = rng.choice(lists["first"]), rng.choice(lists["last"])
        is_developer = len(people) < NUM_DEVELOPERS
        style = 0 if is_developer else rng.randrange(4)
        username = [
            f"{first}.{last}".lower(),
            f"{rng.choice(lists['adjectives'])}_{rng.choice(lists['animals'])}",
            f"{first}{rng.randrange(60, 99)}".lower(),
            f"{rng.choice(lists['animals'])}{rng.randrange(2, 400)}",
        ][style]
        if username in taken:
            continue
        taken.add(username)
        job, city = rng.choice(lists["jobs"]), rng.choice(lists["cities"])
        bio = f"{first}, {job} from {city}." if rng.random() < 0.7 else ""
        days = rng.randrange(60, 1800)
        people.append(Person(len(people) + 1, username, first, last, bio, city, days))
    return people
