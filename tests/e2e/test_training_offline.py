"""SFT and DPO in whole runs: from files and stored episodes, killed and resumed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agentgym_rl.runs.folder import read_json_lines
from commands import Kill, agentgym
from training_runs import RECIPE, go_on, is_the_same_run, refused, succeeded, train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recipe") / "small.toml"
    file.write_text(RECIPE)
    return file


@pytest.fixture(scope="module")
def explored(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that collected episodes to compare."""
    path = tmp_path_factory.mktemp("runs") / "explored"
    assert succeeded(train(recipe, "training.steps=4", "eval.tasks=0", "--run-dir", path))
    return path


@pytest.mark.long
@pytest.mark.parametrize("options", [["lora.rank=4"], []])
def test_a_killed_preference_run_is_the_run_that_never_stopped(
    options: list[str], recipe: Path, explored: Path, tmp_path: Path
):
    overrides = [
        "algorithm.type=dpo",
        f"algorithm.data={explored}",
        "algorithm.batch_size=4",
        "warm_start.steps=0",
        f"model.path={explored / 'warm_start' / 'model'}",
        "training.lr=1e-3",
        *options,
    ]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert succeeded(train(recipe, *overrides, "--run-dir", whole))
    sixth_line = Kill(r"open .*killed/metrics\.jsonl", 6)
    outcome = train(recipe, *overrides, "--run-dir", killed, kill=sixth_line)
    assert outcome.status == -signal.SIGKILL, outcome.output
    assert succeeded(go_on(killed))
    assert is_the_same_run(killed, whole)
    lines = read_json_lines(whole / "metrics.jsonl")
    assert lines[0]["train/margin"] == pytest.approx(0.0, abs=1e-6), "it starts at the reference"
    assert lines[-1]["train/margin"] > 0.0
    assert all("eval/babyai/success_rate" in line for line in (lines[3], lines[7]))


def test_a_warm_start_learns_from_a_file(recipe: Path, tmp_path: Path):
    data, folder = tmp_path / "demos.jsonl", tmp_path / "run"
    words = ["-n", "12", "--level", "GoToRedBallNoDists", "--format", "direct", "--processes", "2"]
    assert succeeded(agentgym("demos", "babyai", *words, "-o", data))
    words = [
        f"warm_start.data={data}",
        "rollout.max_tokens=1024",
        "training.steps=1",
        "eval.tasks=0",
        "--run-dir",
        folder,
    ]
    outcome = train(recipe, *words)
    assert succeeded(outcome)
    assert str(data) in (folder / "warm_start" / "config.toml").read_text()
    lines = read_json_lines(folder / "warm_start" / "metrics.jsonl")
    assert lines[-1]["train/loss"] < lines[0]["train/loss"]


@pytest.mark.long
def test_bad_data_stops_a_run_with_one_line(recipe: Path, tmp_path: Path):
    data = tmp_path / "demos.jsonl"
    data.write_text('{"messages": []}\n')
    words = [recipe, "warm_start.steps=0", f"algorithm.data={data}", "--run-dir", tmp_path / "run"]
    assert refused(train(*words, "algorithm.type=sft"), "demos.jsonl, line 1", "at least one user")
    assert refused(
        train(*words, "algorithm.type=dpo"), "demos.jsonl, line 1", "`chosen` is missing"
    )
    data.write_text("")
    assert refused(train(*words, "algorithm.type=sft"), "has no conversations")
