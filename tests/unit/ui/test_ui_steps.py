"""Groups, diagnosis and time in the UI, on episodes with known numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any  # JSON has no static type

import pytest

from agentgym_rl.runs.episodes import write_episodes
from ui_servers import (
    UiClient,
    episode,
    groups_of,
    make_run,
    read_whole,
    ui_process,
)
from waiting import ask_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UiClient]:
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "run", num_steps=8)
    timed = make_run(root / "timed", num_steps=1)
    one = episode(1, 0)
    rounds = tuple(replace(item, generation_s=0.1, environment_s=0.05) for item in one.rounds)
    write_episodes(timed.episodes, [[replace(one, rounds=rounds)]], phase="train", step=1)
    metrics_only = make_run(root / "metrics", num_steps=8)
    for part in metrics_only.episodes.iterdir():
        part.unlink()
    idle = make_run(root / "idle", num_steps=8)
    nothing_learned = {"train/entropy": 0.0, "rollout/groups_without_spread": 2.0}
    idle.metrics_file.write_text(
        "".join(
            json.dumps(line | (nothing_learned if line["step"] > 5 else {})) + "\n"
            for line in idle.read_metrics()
        )
    )
    with ui_process(root) as client:
        for run in ("run", "timed", "metrics", "idle"):
            read_whole(client, run)
        yield client


def test_a_group_is_shown_side_by_side(ui: UiClient):
    found = ui.get("group", run="run", phase="train", step=2, group=0)
    assert found["task"]["task_index"] == 20 and found["task"]["env"] == "textcraft"
    assert [item["sample_index"] for item in found["episodes"]] == [0, 1]
    assert [item["success"] for item in found["episodes"]] == [True, False]
    assert len(found["episodes"][0]["rounds"]) == 2
    assert found["common_rounds"] == 0  # the actions differ at once
    assert ui.get("group", run="run", step=2, group=1)["common_rounds"] == 2
    assert ui.ask("group", run="run", step=2, group=7).status_code == 404


def test_charts_by_hand(ui: UiClient):
    found = ui.get("diagnosis", run="run")
    charts = {chart["title"]: chart for chart in found["charts"]}
    curves = {
        (title, curve["name"]): curve["values"]
        for title, chart in charts.items()
        for curve in chart["series"]
    }
    assert found["steps"] == list(range(1, 9))
    # Two groups of two, of which one has one success, and every second round is invalid.
    assert curves["Reward and success", "success rate"] == [0.25] * 8
    assert curves["Reward and success", "of successes"] == [1.0] * 8
    assert curves["Groups without spread", "groups"] == [0.5] * 8
    assert curves["Sampled tokens per episode", "mean"] == [3.0] * 8
    assert curves["Rounds per episode", "mean"] == [2.0] * 8
    assert curves["Wasted rounds", "invalid"] == [0.5] * 8
    assert curves["Wasted rounds", "repeated"] == [0.0] * 8
    assert curves["How episodes end early", "truncated"] == [0.75] * 8
    assert curves["Entropy per token", "all tokens"] == [1 / step for step in range(1, 9)]
    assert "Invalid actions" in [finding["title"] for finding in found["findings"]]


def test_a_run_without_episodes_has_a_diagnosis_of_its_metrics(ui: UiClient):
    found = ui.get("diagnosis", run="metrics")
    assert found["steps"] == list(range(1, 9))
    assert "Success rises" in [finding["title"] for finding in found["findings"]]


def test_steps_that_learned_nothing_are_no_collapse_of_entropy(ui: UiClient):
    found = ui.get("diagnosis", run="idle")
    assert "Entropy collapse" not in [finding["title"] for finding in found["findings"]]
    charts = {chart["title"]: chart["series"][0]["values"] for chart in found["charts"]}
    assert charts["Entropy per token"][4:] == [0.2, None, None, None]
    # What training counted goes before what the rewards look like.
    assert charts["Groups without spread"][4:] == [0.5, 1.0, 1.0, 1.0]


def test_parts_of_the_time_add_up(ui: UiClient):
    found = ui.get("time", run="timed")
    parts = {part["name"]: part["seconds"] for part in found["parts"]}
    # 2 s of rollout, shared out as the episode's 0.5 s: 0.2 s generation, 0.1 s environment.
    assert parts["generation"] == pytest.approx([0.8])
    assert parts["environment"] == pytest.approx([0.4])
    assert parts["waiting"] == pytest.approx([0.8])
    assert parts["update"] == [1.0] and parts["other"] == pytest.approx([1.0])
    assert found["total"] == [4.0]


def test_episodes_without_timings_leave_the_rollout_whole(ui: UiClient):
    found = ui.get("time", run="run")
    parts = {part["name"]: part["seconds"] for part in found["parts"]}
    assert parts["rollout"] == [2.0] * 8 and "generation" not in parts


def facets_with(ui: UiClient, *, num_episodes: int) -> dict[str, Any]:
    return ask_until(  # the list of parts is remembered for a while
        lambda: ui.get("facets", run="run"), lambda found: found["num_episodes"] == num_episodes
    )


@pytest.mark.long
def test_parts_that_come_and_go_are_followed(tmp_path: Path):
    run = make_run(tmp_path / "run", num_steps=1)
    with ui_process(tmp_path) as ui:
        assert read_whole(ui, "run", route="facets")["num_episodes"] == 4
        write_episodes(run.episodes, groups_of(2)[:1], phase="train", step=2)
        write_episodes(run.episodes, [[episode(5, 0)]], phase="train", step=1)
        assert facets_with(ui, num_episodes=3)["index"]["parts"] == 2
        (run.episodes / "train-000002.parquet").unlink()
        assert facets_with(ui, num_episodes=1)["index"]["parts"] == 1
        assert ui.get("episodes", run="run", text="oak log")["total"] == 1
