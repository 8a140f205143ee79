"""The web UI during a real training run: curves grow under the eye, and the model then plays."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentgym_rl.runs.folder import RunFolder
from training_runs import RECIPE
from ui_browser import go_by_keys, show, wait_for_points
from ui_servers import UiClient, ui_process
from waiting import wait_for

TRAINING_S = 120
METRIC = "rollout/success_rate"


@contextmanager
def training(runs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `agentgym train` in a process of its own."""
    recipe = runs.parent / "recipe.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    program = "from agentgym_rl.cli.main import main; main()"
    changes = ["training.steps=5", "eval.every=5", "warm_start.steps=4", "warm_start.num_demos=8"]
    command = [sys.executable, "-c", program, "train", str(recipe), *changes]
    process = subprocess.Popen(
        [*command, "--run-dir", str(runs / "live")], stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def wait_for_steps(run: RunFolder, num_steps: int) -> None:
    """Wait until the run has written the metrics of so many steps."""
    wait_for(lambda: len(run.read_metrics()) >= num_steps, TRAINING_S)


@pytest.mark.long
def test_a_live_run_grows_on_the_page_and_its_model_plays(page: Page, tmp_path: Path):
    runs = tmp_path / "runs"
    runs.mkdir()
    run = RunFolder(runs / "live")
    with ui_process(runs) as client:
        show(page, client.url, f"#/runs?sel=live&smooth=0&metrics={METRIC}")
        expect(page.get_by_text("No runs yet")).to_be_visible()
        with training(runs) as process:
            wait_for_steps(run, 2)
            # Held, so that the page sees it under way however fast it is.
            process.send_signal(signal.SIGSTOP)
            seen = wait_for_points(page, METRIC, 2)
            row = page.locator(".run-row", has=page.get_by_role("link", name="live", exact=True))
            expect(row.get_by_role("progressbar")).to_be_visible()
            chart = page.locator(f"[data-metric='{METRIC}'] .chart")
            chart.evaluate("node => { node.isTheSame = true; }")
            process.send_signal(signal.SIGCONT)
            wait_for_points(page, METRIC, seen + 1)
            assert chart.evaluate("node => node.isTheSame")  # drawn anew, not made anew
            go_by_keys(page, "g e", "Episodes")
            expect(page.locator("tbody tr").first).to_be_visible()
            assert process.wait(TRAINING_S) == 0
        _play_with_the_model(page, client.url)
        _ask_for_alternatives(page, client)


def _play_with_the_model(page: Page, url: str) -> None:
    show(page, url, "#/play?env=babyai&split=test&task=29")
    page.get_by_role("button", name="Start").click()
    model = page.get_by_role("combobox", name="Model")
    expect(model).to_have_value("live/model")
    page.get_by_role("button", name="Let it act").click()
    expect(page.get_by_role("heading", name="Round 1")).to_be_visible(timeout=1000 * TRAINING_S)


def _ask_for_alternatives(page: Page, client: UiClient) -> None:
    episode = "train-000001:0"
    mask = client.get("tokens", run="live", episode=episode)["mask"]
    assert isinstance(mask, list)
    show(page, client.url, f"#/tokens?run=live&episode={episode}&token={mask.index(1)}")
    page.get_by_role("button", name="Alternatives").click()
    shown = page.locator(".alternatives")
    expect(shown.get_by_role("listitem")).to_have_count(8, timeout=1000 * TRAINING_S)
    expect(shown).to_contain_text("By live/model, as it is now")
