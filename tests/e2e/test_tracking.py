"""Real trackers through a real kill and a resume: the same numbers as metrics.jsonl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agentgym_rl.evaluation.report import eval_metrics
from agentgym_rl.evaluation.stored import read_reports
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.tracking.process import read_state
from commands import Command, Kill
from training_runs import RECIPE, succeeded
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.long]

os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
ALL = ("tensorboard", "wandb", "mlflow", "trackio")


def expected(run: Path) -> dict[tuple[str, int], float]:
    """Return every number of the run by name and step, with the evaluation before the first."""
    folder = RunFolder(run)
    lines = [*folder.read_metrics()]
    lines.append({"step": 0, **eval_metrics([r for r in read_reports(folder) if r.step == 0])})
    return {
        (name, int(line["step"])): value
        for line in lines
        for name, value in line.items()
        if name != "step"
    }


def trackio_rows(folder: Path, project: str) -> list[dict[str, object]]:
    """Read trackio's database in a process of its own: where it is, is decided by the import."""
    program = (
        "import json, sys\n"
        "from trackio.sqlite_storage import SQLiteStorage as s\n"
        "(name,) = s.get_runs(sys.argv[1])\n"
        "print(json.dumps(s.get_logs(sys.argv[1], name), default=str))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, project],
        env={**os.environ, "TRACKIO_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that all four follow, killed in step 4 with step 3 in no checkpoint, and resumed."""
    folder = tmp_path_factory.mktemp("tracking")
    (folder / "small.toml").write_text(RECIPE)
    env = {"TRACKIO_DIR": str(folder / "trackio"), "WANDB_MODE": "offline"}
    words = ["training.steps=5", "warm_start.steps=4", "eval.every=2", "eval.tasks=2"]
    words += [f"tracking={json.dumps(ALL)}", "tracking_project=tested"]
    words += ["callbacks.keep_best=true", "--run-dir", "runs/a"]
    kill = Kill(r"train-000004")
    killed = Command("train", "small.toml", *words, folder=folder, kill=kill, env=env).wait()
    assert killed.status == -9, killed.output
    resume = ("train", "--run-dir", "runs/a", "--resume")
    assert succeeded(Command(*resume, folder=folder, env=env).wait())
    run = folder / "runs" / "a"
    for name in ALL:
        state = read_state(run, name)
        log = (run / "tracking" / f"{name}.log").read_text()
        assert (state.step, state.failures, state.is_finished) == (5, 0, True), (state, log)
    return run


def test_all_four_have_the_numbers_of_metrics_jsonl(resumed: Path):
    import tracker_readers as readers  # the packages are slow to import

    numbers = expected(resumed)
    assert {step for _, step in numbers} == set(range(6))
    assert readers.wandb_numbers(resumed) == numbers
    store = resumed.parent / "mlruns"
    assert readers.mlflow_numbers(store, read_state(resumed, "mlflow").id) == numbers
    rows = trackio_rows(resumed.parents[1] / "trackio", "tested")
    assert [row["step"] for row in rows] == list(range(6))
    kept = {(key, row["step"]): value for row in rows for key, value in row.items() if "/" in key}
    assert kept == numbers
    assert readers.tensorboard_numbers(resumed) == {
        key: float(np.float32(value)) for key, value in numbers.items()
    }


def test_they_have_the_configuration_episodes_and_the_model(resumed: Path):
    import tracker_readers as readers  # as above

    texts = readers.tensorboard_texts(resumed)
    assert any("[env]" in text for text in texts)
    assert any("go to the red ball" in text for text in texts)
    assert any(str(resumed / "model") in text for text in texts)
    rows = readers.wandb_rows(resumed)
    sizes = {row["step"]: row["episodes/nrows"] for row in rows if "episodes/nrows" in row}
    assert sizes == {0: 2, 2: 2, 4: 2, 5: 2}
    (files,) = (resumed.parent / "mlruns").glob("*/*/artifacts")
    assert sorted(file.name for file in (files / "episodes").iterdir()) == [
        f"step-{step:06d}.json" for step in (0, 2, 4, 5)
    ]
    assert (files / "model" / "model.safetensors").stat().st_size
    assert (files / "config.toml").read_text() == (resumed / "config.toml").read_text()
    rows = trackio_rows(resumed.parents[1] / "trackio", "tested")
    assert [row["step"] for row in rows if "episodes" in row] == [0, 2, 4, 5]


def test_the_best_model_is_that_of_the_best_checkpoint(resumed: Path):
    facts = json.loads((resumed / "model.best" / "best.json").read_text())
    steps = {2, 4, 5}  # with a checkpoint and an evaluation
    values = {step: value for (name, step), value in expected(resumed).items()
              if name == "eval/babyai/success_rate" and step in steps}  # fmt: skip
    best = max(values.values())
    first = min(step for step, value in values.items() if value == best)
    assert (facts["step"], facts["value"]) == (first, best)
    assert (resumed / "model.best" / "model.safetensors").is_file()


def test_the_model_has_a_card(resumed: Path):
    card = (resumed / "model" / "README.md").read_text()
    assert "| babyai | test | 2 |" in card and "(step 0)" in card and "(step 5)" in card
    assert "torch 2" in card and "[warm_start]" in card


BROKEN = """
import time
from agentgym_rl.tracking.base import Tracker


class Raises(Tracker):
    def open(self, run): return -1
    def log(self, entry): raise OSError("No space left on device")
    def finish(self, model): pass


class Hangs(Tracker):
    is_live = True
    def open(self, run): return -1
    def log(self, entry): time.sleep(3600)
    def finish(self, model): pass


class Dies(Tracker):
    def open(self, run):
        import os
        os._exit(7)
    def log(self, entry): pass
    def finish(self, model): pass
"""


@pytest.mark.long
def test_trackers_that_raise_hang_or_die_do_not_stop_a_run(tmp_path: Path):
    (tmp_path / "small.toml").write_text(RECIPE)
    (tmp_path / "broken.py").write_text(BROKEN)
    names = json.dumps([f"broken:{name}" for name in ("Raises", "Hangs", "Dies")])
    program = (
        "import agentgym_rl.tracking.trackers as trackers, sys\n"
        "trackers.END_S = 6.0\n"
        "from agentgym_rl.cli.main import main\n"
        "main()\n"
    )
    words = ["train", "small.toml", f"tracking={names}", "training.steps=2", "warm_start.steps=2"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "eval.tasks=0", "--run-dir", "run"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join((done.stdout + done.stderr).split())
    assert len(RunFolder(tmp_path / "run").read_metrics()) == 2
    assert "broken:Raises failed" in said and "No space left on device" in said
    assert "broken:Hangs did not end within 6 s" in said
    assert "broken:Dies its process ended with status 7" in said
    assert read_state(tmp_path / "run", "broken:Raises").failures >= 3


def test_a_tracker_does_not_outlive_a_run_that_is_killed(tmp_path: Path):
    (tmp_path / "broken.py").write_text(BROKEN)
    (tmp_path / "config.toml").write_text("tracking = []\n")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "tracking").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", "import agentgym_rl.tracking.process as p; p._LEAVE_S = 0.5; "
         "p.main()", str(tmp_path), "broken:Hangs"],
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(b"step 1\n")
    process.stdin.close()  # as by the death of the run
    wait_for(lambda: process.poll() is not None)
    assert process.returncode == 1
