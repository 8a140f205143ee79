"""Training runs whose groups carry over: what they report, how they stop and go on."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from agentgym_rl.runs.folder import read_json_lines
from commands import Kill
from training_runs import (
    RECIPE,
    episodes_of,
    go_on,
    interrupted,
    metrics_of,
    succeeded,
    train,
)

pytestmark = pytest.mark.slow

CARRYING = ("rollout.max_staleness=1", "policy_loss.importance_cap=2", "training.tasks_per_step=4")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recipe") / "small.toml"
    file.write_text(RECIPE)
    return file


def tasks_of(path: Path) -> Counter[object]:
    return Counter(row["task_index"] for row in episodes_of(path) if row["phase"] == "train")


@pytest.fixture(scope="module")
def waiting_run(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run without staleness."""
    path = tmp_path_factory.mktemp("runs") / "waiting"
    assert succeeded(train(recipe, *CARRYING, "rollout.max_staleness=0", "--run-dir", path))
    return path


@pytest.mark.long
def test_a_run_learns_from_the_same_tasks_as_one_that_waits(
    recipe: Path, waiting_run: Path, tmp_path: Path
):
    path = tmp_path / "carrying"
    assert succeeded(train(recipe, *CARRYING, "--run-dir", path))
    lines = read_json_lines(path / "metrics.jsonl")
    assert [line["rollout/episodes"] for line in lines] == [16.0] * 8
    assert lines[0]["rollout/staleness_max"] == 0
    assert all(
        0 <= line["rollout/staleness_mean"] <= line["rollout/staleness_max"] <= 1 for line in lines
    )
    assert any(line["rollout/groups_carried"] for line in lines)
    assert all(line["rollout/episodes_failed"] == 0 for line in lines)
    assert tasks_of(path) == tasks_of(waiting_run)
    for row in (row for row in episodes_of(path) if row["phase"] == "train"):
        for sample in row["samples"]:  # pyrefly: ignore - rows are as Parquet has them
            versions = [s["version"] for s in sample["segments"] if s["version"] is not None]
            assert versions == sorted(versions) and sample["version"] == versions[-1]
            assert row["step"] - 2 <= versions[0] <= versions[-1] <= row["step"] - 1
    newest = json.loads((path / "checkpoints" / "latest" / "state.json").read_text())
    assert newest["step"] == 8 and "carried" not in newest
    carried = json.loads((path / "checkpoints" / "step-6" / "state.json").read_text())["carried"]
    assert len(carried) == 1
    assert not any(key.startswith("rollout/staleness") for key in metrics_of(waiting_run)[0])


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_a_run_that_is_stopped_goes_on_and_loses_no_task(
    recipe: Path, waiting_run: Path, tmp_path: Path, how: str
):
    path = tmp_path / how
    words = (recipe, *CARRYING, "--run-dir", path)
    if how == "killed":
        assert train(*words, kill=Kill(r"train-000006")).status == -signal.SIGKILL
    else:
        fifth_line = Kill(r"open .*interrupted/metrics\.jsonl", 5, signal.SIGINT)
        outcome = train(*words, kill=fifth_line)
        assert interrupted(outcome, f"agentgym train --run-dir {path} --resume")
    assert succeeded(go_on(path))
    assert tasks_of(path) == tasks_of(waiting_run)
    assert [line["step"] for line in metrics_of(path)] == list(range(1, 9))
