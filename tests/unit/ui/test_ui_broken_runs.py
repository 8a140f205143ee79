"""Run folders that are half-written, broken or gone: the problem is told, and the rest works."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any  # JSON has no static type

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentgym_rl.config import parse_config
from agentgym_rl.evaluation.settings import Wanted
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.record import FILE as RECORD
from agentgym_rl.runs.record import recorded
from ui_servers import (
    CONFIG,
    UiClient,
    episode,
    make_run,
    read_whole,
    ui_process,
)
from waiting import ask_until

pytestmark = pytest.mark.slow

ROUTES = (
    "config", "metric_names", "metrics", "reports", "eval_curves", "facets",
    "episodes", "diagnosis", "time",
)  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def ui(root: Path) -> Iterator[UiClient]:
    make_run(root / "good")
    with ui_process(root) as client:
        yield client


def line_of(ui: UiClient, run: str) -> dict[str, Any]:
    """Return the line of a run with its episodes counted."""
    return ask_until(lambda: line_of_any(ui, run), lambda line: line["num_episodes"] is not None)


def line_of_any(ui: UiClient, run: str) -> dict[str, Any]:
    """Return the line of a run whose episodes may not be countable."""
    lines = ask_until(  # a search of the folder is remembered for a while
        lambda: {line["run"]: line for line in ui.get("runs")["runs"]},
        lambda lines: run in lines,
    )
    return lines[run]


def all_routes_work(ui: UiClient, run: str) -> bool:
    for route in ROUTES:
        response = ui.ask(route, run=run)
        assert response.status_code == 200, f"{route}: {response.text}"
    return ui.ask("evaluations").status_code == 200


def test_a_truncated_part_is_left_out(ui: UiClient, root: Path):
    run = make_run(root / "truncated")
    part = run.episodes / "train-000002.parquet"
    part.write_bytes(part.read_bytes()[:-100])
    assert "1 part(s)" in line_of(ui, "truncated")["problem"]
    found = read_whole(ui, "truncated", route="facets")
    assert found["num_episodes"] == 8 and "train-000002" in found["problem"]
    response = ui.ask("episode", run="truncated", episode="train-000002:0")
    assert response.status_code == 409 and "cannot be read" in response.text
    assert all_routes_work(ui, "truncated")


def test_garbage_and_empty_files_among_the_parts(ui: UiClient, root: Path):
    run = make_run(root / "garbage")
    rng = np.random.default_rng(0)
    (run.episodes / "train-000008.parquet").write_bytes(rng.bytes(5000))
    (run.episodes / "train-000009.parquet").write_bytes(b"")
    (run.episodes / ".train-000010.parquet.writing").write_bytes(b"PAR1half")
    (run.episodes / "train-000011.parquet").mkdir()
    (run.episodes / "train-000012.parquet").symlink_to("/etc/passwd")
    found = read_whole(ui, "garbage")
    assert found["total"] == 12 and "(and 1 more)" in found["problem"]
    assert all_routes_work(ui, "garbage")


def test_parts_with_wrong_columns_and_types(ui: UiClient, root: Path):
    run = make_run(root / "types")
    pq.write_table(pa.table({"a": [1]}), run.episodes / "train-000007.parquet")
    row = pq.read_table(run.episodes / "train-000001.parquet").to_pylist()[0]
    odd = {**row, "step": "many", "rounds": "none", "messages": 7}
    pq.write_table(pa.Table.from_pylist([odd]), run.episodes / "train-000008.parquet")
    bare = {name: row[name] for name in ("phase", "step", "env", "stop_reason")}
    pq.write_table(pa.Table.from_pylist([bare]), run.episodes / "train-000009.parquet")
    nans = {**row, "reward": float("nan"), "seconds": float("inf"), "messages": None}
    pq.write_table(pa.Table.from_pylist([nans]), run.episodes / "train-000010.parquet")
    found = read_whole(ui, "types", limit=100)
    assert found["total"] == 14 and found["problem"]
    by_id = {item["episode"]: item for item in found["rows"]}
    assert by_id["train-000009:0"]["reward"] is None
    assert by_id["train-000010:0"]["reward"] is None
    assert all_routes_work(ui, "types")
    for name in ("train-000007", "train-000008", "train-000009", "train-000010"):
        assert ui.ask("episode", run="types", episode=f"{name}:0").status_code in (200, 409)
        assert ui.ask("tokens", run="types", episode=f"{name}:0").status_code in (200, 404, 409)


def test_half_lines_and_lines_that_are_no_metrics(ui: UiClient, root: Path):
    run = make_run(root / "lines")
    with run.metrics_file.open("ab") as file:
        file.write(b'[1, 2]\n\xff\xfe\x00\n{"step": "x"}\n{"step": 1e400}\n')
        file.write(
            b'{"step": 4, "train/loss": NaN, "train/text": "<b>", "train/big": 1' + b"0" * 400
        )
        file.write(b'}\n{"step": 5, "rollout/succ')
    found = ui.get("metrics", run="lines")
    assert found["steps"] == [1, 2, 3, 4]
    assert found["values"]["train/loss"][-1] is None and found["values"]["train/text"][-1] is None
    assert "4 line(s)" in found["problem"] and "4 line(s)" in line_of(ui, "lines")["problem"]
    with run.metrics_file.open("ab") as file:
        file.write(b'ess_rate": 0.5}\n')
    assert ui.get("metrics", run="lines", after=4)["steps"] == [5]
    assert all_routes_work(ui, "lines")


def test_a_resumed_run_that_wrote_its_metrics_anew(ui: UiClient, root: Path):
    run = make_run(root / "resumed")
    assert ui.get("metrics", run="resumed")["steps"] == [1, 2, 3]
    run.forget_after(1)
    assert ui.get("metrics", run="resumed")["steps"] == [1]
    run.append_metrics({"step": 2, "rollout/success_rate": 0.9})
    assert ui.get("metrics", run="resumed", names="rollout/success_rate")["values"] == {
        "rollout/success_rate": [0.25, 0.9]
    }


def test_configs_that_are_missing_or_no_toml(ui: UiClient, root: Path):
    make_run(root / "no_config").config_file.unlink()
    make_run(root / "bad_config").config_file.write_bytes(b"[env\nname = \xff\x00")
    make_run(root / "odd_config").config_file.write_text('env = 3\ntraining = {steps = "x"}\n')
    assert "cannot be read" in line_of(ui, "no_config")["problem"]
    assert "not TOML" in line_of(ui, "bad_config")["problem"]
    assert line_of(ui, "odd_config")["env"] is None
    for run in ("no_config", "bad_config", "odd_config"):
        assert all_routes_work(ui, run)


def test_reports_that_are_broken(ui: UiClient, root: Path):
    run = make_run(root / "reports")
    run.eval.mkdir()
    (run.eval / "step-000001.json").write_text('{"env": "textcraft", "step": 1}')
    (run.eval / "step-000002.json").write_text('{"env": "textcr')
    (run.eval / "step-000003.json").write_text("[]")
    (run.eval / "step-000004.json").symlink_to("/etc/hostname")
    found = ui.get("reports", run="reports")
    assert [report["step"] for report in found["reports"]] == [1]
    assert all(f"step-00000{n}.json" in found["problem"] for n in (2, 3, 4))


def test_an_empty_run_and_one_that_has_just_begun(ui: UiClient, root: Path):
    RunFolder(root / "empty").create(CONFIG)
    (root / "begun").mkdir()
    (root / "begun" / "metrics.jsonl").touch()
    assert line_of(ui, "empty")["status"] == "empty"
    for run in ("empty", "begun"):
        assert all_routes_work(ui, run)


def test_files_that_cannot_be_read(ui: UiClient, root: Path):
    run = make_run(root / "closed")
    run.metrics_file.unlink()
    run.metrics_file.mkdir()  # whoever runs the test: nobody reads a folder as a file
    assert "cannot be read" in line_of(ui, "closed")["problem"]
    assert read_whole(ui, "closed", route="facets")["num_episodes"] == 12
    assert all_routes_work(ui, "closed")


def test_a_run_that_is_removed_while_it_is_looked_at(ui: UiClient, root: Path):
    make_run(root / "gone")
    assert read_whole(ui, "gone", route="facets")["num_episodes"] == 12
    shutil.rmtree(root / "gone" / "episodes")
    assert all_routes_work(ui, "gone")
    assert ui.ask("episode", run="gone", episode="train-000001:0").status_code == 404
    shutil.rmtree(root / "gone")
    assert all(ui.ask(route, run="gone").status_code == 404 for route in ROUTES)
    assert ui.ask("runs").status_code == 200


def test_links_out_of_the_runs_folder_are_not_followed(ui: UiClient, root: Path, tmp_path: Path):
    secret = make_run(tmp_path / "secret")
    run = make_run(root / "links")
    shutil.rmtree(run.episodes)
    run.episodes.symlink_to(secret.episodes)
    run.metrics_file.unlink()
    run.metrics_file.symlink_to(secret.metrics_file)
    (root / "linked_run").symlink_to(secret.path)
    for route in ("facets", "episodes", "metrics"):
        assert ui.ask(route, run="links").status_code == 403
    assert ui.ask("config", run="linked_run").status_code == 403
    assert "leads out" in line_of_any(ui, "links")["problem"]


def test_reading_changes_nothing(ui: UiClient, root: Path):
    def state() -> list[tuple[str, int, int]]:
        files = sorted((root / "good").rglob("*"))
        return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]

    before = state()
    assert all_routes_work(ui, "good")
    ui.get("episode", run="good", episode="train-000001:0")
    ui.get("tokens", run="good", episode="train-000001:0")
    assert state() == before


def test_a_run_that_is_going_on_is_running_and_so_is_its_warm_start(ui: UiClient, root: Path):
    run = make_run(root / "going", num_steps=1)
    make_run(root / "going" / "warm_start", num_steps=1)
    with run.locked():
        assert line_of(ui, "going")["status"] == "running"
        assert line_of(ui, "going/warm_start")["status"] == "running"
    assert line_of(ui, "going")["status"] == "stopped"
    assert line_of(ui, "going/warm_start")["status"] == "stopped"


def test_a_run_says_how_it_ended_and_why(ui: UiClient, root: Path, tmp_path: Path):
    for name, failure in (("out-of-disk", OSError("no space left")), ("over", None)):
        with suppress(OSError), recorded(make_run(root / name), recipe="quick", version="1"):
            if failure is not None:
                raise failure
    lines = [line_of(ui, run) for run in ("out-of-disk", "over")]
    told = [(line["status"], line["error"], line["recipe"]) for line in lines]
    assert told == [("failed", "no space left", "quick"), ("finished", "", "quick")]
    (tmp_path / RECORD).write_text('{"state": "failed", "error": "secret"}')
    (make_run(root / "linked").path / RECORD).symlink_to(tmp_path / RECORD)
    assert line_of(ui, "linked")["error"] == ""


def test_an_evaluation_has_settings_and_no_recipe(ui: UiClient, root: Path):
    model = root / "trained" / "model"
    config = parse_config({}, ["env.name=textcraft", "agent.format=tags"], source="test")
    folder = root / "evaluated"
    Wanted("m", horizons=(4, 8)).settings(config).save(folder)
    named = json.loads((folder / "evaluation.json").read_text()) | {"model": str(model)}
    (folder / "evaluation.json").write_text(json.dumps(named))
    write_episodes(folder / "rounds-4", [[episode(0, 0)]], phase="eval", step=0)
    line = line_of(ui, "evaluated/rounds-4")
    assert (line["env"], line["format"], line["model"]) == ("textcraft", "tags", "trained")
    assert (line["status"], line["target_steps"], line["problem"]) == ("finished", None, None)
    assert line["updated_at"] is not None
    assert ui.get("config", run="evaluated/rounds-4")["file"] == "evaluation.json"
    for text in (
        "[]",
        "{",
        '{"config": {"a": 1, "a.b": 2}}',
        '{"config": {}, "model": "/\\u0000"}',
    ):
        (folder / "evaluation.json").write_text(text)
        assert ui.ask("runs").status_code == 200 and all_routes_work(ui, "evaluated/rounds-4")
