"""What gets its name is on the disk before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentgym_rl.runs.durable import put_in_place
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
