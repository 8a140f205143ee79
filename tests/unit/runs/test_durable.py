"""What gets its name is on the disk before."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from agentgym_rl.runs.durable import put_in_place, replace_folder, restore_folders
from agentgym_rl.runs.folder import RunFolder, write_atomically


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is synced and renamed, in order."""
    found, replace, fsync = list[str](), Path.replace, os.fsync

    def note_sync(descriptor: int) -> None:
        found.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def note_replace(path: Path, target: Path) -> Path:
        found.append(f"rename {path.name} {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    return found


def test_a_folder_is_synced_with_all_it_holds_before_it_gets_its_name(
    tmp_path: Path, events: list[str]
):
    (tmp_path / "runs" / "writing" / "model").mkdir(parents=True)
    (tmp_path / "runs" / "writing" / "model" / "weights").write_bytes(b"1")
    (tmp_path / "runs" / "writing" / "state").write_bytes(b"2")
    put_in_place(tmp_path / "runs" / "writing", tmp_path / "runs" / "final")
    *before, rename, after = events
    assert set(before) == {"sync weights", "sync model", "sync state", "sync writing"}
    assert before.index("sync weights") < before.index("sync model") < before.index("sync writing")
    assert (rename, after) == ("rename writing final", "sync runs")
    assert (tmp_path / "runs" / "final" / "model" / "weights").read_bytes() == b"1"


def test_a_file_replaces_another(tmp_path: Path, events: list[str]):
    write_atomically(tmp_path / "a.txt", "old")
    write_atomically(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"
    step = ["sync .a.txt.writing", "rename .a.txt.writing a.txt", f"sync {tmp_path.name}"]
    assert events == step * 2


def test_an_old_checkpoint_goes_only_when_the_new_one_is_on_the_disk(
    tmp_path: Path, events: list[str]
):
    run = RunFolder(tmp_path)
    for step in (1, 2):
        written = run.checkpoints / ".writing"
        written.mkdir(parents=True)
        (written / "state.json").write_text("{}")
        run.complete_checkpoint(written, step, keep=1)
    assert events[-4:] == [
        "rename .writing step-2",
        "sync checkpoints",
        "rename .latest latest",
        "sync checkpoints",
    ]
    assert run.latest_checkpoint() == run.checkpoint_path(2)
    assert not run.checkpoint_path(1).exists()


class Killed(BaseException):
    """The process ends here."""


def replaced_until(parent: Path, monkeypatch: pytest.MonkeyPatch, *, num_renames: int) -> list[str]:
    """Replace a folder, with a kill after some renames; return what a restored folder holds."""
    (parent / "model").mkdir()
    (parent / "model" / "old").touch()
    (parent / "writing").mkdir()
    (parent / "writing" / "new").touch()
    replace, left = Path.replace, [num_renames]

    def rename_or_die(path: Path, target: Path) -> Path:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return replace(path, target)

    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(Path, "replace", rename_or_die)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # killed before it, or in it
        replace_folder(parent / "writing", parent / "model")
    restore_folders(parent)
    assert not list(parent.glob(".*")), "nothing is left aside"
    return [file.name for file in (parent / "model").iterdir()]


@pytest.mark.parametrize(("num_renames", "kept"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_kill_loses_neither_the_old_folder_nor_the_new(
    num_renames: int, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert replaced_until(tmp_path, monkeypatch, num_renames=num_renames) == [kept]


def test_a_run_that_is_opened_has_back_what_a_kill_put_aside(tmp_path: Path):
    run = RunFolder(tmp_path)
    for place in (run.path / ".model.best.replaced", run.checkpoints / ".step-3.replaced"):
        place.mkdir(parents=True)
    with run.locked():
        assert (run.path / "model.best").is_dir()
        assert run.latest_checkpoint() == run.checkpoint_path(3)
