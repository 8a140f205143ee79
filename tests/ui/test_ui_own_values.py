"""What environments and reward functions report of their own, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from ui_browser import show
from ui_runs import HOSTILE, long_episode, write_run
from ui_servers import UiClient, ui_process


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiClient]:
    runs = tmp_path_factory.mktemp("runs")
    plain = long_episode(num_rounds=2, num_tokens=16)
    last = replace(
        plain.rounds[1],
        reward=0.75,
        metrics={"doors_opened": 2.0, "found_key": 1.0},
        reward_parts={"goal": 1.0, "length": -0.25},
    )
    payload = {"question": HOSTILE, "answers": [f"door {i}" for i in range(400)]}
    episode = replace(
        plain,
        task=replace(plain.task, payload=payload),
        rounds=(replace(plain.rounds[0], metrics={"doors_opened": 1.0}), last),
        reward=0.75,
        env_reward=0.5,
    )
    run = write_run(runs / "own", [[[episode, plain]]], env="textcraft", horizons=(2, 2))
    own = {"rollout/env/doors_opened": 1.5, "rollout/reward/goal": 1.0}
    run.append_metrics({"step": 3, **own})
    run.append_metrics({"step": 4, **own})
    with ui_process(runs) as client:
        yield client


@pytest.mark.long
def test_rounds_show_metrics_and_parts_of_the_reward(page: Page, ui: UiClient):
    show(page, ui.url, "#/replay?run=own&episode=train-000001:0")
    card = page.get_by_role("article", name="Round 2")
    expect(card.get_by_text("reward parts")).to_be_attached()
    numbers = card.locator(".named-number")
    expect(numbers).to_have_text(["goal +1", "length \u22120.25", "doors_opened 2", "found_key 1"])
    expect(page.locator(".episode-facts")).to_contain_text("reward +0.75 (environment +0.5)")


def test_the_payload_is_folded_away_and_only_text(page: Page, ui: UiClient):
    show(page, ui.url, "#/replay?run=own&episode=train-000001:0")
    data = page.locator("details.payload")
    text = data.locator(".part-text")
    expect(text).not_to_be_visible()
    data.locator("summary").click()
    expect(text).to_be_visible()
    expect(text).to_contain_text("<script>window.stolen")
    expect(text).to_contain_text('"door 399"')
    assert page.evaluate("() => window.stolen") is None
    assert text.bounding_box()["height"] < 400  # type: ignore[index]  # it is visible


def test_an_episode_that_reports_nothing_shows_nothing_more(page: Page, ui: UiClient):
    show(page, ui.url, "#/replay?run=own&episode=train-000001:1")
    expect(page.get_by_role("article", name="Round 2")).to_be_attached()
    expect(page.locator(".round-numbers, .payload")).to_have_count(0)


def test_own_metrics_have_curves_like_others(page: Page, ui: UiClient):
    show(page, ui.url, "#/runs?sel=own")
    for name in ("rollout/env/doors_opened", "rollout/reward/goal"):
        expect(page.locator(f'figure[data-metric="{name}"]')).to_be_visible()


def test_the_api_gives_them_too(ui: UiClient):
    names = ui.get("metric_names", run="own")["names"]
    assert "rollout/env/doors_opened" in names
    found = ui.get("episode", run="own", episode="train-000001:0")
    assert found["rounds"][1]["metrics"] == {"doors_opened": 2.0, "found_key": 1.0}
    assert found["rounds"][1]["reward_parts"] == {"goal": 1.0, "length": -0.25}
    assert (found["reward"], found["env_reward"]) == (0.75, 0.5)
    assert found["payload"].startswith('{\n  "question": "<script>')
