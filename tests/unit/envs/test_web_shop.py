"""The shop and its back office: seeded data, tasks, experts and near misses in a real browser."""

from __future__ import annotations

import contextlib
import itertools
import random
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agentgym_rl.browser.executable import find_browser
from agentgym_rl.envs.scenarios.web.answers import says
from agentgym_rl.envs.scenarios.web.env import WebEnvironment
from agentgym_rl.envs.scenarios.web.projects import database_of
from agentgym_rl.envs.scenarios.web.table import Entry, entries_of, find, tasks_of
from agentgym_rl.envs.scenarios.web.templates import all_templates, cases_of
from agentgym_rl.errors import EnvError

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from web_bench import TemplateReport, play_expert, sweep

from case_shares import spread_over

pytestmark = pytest.mark.slow
needs_browser = pytest.mark.skipif(find_browser() is None, reason="no Chromium here")
SHOP = [template for template in all_templates() if template.sites[0] == "shop"]


@pytest.fixture(scope="module")
def env() -> Iterator[WebEnvironment]:
    made = WebEnvironment()
    yield made
    made.close()


@pytest.fixture(scope="module")
def seeded() -> sqlite3.Connection:
    return sqlite3.connect(f"file:{database_of('shop')}?mode=ro", uri=True)


def entries(name: str) -> tuple[Entry, ...]:
    """Return the tasks of a template, of all splits."""
    (template,) = (template for template in SHOP if template.name == name)
    return entries_of(template)


def one(seeded: sqlite3.Connection, sql: str) -> object:
    return seeded.execute(sql).fetchone()[0]


def test_the_shop_is_as_large_as_promised(seeded: sqlite3.Connection):
    assert one(seeded, "SELECT count(*) FROM catalogue_product WHERE structure != 'child'") >= 2000
    assert one(seeded, "SELECT count(*) FROM auth_user WHERE NOT is_staff") >= 500
    assert one(seeded, "SELECT count(*) FROM order_order") >= 1500
    assert one(seeded, "SELECT count(*) FROM reviews_productreview") >= 4000
    pictures = seeded.execute("SELECT DISTINCT original FROM catalogue_productimage").fetchall()
    media = Path(database_of("shop")).parent / "media"
    assert pictures and all((media / name).is_file() for (name,) in pictures)


@pytest.mark.parametrize(
    "contradiction",
    [
        """SELECT o.number FROM order_order o JOIN order_line l ON l.order_id = o.id
        GROUP BY o.id HAVING abs(sum(l.line_price_incl_tax) - o.total_incl_tax) > 0.001""",
        """SELECT id FROM order_line
        WHERE abs(unit_price_incl_tax * quantity - line_price_incl_tax) > 0.001""",
        """SELECT o.number FROM order_order o JOIN auth_user u ON u.id = o.user_id
        WHERE u.date_joined > o.date_placed""",
        "SELECT number FROM order_order WHERE date_placed >= '2024-06-14 10:30:00'",
        """SELECT p.id FROM catalogue_product p LEFT JOIN reviews_productreview r
        ON r.product_id = p.id AND r.status = 1 GROUP BY p.id
        HAVING abs(coalesce(p.rating, 0) - coalesce(avg(r.score), 0)) > 0.001""",
        "SELECT title FROM catalogue_product GROUP BY title HAVING count(*) > 1",
        """SELECT r.id FROM reviews_productreview r JOIN auth_user u ON u.id = r.user_id
        WHERE r.date_created < u.date_joined""",
        "SELECT id FROM partner_stockrecord WHERE num_allocated > num_in_stock OR price <= 0",
        """SELECT u.user_id FROM analytics_userrecord u
        LEFT JOIN order_order o ON o.user_id = u.user_id GROUP BY u.user_id
        HAVING count(o.id) != u.num_orders
            OR abs(coalesce(sum(o.total_incl_tax), 0) - u.total_spent) > 0.001""",
        """SELECT s.id FROM partner_stockrecord s LEFT JOIN order_line l ON l.stockrecord_id = s.id
        GROUP BY s.id HAVING coalesce(sum(l.num_allocated), 0) != s.num_allocated""",
    ],
)
def test_seeded_data_agree(seeded: sqlite3.Connection, contradiction: str):
    assert seeded.execute(contradiction).fetchall() == []


@pytest.mark.long
def test_splits_share_no_template_from_level_3_on():
    for level in "345":
        names = {
            split: {find(t.index).template.name for t in tasks_of(split) if t.level == level}
            for split in ("train", "test")
        }
        assert names["train"] and names["test"] and not names["train"] & names["test"]


def test_splits_share_no_objective():
    seen: dict[str, str] = {}
    for split in ("train", "test", "test_values"):
        for task in tasks_of(split):
            entry = find(task.index)
            key = f"{entry.case.objective} {dict(entry.case.users)}"
            assert seen.setdefault(key, split) == split


def test_every_template_has_ten_tasks_or_more():
    assert len(SHOP) >= 25
    assert {template.level for template in SHOP} == {1, 2, 3, 4, 5}
    assert {template.name: len(cases_of(template.name)) for template in SHOP
            if len(cases_of(template.name)) < 10} == {}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "expected", "is_right"),
    [
        ("£7.50", "£7.50", True),
        ("7.5", "£7.50", True),
        ("GBP 7.50", "£7.50", True),
        ("£7.50 or £8.00", "£7.50", False),
        ("", "£7.50", False),
        ("It is Ada Byron.", "Ada Byron", True),
        ("ada  byron", "Ada Byron", True),
        ("Ada", "Ada Byron", False),
        ("12 reviews", "12", True),
        ("1,204", "1204", True),
        ("b; a", "a; b", True),
        ("a", "a; b", False),
    ],
)
def test_an_answer_is_compared_by_what_it_says(answer: str, expected: str, is_right: bool):
    assert says(answer, expected) == is_right


@needs_browser
@pytest.mark.parametrize(
    ("level", "category"),
    spread_over(itertools.product([1, 2, 3, 4, 5], ["shop", "backoffice"]), 6),
)
def test_an_expert_solves_a_task_of_each_level(env: WebEnvironment, category: str, level: int):
    named = [t for t in SHOP if (t.category or "shop") == category and t.level == level]
    template = random.Random(level).choice(named)
    report = TemplateReport(template.name, level, template.split)
    play_expert(env, entries(template.name)[0], report)
    assert (report.num_solved, report.failures) == (1, [])


@needs_browser
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [template.name for template in SHOP])
def test_experts_solve_tasks_and_near_misses_do_not_count(env: WebEnvironment, name: str):
    report = sweep(env, entries(name)[:1], has_wrong=True)
    assert (report.num_solved, report.failures, report.wrongly_rewarded) == (1, [], [])
    assert report.num_wrong >= 3


@needs_browser
@pytest.mark.long
def test_a_killed_browser_or_site_fails_the_episode_and_no_other():
    entry = entries("shop-price")[0]
    env = WebEnvironment()
    try:
        for victim in ("headless", "sites.serve"):
            env.start(entry)
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error):  # its parent is dead already
                    if victim in " ".join(process.cmdline()):
                        process.kill()
            with pytest.raises(EnvError):
                env.step("goto [http://shop.test/basket/]")
            report = TemplateReport("", 2, "")
            play_expert(env, entry, report)
            assert report.num_solved == 1
    finally:
        env.close()
