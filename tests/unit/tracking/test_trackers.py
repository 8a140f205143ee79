"""What trackers are given of a run folder, and what is refused before a run begins."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from agentgym_rl.config import RunConfig, dump_config, parse_config
from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder, write_atomically
from agentgym_rl.tracking import trackers
from agentgym_rl.tracking.base import Tracker
from agentgym_rl.tracking.entries import NUM_SAMPLES, EntryReader
from agentgym_rl.tracking.process import State, read_state, state_file
from agentgym_rl.tracking.trackers import check_trackers
from agentgym_rl.types import Message
from episode_groups import make_groups


def config_of(*overrides: str) -> RunConfig:
    return parse_config({"env": {"name": "babyai"}}, overrides, source="test")


def a_picture() -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (8, 4), "red").save(data, "PNG")
    return data.getvalue()


def new_run(folder: Path, *overrides: str) -> RunFolder:
    run = RunFolder(folder / "my-run")
    run.create(dump_config(config_of(*overrides)))
    return run


def with_episodes(run: RunFolder, *, phase: str, step: int) -> RunFolder:
    """Store groups whose episodes have a goal and end with a picture."""
    groups = [
        [
            replace(
                episode,
                messages=(Message("user", "open the door"),),
                rounds=(*episode.rounds[:-1], replace(episode.rounds[-1], picture=a_picture())),
            )
            for episode in group.episodes
        ]
        for group in make_groups()
    ]
    write_episodes(run.episodes, groups, phase=phase, step=step)
    return run


def test_entries_come_in_order_up_to_a_step_and_again_after_rewinding(tmp_path: Path):
    run = new_run(tmp_path)
    record = EntryReader(run.path)
    assert record.next_after(-1, until=9) is None
    for step in (1, 2, 3):
        run.append_metrics({"step": step, "train/loss": step / 2})
    with run.metrics_file.open("a") as file:
        file.write('{"step": 4, "train/lo')  # is being written
    first = record.next_after(-1, until=2)
    assert first is not None and (first.step, first.numbers) == (1, {"train/loss": 0.5})
    second = record.next_after(1, until=2)
    assert second is not None and second.step == 2
    assert record.next_after(2, until=2) is None
    third = record.next_after(2, until=9)
    assert third is not None and third.step == 3
    assert record.next_after(3, until=9) is None
    record.rewind()
    again = record.next_after(0, until=9)
    assert again is not None and again.step == 1


def test_lines_that_a_run_writes_again_are_read_again(tmp_path: Path):
    run = new_run(tmp_path)
    record = EntryReader(run.path)
    for step in (1, 2, 3):
        run.append_metrics({"step": step, "train/loss": step / 2})
    assert record.next_after(2, until=9) is not None
    run.forget_after(1)  # it goes back to a checkpoint
    for step in (2, 3, 4):
        run.append_metrics({"step": step, "train/loss": 0.25, "cluster/restarts_learner": 1.0})
    entry = record.next_after(3, until=9)
    assert entry is not None and entry.step == 4 and entry.numbers["train/loss"] == 0.25


def test_episodes_are_those_of_evaluations(tmp_path: Path):
    run = with_episodes(new_run(tmp_path), phase="eval", step=2)
    with_episodes(run, phase="train", step=1)
    for step in (1, 2):
        run.append_metrics({"step": step})
    record = EntryReader(run.path)
    first, second = record.next_after(0, until=2), record.next_after(1, until=2)
    assert first is not None and first.episodes == ()
    assert second is not None and 0 < len(second.episodes) <= NUM_SAMPLES
    episode = second.episodes[0]
    assert (episode.task, episode.goal, episode.step) == ("counting/0", "open the door", 2)
    assert episode.picture is not None and episode.picture.read_bytes() == a_picture()


def test_a_run_without_evaluations_shows_episodes_of_its_training(tmp_path: Path):
    run = with_episodes(new_run(tmp_path, "eval.tasks=0"), phase="train", step=1)
    run.append_metrics({"step": 1})
    entry = EntryReader(run.path).next_after(0, until=1)
    assert entry is not None and len(entry.episodes) == 3


def test_pictures_reach_tensorboard(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from agentgym_rl.tracking.to_tensorboard import TensorBoardTracker

    run = with_episodes(new_run(tmp_path), phase="eval", step=1)
    run.append_metrics({"step": 1, "train/loss": 0.5})
    record, tracker = EntryReader(run.path), TensorBoardTracker()
    tracker.open(record.tracked(id_="abc"))
    entry = record.next_after(0, until=1)
    assert entry is not None
    tracker.log(entry)
    tracker.finish(None)
    found = EventAccumulator(str(run.path / "tracking" / "tensorboard"))
    found.Reload()
    (shown,) = found.Images("episodes/0/picture")
    assert (shown.step, shown.width, shown.height) == (1, 8, 4)
    assert shown.encoded_image_string == a_picture()


def test_mlflow_gets_each_number_once_though_a_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    from agentgym_rl.tracking.to_mlflow import MlflowTracker

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = with_episodes(new_run(tmp_path), phase="eval", step=1)
    run.append_metrics({"step": 1, "train/loss": 0.5, **{f"n/{i}": 1.0 for i in range(1000)}})
    entries, tracker = EntryReader(run.path), MlflowTracker()
    tracker.open(entries.tracked(id_="0123456789ab"))
    entry = entries.next_after(0, until=1)
    assert entry is not None and len(entry.numbers) == 1001, "more than one request may have"

    def fail(*_: object) -> None:
        raise OSError("no room for files")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no room"):
        patched.setattr(MlflowClient, "log_dict", fail)
        tracker.log(entry)
    tracker.log(entry)
    client = MlflowClient((tmp_path / "mlruns").as_uri())
    (experiment,) = client.search_experiments(filter_string="name = 'agentgym-rl'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert len(found.data.metrics) == 1001
    history = client.get_metric_history(found.info.run_id, "train/loss")
    assert [(item.step, item.value) for item in history] == [(1, 0.5)]


@pytest.mark.parametrize("id_", ["../../elsewhere", "*", 7, None])
def test_an_id_that_we_did_not_make_is_not_used(tmp_path: Path, id_: object):
    file = state_file(tmp_path, "wandb")
    write_atomically(file, json.dumps({"id": id_, "step": 3}))
    assert read_state(tmp_path, "wandb") == State()
    write_atomically(file, json.dumps({"id": "0123456789ab", "step": 3}))
    assert read_state(tmp_path, "wandb") == State("0123456789ab", 3)


@pytest.mark.parametrize(
    "state", [{"step": "x"}, {"step": None}, {"failures": "2"}, {"error": ["x"]}, [1], "x", 7]
)
def test_a_state_that_we_did_not_write_is_not_used(tmp_path: Path, state: object):
    write_atomically(state_file(tmp_path, "wandb"), json.dumps(state))
    assert read_state(tmp_path, "wandb") == State()


def test_a_tracker_that_there_is_not_is_refused():
    with pytest.raises(ConfigError, match=r"no tracker 'wandbb' \(did you mean 'wandb'\?\)"):
        config_of("tracking=['wandbb']")
    with pytest.raises(ConfigError, match="twice"):
        config_of("tracking=['wandb', 'wandb']")


def test_a_missing_package_is_refused_with_its_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="tracking=mlflow needs the package mlflow"):
        check_trackers(["mlflow"])


def test_a_class_that_is_no_tracker_is_refused():
    check_trackers([f"{Tracker.__module__}:Tracker"])
    with pytest.raises(ValueError, match="is not a subclass of Tracker"):
        check_trackers(["agentgym_rl.runs.folder:RunFolder"])


BROKEN = """
import os, time
from agentgym_rl.tracking import trackers
from agentgym_rl.tracking.base import Tracker
from agentgym_rl.tracking.entries import NUM_SAMPLES, EntryReader
from agentgym_rl.tracking.process import State, read_state, state_file


class Raises(Tracker):
    def open(self, run): return -1
    def log(self, entry): raise OSError("No space left on device")
    def finish(self, model): pass


class Hangs(Raises):
    is_live = True
    def log(self, entry): time.sleep(3600)


class Dies(Raises):
    def open(self, run): os._exit(7)
"""


@pytest.mark.long
@pytest.mark.slow
def test_trackers_that_raise_hang_or_die_delay_only_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setattr(trackers, "END_S", 15.0)
    run, names = new_run(tmp_path), [f"broken:{name}" for name in ("Raises", "Hangs", "Dies")]
    with trackers.Trackers(names, run.path) as followed:
        followed.start(0)
        started = time.monotonic()
        for step in range(1, 20_000):  # more lines than a pipe holds
            followed.step(step)
        assert time.monotonic() - started < 30.0
        run.append_metrics({"step": 1})
        followed.saved(1)
    said = caplog.text
    assert said.count("broken:Raises failed") <= 2 and "No space left on device" in said
    assert "broken:Hangs did not end within 15 s and was stopped" in said
    assert "broken:Dies its process ended with status 7" in said
    assert read_state(run.path, "broken:Raises").missing == 1
    assert read_state(run.path, "broken:Hangs").step == -1


def test_nothing_on_the_runs_side_imports_a_tracker():
    program = (
        "import sys\n"
        "import agentgym_rl.callbacks, agentgym_rl.tracking.trackers, agentgym_rl.api.training\n"
        "found = {'wandb', 'tensorboard', 'mlflow', 'trackio'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
