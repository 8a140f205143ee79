"""The held-out sites in a real browser: never trained on, and experts on all their templates."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym_rl.browser.executable import find_browser
from agentgym_rl.envs.scenarios.web.env import WebEnvironment
from agentgym_rl.envs.scenarios.web.projects import database_of
from agentgym_rl.envs.scenarios.web.table import HELD_OUT, Entry, find, tasks_of
from agentgym_rl.envs.scenarios.web.templates import Template, all_templates

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from web_bench import sweep

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


@pytest.mark.parametrize("name", ONE_PER_LEVEL)
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
