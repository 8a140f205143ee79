"""Fills the tables of the code hosting: `seed_code`."""

from __future__ import annotations

import json
import random
import sqlite3
from dataclasses import dataclass
from datetime import datetime, timedelta

from agentgym_rl.envs.scenarios.web.sites.town.code.git_objects import (
    blob_sha,
    commit_sha,
    tree_sha,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.models import (
    DEVELOPER,
    GUEST,
    MAINTAINER,
    OWNER,
    REPORTER,
)
from agentgym_rl.envs.scenarios.web.sites.town.seeds.code_files import Sources
from agentgym_rl.envs.scenarios.web.sites.town.seeds.code_issues import Tracker
from agentgym_rl.envs.scenarios.web.sites.town.seeds.people import (
    NUM_DEVELOPERS,
    Person,
    words,
)

_ROLES = (DEVELOPER, DEVELOPER, DEVELOPER, REPORTER, MAINTAINER, GUEST)


@dataclass(frozen=True)
class Project:
    """A project that was written, and who takes part in it."""

    id: int
    path: str
    sources: Sources
    team: list[Person]
    head: int


class _Repository:
    """Writes blobs and commits."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._blobs: dict[str, int] = {}
        self._shas: dict[int, str] = {}

    def commit(
        self,
        files: dict[str, str],
        parents: tuple[int, ...],
        author: Person,
        created: datetime,
        message: str,
    ) -> int:
        """Write a commit and return its number."""
        shas = {path: blob_sha(text) for path, text in files.items()}
        for path, sha in shas.items():
            if sha not in self._blobs:
                self._blobs[sha] = len(self._blobs) + 1
                self._database.execute(
                    "INSERT INTO code_blob VALUES (?,?,?)", (self._blobs[sha], sha, files[path])
                )
        tree = {path: self._blobs[sha] for path, sha in sorted(shas.items())}
        who = (f"{author.first} {author.last}", f"{author.username}@mail.example")
        parent_shas = [self._shas[one] for one in parents]
        sha = commit_sha(tree_sha(shas), parent_shas, who, created, message)
        number = len(self._shas) + 1
        self._shas[number] = sha
        first, second = (*parents, None, None)[:2]
        self._database.execute(
            "INSERT INTO code_commit (id, sha, message, author_id, created, parent_id,"
            " second_parent_id, tree) VALUES (?,?,?,?,?,?,?,?)",
            (number, sha, message, author.id, at(created), first, second,
             json.dumps(tree, separators=(",", ":"))),
        )  # fmt: skip
        return number


def seed_code(database: sqlite3.Connection, people: list[Person], seed: int, now: datetime) -> None:
    """Write groups, projects, history, issues and merge requests."""
    rng = random.Random(f"{seed}/code")
    data = words("projects")
    developers = people[:NUM_DEVELOPERS]
    groups = data["groups"]
    assert isinstance(groups, list)
    teams = dict[str, list[Person]]()
    for number, group in enumerate(groups, start=1):
        created = now - timedelta(days=rng.randrange(700, 1500))
        database.execute(
            "INSERT INTO code_group VALUES (?,?,?,?,'public',?)",
            (number, group["path"], group["name"], group["description"], at(created)),
        )
        team = rng.sample(developers[1:], rng.randrange(8, 13))
        teams[group["path"]] = team
        roles = [OWNER, MAINTAINER, *(rng.choice(_ROLES) for _ in team[2:])]
        database.executemany(
            "INSERT INTO code_groupmember (group_id, user_id, role) VALUES (?,?,?)",
            [(number, person.id, role) for person, role in zip(team, roles, strict=True)],
        )
    paths = [group["path"] for group in groups]
    repository = _Repository(database)
    projects = data["projects"]
    assert isinstance(projects, dict)
    tracker = Tracker(database, rng, now)
    for number, (path, entry) in enumerate(projects.items(), start=1):
        space, _, name = str(path).partition("/")
        if space == "USER":
            space = rng.choice(developers[1:]).username
        owner = next((one for one in developers if one.username == space), None)
        team = list(teams.get(space, []))
        if owner is not None:
            team = [owner, *rng.sample([one for one in developers[1:] if one is not owner], 4)]
        group_id = paths.index(space) + 1 if owner is None else None
        project = _project(
            database, repository, rng, now,
            (number, f"{space}/{name}", group_id, owner, team, dict(entry)),
        )  # fmt: skip
        _members(database, rng, project, owner, developers, now)
        tracker.fill(project.id, project.sources, project.team)
        _branches(database, repository, tracker, rng, project, now)
    _stars(database, rng, developers)


def _project(
    database: sqlite3.Connection,
    repository: _Repository,
    rng: random.Random,
    now: datetime,
    what: tuple[int, str, int | None, Person | None, list[Person], dict[str, object]],
) -> Project:
    """Write a project with the history of its main branch."""
    number, path, group_id, owner, team, entry = what
    name = path.partition("/")[2]
    language, description = str(entry["language"]), str(entry["description"])
    modules, nouns = entry["modules"], entry["nouns"]
    assert isinstance(modules, list)
    assert isinstance(nouns, list)
    sources = Sources(rng, name, description, language, modules, nouns)
    num_commits = rng.randrange(14, 34)
    days = rng.randrange(120, 700)
    moments = sorted(
        now - timedelta(days=16 + days * rng.random() ** 1.3, minutes=rng.randrange(1440))
        for _ in range(num_commits)
    )
    committers = team[: rng.randrange(3, len(team) + 1)]
    head = 0
    for place, moment in enumerate(moments):
        if place == 0:
            message = "Initial commit"
        elif place == 4:
            message = sources.add_tests()
        else:
            message = sources.bump() if place % 7 == 6 else sources.edit()
        parents = (head,) if head else ()
        head = repository.commit(sources.files(), parents, rng.choice(committers), moment, message)
    visibility = rng.choices(["public", "internal", "private"], [8, 1, 1])[0]
    database.execute(
        "INSERT INTO code_project (id, full_path, name, group_id, owner_id, description,"
        " visibility, language, created, updated, default_branch, forked_from_id, is_archived,"
        " num_stars)"
        " VALUES (?,?,?,?,?,?,?,?,?,?,'main',NULL,0,0)",
        (number, path, name, group_id, owner.id if owner else None, description,
         visibility if owner and owner.id == 1 else "public", language, at(moments[0]),
         at(moments[-1])),
    )  # fmt: skip
    database.execute(
        "INSERT INTO code_branch (project_id, name, head_id) VALUES (?,'main',?)", (number, head)
    )
    return Project(number, path, sources, team, head)


def _members(
    database: sqlite3.Connection,
    rng: random.Random,
    project: Project,
    owner: Person | None,
    developers: list[Person],
    now: datetime,
) -> None:
    """Write who has a role; the agent takes part in some projects of others."""
    if owner is not None:
        roles = [(owner.id, OWNER)] + [(one.id, rng.choice(_ROLES)) for one in project.team[1:]]
    else:
        chosen = rng.sample([one for one in developers[1:] if one not in project.team], 3)
        roles = [(one.id, rng.choice(_ROLES)) for one in chosen]
        if project.id % 3 == 0:
            roles.append((1, MAINTAINER if project.id % 6 == 0 else DEVELOPER))
            project.team.append(developers[0])
    for user_id, role in roles:
        created = at(now - timedelta(days=rng.randrange(5, 400)))
        database.execute(
            "INSERT INTO code_member (project_id, user_id, role, created) VALUES (?,?,?,?)",
            (project.id, user_id, role, created),
        )


def _branches(
    database: sqlite3.Connection,
    repository: _Repository,
    tracker: Tracker,
    rng: random.Random,
    project: Project,
    now: datetime,
) -> None:
    """Write branches with a few commits, and a merge request for most of them."""
    others = [one for one in project.team if one.id != 1] or project.team
    main = project.head
    for number in range(1, rng.randrange(3, 7)):
        sources = project.sources.copy()
        head = project.head
        moment = now - timedelta(days=rng.randrange(4, 14) if number > 1 else 15)
        author = rng.choice(others)
        messages = []
        for _ in range(rng.randrange(1, 4)):
            message = sources.edit()
            moment += timedelta(minutes=rng.randrange(20, 900))
            head = repository.commit(sources.files(), (head,), author, moment, message)
            messages.append(message)
        slug = "-".join("".join(c if c.isalnum() else " " for c in messages[0].lower()).split())
        name = f"{number}-{slug}"[:60]
        state = "merged" if number == 1 else rng.choices(["open", "closed"], [7, 2])[0]
        merger = rng.choice(others)
        if state == "merged":
            moment += timedelta(hours=2)
            title = f"Merge branch '{name}' into 'main'"
            main = repository.commit(sources.files(), (project.head, head), merger, moment, title)
            database.execute(
                "UPDATE code_branch SET head_id=? WHERE project_id=? AND name='main'",
                (main, project.id),
            )
            database.execute(
                "UPDATE code_project SET updated=? WHERE id=?", (at(moment), project.id)
            )
        else:
            database.execute(
                "INSERT INTO code_branch (project_id, name, head_id) VALUES (?,?,?)",
                (project.id, name, head),
            )
        tracker.merge_request(
            project.id, project.sources, others,
            (number, messages[0], name, head, project.head, author, state, merger, moment),
        )  # fmt: skip
        if state == "merged":
            project = Project(project.id, project.path, sources, project.team, main)


def _stars(database: sqlite3.Connection, rng: random.Random, developers: list[Person]) -> None:
    projects = [row[0] for row in database.execute("SELECT id FROM code_project ORDER BY id")]
    counts = rng.sample(range(2, len(developers) - 2), len(projects))
    for project_id, count in zip(projects, counts, strict=True):
        fans = rng.sample(developers[1:], count)
        database.executemany(
            "INSERT INTO code_star (project_id, user_id) VALUES (?,?)",
            sorted((project_id, one.id) for one in fans),
        )
        database.execute("UPDATE code_project SET num_stars=? WHERE id=?", (count, project_id))


def at(moment: datetime) -> str:
    """Return a moment as Django stores it in SQLite."""
    return moment.replace(microsecond=0, tzinfo=None).isoformat(" ")
