"""How a run stands, told from its folder: with real processes and a real lock."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.record import FILE, Locks, RunState, read_record, recorded, run_state

_PROCESS = """
import sys, time
from pathlib import Path
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.record import recorded
run = RunFolder(Path(sys.argv[1]))
with run.locked(), recorded(run, recipe="quickstart", version="1"):
    print("begun", flush=True)
    time.sleep(60)
"""


def state(run: RunFolder, *, num_steps: int = 1, target: int | None = 3) -> RunState:
    return run_state(run, num_steps=num_steps, target=target)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.create("")
    return run


def test_a_run_is_running_and_then_crashed_when_its_process_is_killed(run: RunFolder):
    process = subprocess.Popen(
        [sys.executable, "-c", _PROCESS, str(run.path)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        assert state(run) is RunState.RUNNING
        os.kill(process.pid, signal.SIGKILL)
        process.wait(20)
        assert state(run) is RunState.CRASHED
    finally:
        process.kill()
        process.wait(20)


def test_a_run_says_how_it_ended(run: RunFolder):
    with recorded(run, recipe="quickstart", version="1"):
        pass
    assert state(run) is RunState.FINISHED
    with pytest.raises(OSError), recorded(run, recipe="", version="2"):
        raise OSError("the disk is\nfull")
    record = read_record(run.path)
    assert record is not None and (record.state, record.error) == ("failed", "the disk is full")
    assert (record.recipe, record.version) == ("quickstart", "2"), "the recipe is the first one's"
    with pytest.raises(KeyboardInterrupt), recorded(run, recipe="", version="2"):
        raise KeyboardInterrupt
    assert state(run) is RunState.STOPPED


def test_a_run_of_another_machine_is_unknown(run: RunFolder):
    (run.path / FILE).write_text(json.dumps({"state": "running", "host": "elsewhere", "pid": 1}))
    assert state(run) is RunState.UNKNOWN


def test_runs_without_a_record_are_told_by_their_files(run: RunFolder):
    assert state(run, num_steps=0) is RunState.EMPTY
    assert state(run) is RunState.STOPPED
    run.model.mkdir()
    assert state(run, num_steps=3) is RunState.FINISHED
    assert state(run, target=None) is RunState.UNKNOWN
    run.episodes.mkdir()
    assert state(run, target=None) is RunState.STORED


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"state": "dancing"}', '{"state": ["running"]}', "[" * 50_000, "x" * 100_000],
)
def test_a_record_that_makes_no_sense_is_none(run: RunFolder, text: str):
    (run.path / FILE).write_text(text)
    assert read_record(run.path) is None
    assert state(run) is RunState.STOPPED


def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(run: RunFolder):
    os.mkfifo(run.path / FILE)
    assert state(run) is RunState.STOPPED


def test_odd_values_of_a_record_harm_nothing(run: RunFolder):
    record = {"state": "running", "host": socket.gethostname(), "pid": 2**80, "error": {"a": 1}}
    (run.path / FILE).write_text(json.dumps(record))
    assert state(run) is RunState.CRASHED


def test_the_lock_itself_tells_not_the_record(run: RunFolder):
    with run.lock_file.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert state(run) is RunState.RUNNING
    assert state(run) is RunState.STOPPED


def test_the_lock_of_a_file_on_another_disk_is_not_the_runs(run: RunFolder):
    run.lock_file.touch()
    file = run.lock_file.stat()
    device, inode = file.st_dev, file.st_ino
    known = frozenset({device, device + 1})
    assert Locks(frozenset({(device, inode)}), known).holds(file)
    assert not Locks(frozenset({(device + 1, inode)}), known).holds(file)
    # A file system that lists its files under another device: the inode decides.
    assert Locks(frozenset({(device + 1, inode)}), frozenset({device + 1})).holds(file)
    assert not Locks(frozenset({(device + 1, inode + 1)}), frozenset({device + 1})).holds(file)
