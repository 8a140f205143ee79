"""The four own sites: seeded data, git history, tasks, experts and near misses."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym_rl.browser.executable import find_browser
from agentgym_rl.envs.scenarios.web.answers import says
from agentgym_rl.envs.scenarios.web.env import WebEnvironment
from agentgym_rl.envs.scenarios.web.projects import SITES, database_of
from agentgym_rl.envs.scenarios.web.table import Entry, find, tasks_of
from agentgym_rl.envs.scenarios.web.templates import all_templates, cases_of

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from web_bench import TemplateReport, play_expert, sweep

from case_shares import spread_over

pytestmark = pytest.mark.slow
needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium here")
TOWN = [one for one in all_templates() if SITES[one.sites[0]].project == "town"]
MAX_EPISODE_BYTES = 15_000_000


@pytest.fixture(scope="module")
def env() -> Iterator[WebEnvironment]:
    made = WebEnvironment()
    yield made
    made.close()


@pytest.fixture(scope="module")
def seeded() -> sqlite3.Connection:
    path = database_of("town")
    opened = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    opened.execute("ATTACH DATABASE ? AS reference", (str(path.with_name("reference.sqlite3")),))
    return opened


def entries(name: str) -> list[Entry]:
    """Return the tasks of a template, of all splits."""
    found = [
        find(task.index) for split in ("train", "test", "test_values") for task in tasks_of(split)
    ]
    return [entry for entry in found if entry.template.name == name]


def one(seeded: sqlite3.Connection, sql: str) -> int:
    return seeded.execute(sql).fetchone()[0]


def test_the_sites_are_as_large_as_promised_and_episodes_stay_small(seeded: sqlite3.Connection):
    assert one(seeded, "SELECT count(*) FROM forum_forum") >= 30
    assert one(seeded, "SELECT count(*) FROM forum_submission") >= 1500
    assert one(seeded, "SELECT count(*) FROM forum_comment") >= 8000
    assert one(seeded, "SELECT count(*) FROM code_project") >= 40
    assert one(seeded, "SELECT count(*) FROM code_issue") >= 600
    assert one(seeded, "SELECT count(*) FROM code_mergerequest") >= 150
    assert one(seeded, "SELECT count(*) FROM reference.article") >= 10_000
    assert database_of("town").stat().st_size < MAX_EPISODE_BYTES


@pytest.mark.parametrize(
    "contradiction",
    [
        # The agent has no votes, so that every task about votes starts from none.
        """SELECT s.id FROM forum_submission s WHERE s.score !=
        (SELECT coalesce(sum(value), 0) FROM forum_vote v WHERE v.submission_id = s.id)""",
        """SELECT c.id FROM forum_comment c WHERE c.score !=
        (SELECT coalesce(sum(value), 0) FROM forum_commentvote v WHERE v.comment_id = c.id)""",
        """SELECT s.id FROM forum_submission s WHERE s.num_comments !=
        (SELECT count(*) FROM forum_comment c WHERE c.submission_id = s.id)""",
        """SELECT f.id FROM forum_forum f WHERE f.num_subscribers !=
        (SELECT count(*) FROM forum_subscription s WHERE s.forum_id = f.id)""",
        """SELECT c.id FROM forum_comment c JOIN forum_submission s ON s.id = c.submission_id
        WHERE c.created < s.created OR c.created > '2024-06-14 10:30:00'""",
        """SELECT c.id FROM forum_comment c JOIN forum_comment p ON p.id = c.parent_id
        WHERE p.submission_id != c.submission_id OR p.created > c.created""",
        """SELECT p.id FROM code_project p WHERE p.num_stars !=
        (SELECT count(*) FROM code_star s WHERE s.project_id = p.id)""",
        """SELECT c.id FROM code_commit c JOIN code_commit p ON p.id = c.parent_id
        WHERE p.created > c.created""",
        "SELECT id FROM code_issue WHERE is_open != (closed IS NULL) OR updated < created",
        "SELECT id FROM code_commit WHERE created > '2024-06-14 10:30:00'",
        """SELECT l.target FROM reference.article_link l WHERE l.target NOT IN
        (SELECT title FROM reference.article)""",
        """SELECT p.id FROM reference.place p WHERE p.node NOT IN
        (SELECT id FROM reference.node)""",
    ],
)
def test_seeded_data_agree(seeded: sqlite3.Connection, contradiction: str):
    assert seeded.execute(contradiction).fetchall() == []


@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
def test_commits_have_the_ids_that_git_gives_them(seeded: sqlite3.Connection, tmp_path: Path):
    """Write a project's history as git objects, and let git check them and walk them."""
    git = ["git", "-C", str(tmp_path), "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q"], check=True)
    log = seeded.execute(
        """WITH RECURSIVE log(id) AS (
            SELECT head_id FROM code_branch WHERE project_id = 1 AND name = 'main'
            UNION SELECT parent_id FROM code_commit c JOIN log ON log.id = c.id
                WHERE parent_id IS NOT NULL
            UNION SELECT second_parent_id FROM code_commit c JOIN log ON log.id = c.id
                WHERE second_parent_id IS NOT NULL)
        SELECT c.id, c.sha, c.message, u.first_name || ' ' || u.last_name, u.email,
            strftime('%s', c.created), c.parent_id, c.second_parent_id, c.tree
        FROM code_commit c JOIN log ON log.id = c.id JOIN auth_user u ON u.id = c.author_id
        ORDER BY c.id"""
    ).fetchall()
    stream, marks = [], {}
    for number, sha, message, name, email, created, parent, second, tree in log:
        marks[number] = sha
        text = message.rstrip("\n") + "\n"
        stream.append(f"commit refs/heads/main\nmark :{number}\n")
        for role in ("author", "committer"):
            stream.append(f"{role} {name} <{email}> {created} +0000\n")
        stream.append(f"data {len(text.encode())}\n{text}")
        if parent:
            stream.append(f"from :{parent}\n")
        if second:
            stream.append(f"merge :{second}\n")
        stream.append("deleteall\n")
        for path, blob in json.loads(tree).items():
            content = seeded.execute("SELECT text FROM code_blob WHERE id=?", (blob,)).fetchone()[0]
            stream.append(f"M 100644 inline {path}\ndata {len(content.encode())}\n{content}\n")
    subprocess.run(
        [*git, "fast-import", "--quiet", "--export-marks=marks"],
        input="".join(stream).encode(), check=True, cwd=tmp_path,
    )  # fmt: skip
    exported = (tmp_path / "marks").read_text().split()
    given = {int(mark[1:]): sha for mark, sha in zip(exported[::2], exported[1::2], strict=True)}
    assert given == marks


def test_there_are_enough_templates_with_enough_tasks():
    assert len(TOWN) >= 35
    for site in ("forum", "code", "map", "wiki"):
        assert {one.level for one in TOWN if one.sites[0] == site} == {1, 2, 3, 4, 5}
    assert sum(len(one.sites) > 1 for one in TOWN) >= 3
    few = {one.name: len(cases_of(one.name)) for one in TOWN if len(cases_of(one.name)) < 10}
    assert few == {}


def test_the_digits_of_a_name_are_no_answer_that_is_a_number():
    assert says("otter193", "otter193")
    assert not says("otter193 and sofia", "otter193")
    assert not says("viper193", "otter193")


@needs_browser
@pytest.mark.parametrize(
    ("level", "site"),
    spread_over(itertools.product([1, 2, 3, 4, 5], ["forum", "code", "map", "wiki"]), 8),
)
def test_an_expert_solves_a_task_of_each_level(env: WebEnvironment, site: str, level: int):
    template = next(one for one in TOWN if one.sites[0] == site and one.level == level)
    report = TemplateReport(template.name, level, template.split)
    play_expert(env, entries(template.name)[0], report)
    assert (report.num_solved, report.failures) == (1, [])


@needs_browser
def test_a_visitor_logs_in_and_votes_without_a_new_page(env: WebEnvironment):
    entry = entries("forum-upvote")[0]
    visitor = replace(entry, case=replace(entry.case, path="/login", users={}))
    seen = env.start(visitor)
    for role, text in (("Username", "samcarter"), ("Password", "wrong")):
        seen = act(env, seen, f"textbox {role}", "type [{}] [" + text + "] [0]")
    seen = act(env, seen, "button Log in", "click [{}]")
    assert "do not match" in seen
    for role, text in (("Username", "samcarter"), ("Password", "open-sesame")):
        seen = act(env, seen, f"textbox {role}", "type [{}] [" + text + "] [0]")
    seen = act(env, seen, "button Log in", "click [{}]")
    assert "Welcome back, samcarter." in seen
    seen = act(env, seen, "button Upvote", "click [{}]")
    assert "button Upvote (pressed" in seen


@needs_browser
def test_an_issue_keeps_its_closed_milestone_and_people_are_found_by_name(
    env: WebEnvironment, seeded: sqlite3.Connection
):
    path, number, title = seeded.execute(
        """SELECT p.full_path, i.iid, m.title FROM code_issue i
        JOIN code_milestone m ON m.id = i.milestone_id JOIN code_project p ON p.id = i.project_id
        JOIN code_member e ON e.project_id = p.id AND e.user_id = 1 AND e.role >= 30
        WHERE m.is_closed ORDER BY i.id"""
    ).fetchone()
    entry = entries("code-new-issue")[0]
    env.start(replace(entry, case=replace(entry.case, path=f"/{path}/-/issues/{number}/edit")))
    for _ in range(5):
        seen = env.step("scroll [down]").observation
    assert title in seen
    seen = act(env, seen, "button Save", "click [{}]")
    assert "The issue was saved." in seen and title in seen
    name, user = seeded.execute(
        """SELECT first_name || ' ' || last_name, username FROM auth_user u
        JOIN code_member m ON m.user_id = u.id ORDER BY u.id DESC"""
    ).fetchone()
    seen = env.step(f"goto [/search?scope=users&q={name.replace(' ', '+')}]").observation
    assert user in seen


def act(env: WebEnvironment, seen: str, thing: str, action: str) -> str:
    """Do something with the first thing of a description, and return what is seen then."""
    number = re.search(rf"\[(\d+)\] {thing}", seen)
    assert number is not None, seen
    return env.step(action.format(number[1])).observation


@needs_browser
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [one.name for one in TOWN])
def test_experts_solve_tasks_and_near_misses_do_not_count(env: WebEnvironment, name: str):
    report = sweep(env, entries(name)[:1], has_wrong=True)
    assert (report.num_solved, report.failures, report.wrongly_rewarded) == (1, [], [])
    assert report.num_wrong >= 3
