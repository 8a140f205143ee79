"""The held-out sites in a real browser: never trained on, and experts on all their templates."""

from __future__ import annotations

import http.client
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest

from agentgym_rl.browser.executable import find_browser
from agentgym_rl.envs.scenarios.web.env import WebEnvironment
from agentgym_rl.envs.scenarios.web.projects import PROJECTS, Project, database_of, is_built
from agentgym_rl.envs.scenarios.web.site_process import shared_process
from agentgym_rl.envs.scenarios.web.table import HELD_OUT, Entry, find, tasks_of
from agentgym_rl.envs.scenarios.web.templates import Template, all_templates
from agentgym_rl.errors import EnvError

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from web_bench import sweep

from case_shares import spread_over

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium here"),
]

TEMPLATES = [one for one in all_templates() if one.split == HELD_OUT]
ONE_PER_LEVEL = [
    "talk-num-comments",
    "talk-category-of",
    "talk-search-in-category",
    "talk-vote",
    "talk-move-and-close",
    "tracker-field-here",
    "tracker-build-server",
    "tracker-in-milestone",
    "tracker-write-page",
    "tracker-page-and-comment",
]


@pytest.fixture(scope="module")
def env() -> Iterator[WebEnvironment]:
    made = WebEnvironment()
    yield made
    made.close()


def entries_of(name: str) -> list[Entry]:
    found = [find(task.index) for task in tasks_of(HELD_OUT)]
    return [entry for entry in found if entry.template.name == name]


def play(env: WebEnvironment, entries: list[Entry], *, has_wrong: bool) -> None:
    """Let the expert act, and near misses."""
    report = sweep(env, entries, has_wrong=has_wrong)
    assert report.num_solved == report.num_tasks == len(entries), report.failures
    assert not report.failures and not report.wrongly_rewarded, report


def test_no_other_split_has_a_task_of_these_sites():
    held_out = tasks_of(HELD_OUT)
    assert {task.category for task in held_out} == {"held-out"}
    assert {task.level for task in held_out} == {"1", "2", "3", "4", "5"}
    sites = {site for template in TEMPLATES for site in template.sites}
    assert not sites & {
        site for one in all_templates() if one.split != HELD_OUT for site in one.sites
    }
    for split in ("train", "test", "test_values"):
        assert not {task.index for task in tasks_of(split)} & {task.index for task in held_out}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda one: one.name)
def test_every_template_has_tasks_that_differ(template: Template):
    cases = [entry.case for entry in entries_of(template.name)]
    assert len(cases) >= 10
    told = {(case.objective, case.path, *case.users.items()) for case in cases}
    assert len(told) == len(cases)


def test_a_package_that_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PROJECTS, "absent", Project("absent", ("no-such-package",)))
    with pytest.raises(EnvError, match=r"'absent' needs no-such-package, .*: (pip install|make)"):
        is_built("absent")


def test_the_forum_is_full_and_consistent():
    database = sqlite3.connect(f"file:{database_of('spirit')}?mode=ro", uri=True)
    counts = {
        table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("auth_user", "spirit_topic_topic", "spirit_comment_comment")
    }
    assert counts["auth_user"] >= 25
    assert counts["spirit_topic_topic"] >= 400
    assert counts["spirit_comment_comment"] >= 3000
    wrong = """
    SELECT id FROM spirit_topic_topic t WHERE comment_count <>
        (SELECT count(*) FROM spirit_comment_comment c WHERE c.topic_id = t.id)
    UNION SELECT id FROM spirit_comment_comment c WHERE likes_count <>
        (SELECT count(*) FROM spirit_comment_like_commentlike l WHERE l.comment_id = c.id)
    UNION SELECT id FROM spirit_comment_poll_commentpollchoice c WHERE vote_count <>
        (SELECT count(*) FROM spirit_comment_poll_commentpollvote v WHERE v.choice_id = c.id)
    UNION SELECT c.id FROM spirit_comment_comment c JOIN spirit_topic_topic t ON t.id = c.topic_id
        WHERE c.date < t.date OR c.date >= '2024-06-14 10:30'
    """
    assert database.execute(wrong).fetchall() == []


def test_the_tracker_is_full_and_consistent():
    database = sqlite3.connect(f"file:{database_of('trac')}?mode=ro", uri=True)
    counts = {
        table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("ticket", "ticket_change", "component", "version", "milestone", "report")
    }
    assert counts["ticket"] >= 300 and counts["ticket_change"] >= 1000
    assert counts["component"] >= 8 and counts["version"] >= 5 and counts["milestone"] >= 5
    assert counts["report"] == 8
    wrong = """
    SELECT id FROM ticket t WHERE (status = 'closed') <> EXISTS (SELECT 1 FROM ticket_change c
        WHERE c.ticket = t.id AND c.field = 'status' AND c.newvalue = 'closed')
    UNION SELECT t.id FROM ticket t JOIN milestone m ON m.name = t.milestone
        WHERE t.status <> 'closed' AND m.completed <> 0
    UNION SELECT t.id FROM ticket t JOIN milestone m ON m.name = t.milestone
        WHERE m.completed <> 0 AND t.time > m.completed
    UNION SELECT id FROM ticket WHERE component NOT IN (SELECT name FROM component)
    UNION SELECT ticket FROM ticket_change WHERE time >= 1718361000000000
    """
    assert database.execute(wrong).fetchall() == []


def write_page(address: tuple[str, int], key: str, cookie: str, text: str) -> str:
    """Write the wiki page "Own" in an episode on the tracker; return the page."""
    headers = {
        "Host": "tracker.test",
        "X-Episode": key,
        "Cookie": f"trac_auth={cookie}; trac_form_token=t",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    fields = {"__FORM_TOKEN": "t", "action": "edit", "version": "0", "text": text, "save": "1"}
    for method, body in (("POST", urlencode(fields)), ("GET", None)):
        connection = http.client.HTTPConnection(*address, timeout=60)
        connection.request(method, "/wiki/Own", body, headers)
        answer = connection.getresponse().read().decode()
        connection.close()
    return answer


def test_episodes_that_write_on_the_tracker_at_once_see_only_their_own_pages():
    process = shared_process("trac")
    host, port = process.address.split(":")
    keys = [f"writer-{number}" for number in range(6)]
    episodes = [process.create(key, "rosa") for key in keys]
    try:
        with ThreadPoolExecutor(len(keys)) as pool:
            pages = list(
                pool.map(
                    lambda one: write_page(
                        (host, int(port)), one.key, one.cookies["trac_auth"], f"text of {one.key}."
                    ),
                    episodes,
                )
            )
        for key, page, episode in zip(keys, pages, episodes, strict=True):
            assert [other for other in keys if f"text of {other}." in page] == [key]
            found = process.query(episode, "SELECT text FROM wiki WHERE name = 'Own'")
            assert found == [(f"text of {key}.",)]
    finally:
        for episode in episodes:
            process.delete(episode)


@pytest.mark.parametrize("name", spread_over(ONE_PER_LEVEL, 3))
def test_the_expert_solves_a_task_of_each_level(env: WebEnvironment, name: str):
    play(env, entries_of(name)[:1], has_wrong=False)


def test_a_search_finds_what_this_episode_wrote_and_nothing_of_another(env: WebEnvironment):
    task = entries_of("talk-search-in-category")[0]
    with_word = WebEnvironment()
    try:
        for one, is_writer in ((env, True), (with_word, False)):
            one.start(task)
            if is_writer:
                one.step("goto [http://talk.test/topic/30/]")
                while "Write comment" not in (seen := one.step("scroll [down]").observation):
                    pass
                field = next(line for line in seen.splitlines() if "Write comment" in line)
                button = next(line for line in seen.splitlines() if "button Publish" in line)
                one.step(f"type {field.split()[0]} [The heliotrope is out] [0]")
                one.step(f"click {button.split()[0]}")
            found = one.step("goto [http://talk.test/search/?q=heliotrope]").observation
            assert ("Volunteers" in found) == is_writer, found
    finally:
        with_word.close()


@pytest.mark.long
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda one: one.name)
def test_experts_solve_tasks_and_near_misses_get_nothing(env: WebEnvironment, template: Template):
    entries = entries_of(template.name)
    play(env, [entries[0], entries[-1]], has_wrong=True)
