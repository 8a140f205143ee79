"""Evaluations on the page: curves from step 0 on, two compared in words; what runs differ in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import Episode
from ui_browser import expect_link, show, wait_for_points
from ui_runs import write_evaluation, write_run
from ui_servers import UiClient, episode, ui_process

METRIC = "eval/textcraft/success_rate"


def evaluated(pattern: str) -> list[Episode]:
    """Return an episode a task; "1" is a success."""
    return [episode(index, 0, success=mark == "1") for index, mark in enumerate(pattern)]


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiClient]:
    runs = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        run = write_run(runs / f"study/seed{seed}", [], env="textcraft", horizons=(3, 5))
        write_evaluation(run, evaluated("0000000001"), step=0)
        write_evaluation(run, evaluated("1111111100"), step=2)
    change_setting(run, "steps = 2", "steps = 7")
    with ui_process(runs) as client:
        yield client


def change_setting(run: RunFolder, old: str, new: str) -> None:
    text = run.config_file.read_text(encoding="utf-8")
    assert old in text
    run.config_file.write_text(text.replace(old, new), encoding="utf-8")


def test_two_evaluations_are_compared_in_words(page: Page, ui: UiClient):
    show(page, ui.url, "#/evaluations")
    page.get_by_role("checkbox", name="Choose study/seed0, step 0 on textcraft").check()
    expect(page.get_by_role("region", name="One evaluation")).to_contain_text("10.0%")
    page.get_by_role("checkbox", name="Choose study/seed0, step 2 on textcraft").check()
    comparison = page.get_by_role("region", name="Comparison")
    expect(comparison).to_contain_text("B is better: by 70.0 points on these 10 tasks")
    expect(comparison).to_contain_text("B is better at 8 tasks, A at 1.")
    expect_link(page, "sel=study/seed0")
    # The task that A alone solved, as B did it.
    page.get_by_role("link", name="0%: B at textcraft/9").click()
    expect(page.get_by_role("toolbar", name="Replay")).to_be_visible()
    expect_link(page, "episode=eval-000002:9")


def test_curves_of_evaluations_begin_at_step_0_and_are_saved(
    page: Page, ui: UiClient, tmp_path: Path
):
    show(page, ui.url, f"#/runs?sel=study/seed0&metrics={METRIC}")
    wait_for_points(page, METRIC, 2)
    drawn = "node => node.data.map(trace => [[...trace.x], trace.y])"
    high, low, line = page.locator(f"[data-metric='{METRIC}'] .chart").evaluate(drawn)
    assert line == [[0, 2], [0.1, 0.8]]
    assert high[1][0] > 0.1 > low[1][0] and high[1][1] > 0.8 > low[1][1]
    page.get_by_role("radio", name="time").check(force=True)
    page.get_by_text("seconds of steps and their evaluations").wait_for()
    page.get_by_role("button", name=f"Save {METRIC}").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Numbers (CSV)").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    lines = file.read_text(encoding="utf-8").splitlines()
    assert file.name == "eval-textcraft-success_rate.csv"
    assert lines[0] == f"run,step,seconds,tokens,{METRIC},low,high" and len(lines) == 3
    assert lines[2].startswith("study/seed0,2,7,,0.8,")
    page.get_by_role("button", name=f"Save {METRIC}").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Picture (PNG)").click()
    download.value.save_as(file)
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_runs_lie_under_their_study_and_differences_are_told(page: Page, ui: UiClient):
    show(page, ui.url, "#/runs")
    head = page.get_by_role("button", name="study")
    expect(page.get_by_role("link", name="seed1", exact=True)).to_be_visible()
    head.click()
    expect(page.get_by_role("link", name="seed1", exact=True)).to_be_hidden()
    page.get_by_role("checkbox", name="Show the curves of all runs in study").uncheck()
    expect_link(page, "sel=none")
    show(page, ui.url, "#/run?run=study/seed0")
    page.get_by_label("Compare with").select_option("study/seed1")
    differing = page.get_by_role("region", name="Settings that differ").get_by_role("row")
    expect(differing.last).to_contain_text("training.steps27")
    expect(page.get_by_text("agentgym train")).to_contain_text("study/seed0-again")
