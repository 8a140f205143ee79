"""The web UI on a phone: what is asked for is in view, and a finger can hit what is offered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from case_shares import spread_over
from ui_browser import show
from ui_runs import long_episode, played, write_evaluation, write_run
from ui_servers import UiClient, ui_process
from waiting import wait_for

PHONE: ViewportSize = {"width": 390, "height": 844}
MIN_TARGET = 24
"""Pixels in each direction, by WCAG 2.2 AA; links inside a sentence may be less high."""

# A box counts with its label, which can be hit in its place.
SMALL_TARGETS = """least => [...document.querySelectorAll('button, a, input, select, summary')]
    .filter(node => node.checkVisibility() && !node.closest('.skip, p, li'))
    .map(node => [node, (node.closest('label') ?? node).getBoundingClientRect()])
    .filter(([, box]) => box.width < least || box.height < least)
    .map(([node, box]) => `${box.width} x ${box.height}: ${node.outerHTML.slice(0, 100)}`)"""
COVERED = """() => [...document.querySelectorAll('header *')]
    .filter(node => node.matches('button, input, select') && node.checkVisibility())
    .filter(node => {
        const box = node.getBoundingClientRect();
        return [0.03, 0.5, 0.97].some(share => !(node.closest('label') ?? node).contains(
            document.elementFromPoint(box.left + share * box.width, box.top + box.height / 2)));
    }).map(node => node.outerHTML.slice(0, 100))"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiClient]:
    runs: Path = tmp_path_factory.mktemp("runs")
    group = [played(BabyAI.tasks("test")[0], ("turn left", "dance"))]
    run = write_run(runs / "grid", [[group]], env="babyai", horizons=(3, 5))
    for step in (1, 2):
        write_evaluation(run, group, step=step)
    write_run(runs / "long", [[[long_episode(num_rounds=40)]]], env="textcraft", horizons=(100,))
    with ui_process(runs) as client:
        yield client


@pytest.mark.long
@pytest.mark.parametrize(
    "link", spread_over(["#/runs?sel=grid", "#/run?run=grid", "#/evaluations"], 1)
)
def test_a_finger_hits_what_is_offered(page: Page, client: UiClient, link: str):
    page.set_viewport_size(PHONE)
    show(page, client.url, link)
    page.wait_for_load_state("networkidle")
    page.locator("main input, main a").first.wait_for()
    assert page.evaluate(SMALL_TARGETS, MIN_TARGET) == []
    assert page.evaluate(COVERED) == []


def test_the_round_of_a_link_is_in_view_under_the_state(page: Page, client: UiClient):
    page.set_viewport_size(PHONE)
    show(page, client.url, "#/replay?run=long&episode=train-000001:0&round=30")
    card = page.get_by_role("article", name="Round 30", exact=True)
    expect(card.get_by_role("heading", name="Round 30")).to_be_in_viewport(ratio=1)
    # The list is as high as the space below the state, so nothing of it lies under that.
    state = page.get_by_role("complementary", name="State of the environment").bounding_box()
    talk = page.get_by_role("region", name="Conversation").bounding_box()
    box = card.bounding_box()
    assert state is not None and talk is not None and box is not None
    assert talk["y"] >= state["y"] + state["height"]
    assert box["y"] >= talk["y"]


@pytest.mark.long
def test_a_page_that_is_left_gives_its_episode_back(page: Page, client: UiClient):
    show(page, client.url, "#/play?env=babyai&split=test&task=29")
    with page.expect_response("**/api/play") as answer:
        page.get_by_role("button", name="Start").click()
    name = answer.value.json()["play"]
    page.goto("about:blank")
    # Its request is sent on the way out, and its answer reaches no page.
    wait_for(lambda: client.post("play/step", play=name, action="look").status_code == 404)
