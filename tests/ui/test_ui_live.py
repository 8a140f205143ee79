"""The web UI during a real training run: curves grow under the eye, and the model then plays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect

from training_runs import RECIPE
from ui_browser import num_points, show, wait_for_points
from ui_servers import ui_process

TRAINING_S = 120
METRIC = "rollout/success_rate"


@contextmanager
def training(runs: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `agentgym train` in a process of its own."""
    recipe = runs.parent / "recipe.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    program = "from agentgym_rl.cli.main import main; main()"
    changes = ["training.steps=14", "eval.every=7"]
    command = [sys.executable, "-c", program, "train", str(recipe), *changes]
    process = subprocess.Popen(
        [*command, "--run-dir", str(runs / "live")], stdout=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def test_a_live_run_grows_on_the_page_and_its_model_plays(page: Page, tmp_path: Path):
    runs = tmp_path / "runs"
    runs.mkdir()
    with ui_process(runs) as client:
        show(page, client.url, "#/runs")
        expect(page.get_by_text("No runs yet")).to_be_visible()
        with training(runs) as process:
            row = page.locator(".run-row", has_text="live").filter(has_not_text="warm_start")
            expect(row.get_by_role("progressbar")).to_be_visible(timeout=1000 * TRAINING_S)
            show(page, client.url, f"#/runs?sel=live&smooth=0&metrics={METRIC}")
            chart = page.locator(f"[data-metric='{METRIC}'] .chart")
            expect(chart.locator(".scatterlayer path").first).to_be_attached(
                timeout=1000 * TRAINING_S
            )
            # The element that is there now must still be there when the curve has grown.
            chart.evaluate("node => { node.isTheSame = true; }")
            seen = num_points(page, METRIC)
            wait_for_points(page, METRIC, seen + 1, timeout_s=TRAINING_S)
            assert chart.evaluate("node => node.isTheSame")
            page.keyboard.press("g")
            page.keyboard.press("e")
            expect(page.locator("tbody tr").first).to_be_visible()
            process.wait(TRAINING_S)
            assert process.returncode == 0
        _play_with_the_model(page, client.url)


def _play_with_the_model(page: Page, url: str) -> None:
    show(page, url, "#/play?env=babyai&split=test&task=29")
    page.get_by_role("button", name="Start").click()
    model = page.get_by_role("combobox", name="Model")
    expect(model).to_have_value("live/model")
    page.get_by_role("button", name="Let it act").click()
    expect(page.get_by_role("heading", name="Round 1")).to_be_visible(timeout=1000 * TRAINING_S)
