"""The run folder: what is written whole or not at all, and what a resumed run finds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgym_rl.errors import RunError
from agentgym_rl.runs.folder import (
    Metrics,
    RunFolder,
    read_json_lines,
    step_of,
    write_atomically,
)

_NOBODY = 65534
_HOLD_LOCK = """
import sys, time
from pathlib import Path
from agentgym_rl.runs.folder import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.create("seed = 0\n")
    return folder


def line(step: int) -> Metrics:
    return {"step": step, "train/loss": step / 8}


def make_checkpoint(run: RunFolder, step: int, *, keep: int = 2) -> Path:
    """Write a checkpoint as a trainer does: beside its place, then completed."""
    written = run.checkpoints / f".writing-{step}"
    written.mkdir(parents=True)
    (written / "state.json").write_text(json.dumps({"step": step}))
    return run.complete_checkpoint(written, step, keep=keep)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_create_makes_the_folder_and_refuses_one_that_holds_a_run(run: RunFolder):
    assert run.exists and run.config_file.read_text() == "seed = 0\n"
    run.append_metrics({"step": 1})
    with pytest.raises(RunError, match=r"already: resume it .*, or name another folder"):
        run.create("seed = 1\n")
    assert run.config_file.read_text() == "seed = 0\n"


def test_create_refuses_what_is_left_of_a_run_that_lost_its_recipe(run: RunFolder):
    run.append_metrics({"step": 1})
    run.config_file.unlink()
    with pytest.raises(RunError, match=r"already: put its config\.toml back, or name"):
        run.create("seed = 1\n")


def test_create_takes_the_folder_of_a_run_that_failed_at_its_start(run: RunFolder):
    assert run.exists and not run.is_begun
    run.create("seed = 1\n")
    assert run.config_file.read_text() == "seed = 1\n"


def test_create_accepts_a_folder_without_a_run(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    run = RunFolder(tmp_path)
    assert not run.exists
    run.create("seed = 0\n")
    assert run.exists and (tmp_path / "notes.txt").read_text() == "mine"


def test_write_atomically_replaces_and_leaves_nothing_beside(tmp_path: Path):
    file = tmp_path / "deep" / "file.txt"
    write_atomically(file, "old")
    write_atomically(file, "nëw\n")
    assert file.read_text(encoding="utf-8") == "nëw\n"
    assert names(file.parent) == ["file.txt"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path):
    file = tmp_path / "file.txt"
    write_atomically(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "half \udc80")
    assert file.read_text() == "old"


def test_metrics_come_back_in_order(run: RunFolder):
    assert run.read_metrics() == []
    for step in (1, 2, 3):
        run.append_metrics(line(step))
    assert run.read_metrics() == [line(1), line(2), line(3)]
    assert len(run.metrics_file.read_text().splitlines()) == 3


def test_half_a_last_line_is_not_read_wherever_it_was_cut(run: RunFolder):
    for step in (1, 2):
        run.append_metrics(line(step))
    whole = run.metrics_file.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) - 1):
        run.metrics_file.write_bytes(whole[:end])
        assert run.read_metrics() == [line(1)], f"cut after {end} bytes"


def test_a_resumed_run_mends_half_a_last_line(run: RunFolder):
    run.append_metrics(line(1))
    with run.metrics_file.open("a") as file:
        file.write('{"step": 2, "train/l')
    run.forget_after(1)
    run.append_metrics(line(2))
    assert read_json_lines(run.metrics_file) == [line(1), line(2)]


def test_forget_after_drops_what_later_steps_left(run: RunFolder):
    run.episodes.mkdir()
    run.eval.mkdir()
    for step in range(5):
        if step:
            run.append_metrics(line(step))
            (run.episodes / f"train-{step:06d}.parquet").touch()
        (run.episodes / f"eval-{step:06d}.parquet").touch()
        for suffix in ("json", "md"):
            (run.eval / f"step-{step:06d}.{suffix}").touch()
    run.forget_after(2)
    assert run.read_metrics() == [line(1), line(2)]
    assert names(run.episodes) == [
        *(f"eval-{step:06d}.parquet" for step in range(3)),
        *(f"train-{step:06d}.parquet" for step in (1, 2)),
    ]
    assert names(run.eval) == [
        f"step-{step:06d}.{suffix}" for step in range(3) for suffix in ("json", "md")
    ]


def test_forget_after_of_a_new_run_does_nothing(run: RunFolder):
    run.forget_after(0)
    assert run.read_metrics() == []


def test_steps_are_read_from_names():
    assert step_of("step-12") == step_of("train-000012") == step_of("eval-000012") == 12


def test_a_run_without_checkpoints_has_no_latest(run: RunFolder):
    assert run.latest_checkpoint() is None


def test_latest_is_the_newest_complete_checkpoint_by_number(run: RunFolder):
    for step in (2, 9, 10):
        make_checkpoint(run, step, keep=9)
        assert run.latest_checkpoint() == run.checkpoint_path(step).resolve()
    unfinished = run.checkpoints / ".writing-11"
    unfinished.mkdir()
    assert run.latest_checkpoint() == run.checkpoint_path(10).resolve()
    assert os.readlink(run.checkpoints / "latest") == "step-10"
    assert names(run.checkpoints) == [".writing-11", "latest", "step-10", "step-2", "step-9"]


@pytest.mark.parametrize("lost", ["latest", "step-10"])
def test_without_latest_the_newest_checkpoint_is_found(run: RunFolder, lost: str):
    for step in (9, 10):
        make_checkpoint(run, step, keep=3)
    (run.checkpoints / "latest").unlink()
    if lost == "step-10":
        (run.checkpoints / "latest").symlink_to("step-10")
        shutil.rmtree(run.checkpoint_path(10))
    found = run.latest_checkpoint()
    assert found is not None and found.name == ("step-10" if lost == "latest" else "step-9")


def test_latest_survives_a_move_of_the_run(run: RunFolder, tmp_path: Path):
    make_checkpoint(run, 3)
    run.path.rename(tmp_path / "moved")
    moved = RunFolder(tmp_path / "moved")
    assert moved.latest_checkpoint() == moved.checkpoint_path(3).resolve()


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_only_the_newest_checkpoints_are_kept(run: RunFolder, keep: int):
    for step in (8, 9, 10, 11):
        make_checkpoint(run, step, keep=keep)
    kept = sorted(step_of(path.name) for path in run.checkpoints.glob("step-*"))
    assert kept == [8, 9, 10, 11][-keep:]


def test_a_checkpoint_left_by_a_kill_is_replaced(run: RunFolder):
    make_checkpoint(run, 2)
    # Killed after the folder had its name, before `latest` pointed at it.
    stale = run.checkpoint_path(4)
    stale.mkdir()
    (stale / "stale").touch()
    assert run.latest_checkpoint() == run.checkpoint_path(2).resolve()
    assert names(make_checkpoint(run, 4)) == ["state.json"]


def test_a_later_checkpoint_left_by_a_kill_never_takes_the_place_of_the_latest(run: RunFolder):
    make_checkpoint(run, 2, keep=1)
    run.checkpoint_path(4).mkdir()  # as above; the resumed run checkpoints more often
    make_checkpoint(run, 3, keep=1)
    assert run.latest_checkpoint() == run.checkpoint_path(3).resolve()


def test_the_lock_keeps_a_second_process_out_until_the_first_dies(run: RunFolder):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD_LOCK, str(run.path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match="one is in use by another process"), run.locked():
            pytest.fail("two processes hold the lock")
    finally:
        holder.kill()
        holder.communicate(timeout=10)
    with run.locked():
        pass


def test_the_lock_can_be_taken_again(run: RunFolder):
    for _ in range(2):
        with run.locked(), pytest.raises(RunError), RunFolder(run.path).locked():
            pass


def test_a_place_that_cannot_be_a_folder_is_named(tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    for path, told in ((file, "cannot be written"), (file / "inside", f"cannot be made in {file}")):
        with (
            pytest.raises(RunError, match=rf"{path} {told}: .*; name another folder"),
            RunFolder(path).locked(),
        ):
            pytest.fail("a file was locked as a folder")


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder in which this user, who is not root while the test runs, may not write."""
    with tempfile.TemporaryDirectory() as name:  # tmp_path lies in a folder of the user who began
        Path(name).chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(_NOBODY)
        try:
            yield Path(name)
        finally:
            os.seteuid(user)


def test_a_folder_that_may_not_be_written_is_named_with_the_remedy(closed: Path):
    for folder, told in (
        (closed, f"{closed} cannot be written: Permission denied; name another folder"),
        (closed / "a" / "b", f"{closed}/a/b cannot be made in {closed}: Permission denied; name"),
    ):
        with pytest.raises(RunError, match=told) as caught:
            write_atomically(folder / "file", "")
        assert "writing" not in str(caught.value)
        with pytest.raises(RunError, match=told), RunFolder(folder).locked():
            pytest.fail("what cannot be written was locked")


def test_the_lock_alone_is_no_run(tmp_path: Path):
    run = RunFolder(tmp_path / "new")
    with run.locked():
        assert not run.exists
        run.create("seed = 0\n")
