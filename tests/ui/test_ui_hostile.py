"""Texts that want to be pages, and run folders that are half written or broken: the UI stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder
from case_shares import spread_over
from ui_browser import show, wait_for_points
from ui_runs import HOSTILE, hostile_episode, write_run
from ui_servers import UiClient, make_run, ui_process

METRIC = "rollout/success_rate"
NAME = "<img src=x onerror=alert('run')>"
LINKS = (
    "#/runs?sel=hostile&q=<svg/onload=alert(1)>&filter=<b>",
    "#/runs?sel=hostile&focus=<script>alert(1)</script>",
    "#/run?run=hostile",
    "#/episodes?run=hostile",
    "#/episodes?run=hostile&text=<script>&sort=<b>&page=99999",
    "#/replay?run=hostile&episode=train-000001:0&round=2",
    "#/tokens?run=hostile&episode=train-000001:0",
    "#/group?run=hostile&phase=train&step=1&group=0",
    "#/diagnosis?run=hostile",
    "#/evaluations?sel=hostile@1@<img src=x onerror=alert(1)>,<b>@2@<i>",
    "#/run?run=hostile&with=<script>alert(1)</script>",
    "#/time?run=hostile",
    "#/play?env=<img src=x onerror=alert(1)>&split=<b>&task=<i>",
    "#/<img src=x onerror=alert(1)>?run=<script>alert(1)</script>",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    run = write_run(
        runs / "hostile", [[[hostile_episode(), hostile_episode()]]], env="textcraft", horizons=(2,)
    )
    run.append_metrics({"step": 2, "train/<img src=x onerror=alert(1)>": 1.0, "rollout/\x1b[1m": 2})
    make_run(runs / NAME)
    return runs


@pytest.fixture(scope="module")
def ui(runs: Path) -> Iterator[UiClient]:
    with ui_process(runs) as client:
        yield client


@pytest.mark.parametrize("link", spread_over(LINKS, 1))
def test_hostile_text_stays_text(page: Page, ui: UiClient, link: str):
    # Dialogs, errors and requests to other places fail in `watched_page`.
    show(page, ui.url, link)
    expect(page.get_by_role("navigation", name="Views", exact=True)).to_be_visible()
    page.wait_for_load_state("networkidle")
    made = page.evaluate(
        "() => [window.stolen, document.querySelectorAll('main iframe, main script, [onerror], "
        "[onload]').length]"
    )
    assert made == [None, 0]


def test_hostile_text_is_shown_with_its_control_characters(page: Page, ui: UiClient):
    show(page, ui.url, "#/replay?run=hostile&episode=train-000001:0")
    shown = page.get_by_role("article", name="Round 1").locator(".kind-observation .part-text")
    expected = HOSTILE.replace("\x1b", "␛").replace("\x00", "␀").replace("\u202e", "⟨U+202E⟩")
    assert shown.text_content() == expected
    expect(page.get_by_role("heading", name="The episode failed")).to_be_attached()


def test_runs_and_metrics_with_hostile_names_are_shown(page: Page, ui: UiClient):
    show(page, ui.url, "#/runs?sel=hostile&q=onerror")
    expect(page.get_by_role("link", name=NAME)).to_be_visible()
    expect(page.get_by_text("1 metric", exact=True)).to_be_visible()
    page.get_by_role("link", name=NAME).click()
    expect(page.get_by_role("button", name=f"Run {NAME}, choose another")).to_be_visible()


def test_a_half_written_run_is_shown_as_far_as_it_goes(page: Page, ui: UiClient, runs: Path):
    run = make_run(runs / "half", num_steps=2)
    with run.metrics_file.open("a", encoding="utf-8") as file:
        file.write('{"step": 3, "rollout/succ')
    (run.episodes / "train-000003.parquet").write_bytes(b"PAR1 half a part")
    (run.episodes / ".train-000004.parquet.writing").write_bytes(b"PAR1")
    show(page, ui.url, "#/episodes?run=half")
    expect(page.locator("tbody tr")).to_have_count(8)
    # The writer goes on: the line is completed and the part is replaced, and the page follows.
    show(page, ui.url, "#/runs?sel=half&q=success_rate")
    wait_for_points(page, METRIC, 2)
    with run.metrics_file.open("a", encoding="utf-8") as file:
        file.write('ess_rate": 0.9}\n')
    assert wait_for_points(page, METRIC, 3) == 3


@pytest.mark.parametrize("view", ["run", "episodes", "diagnosis", "time"])
def test_a_broken_run_is_told_of(page: Page, ui: UiClient, runs: Path, view: str):
    folder = runs / "broken"
    if not folder.exists():
        run = RunFolder(folder)
        run.create("not = [toml")
        run.metrics_file.write_bytes(b"\xff\xfe no json")
        write_episodes(run.episodes, [[hostile_episode()]], phase="train", step=1)
        for part in run.episodes.glob("*.parquet"):
            part.write_bytes(part.read_bytes()[:200])
    show(page, ui.url, f"#/{view}?run=broken")
    expect(page.get_by_role("button", name="Run broken, choose another")).to_be_visible()
    expect(page.locator("main .state, main .notice, main .run-problem").first).to_be_visible()


def test_a_server_that_went_away_is_told_of(page: Page, runs: Path):
    with ui_process(runs) as client:
        show(page, client.url, "#/runs")
        expect(page.get_by_role("checkbox").first).to_be_visible()
    expect(page.get_by_text("server offline")).to_be_visible()
    expect(page.get_by_role("checkbox").first).to_be_visible()
