"""How a run stands: `run.json`, which its process writes when it begins and when it ends.

    {"recipe": "quickstart", "version": "0.1.0", "state": "stopped", "error": "", "pid": 4711,
     "host": "node-7", "started_at": "2026-11-18T20:00:00Z", "ended_at": "2026-11-18T20:03:10Z"}

A process that is killed writes nothing: its run still says "running", and nobody holds its lock.
Run folders are data, and so is this file: what it says is shown, and never done.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from agentgym_rl.runs.folder import RunFolder, write_atomically
from agentgym_rl.runs.regular_files import read_regular

FILE = "run.json"
_MAX_BYTES = 64_000
_MAX_ERROR_CHARS = 2000
_MAX_WORD_CHARS = 400


class RunState(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    """A person or the machine ended it, or it is of a version that kept no record; it resumes."""
    FAILED = "failed"
    """An error ended it."""
    CRASHED = "crashed"
    """Its process is gone, and had no time to say why: killed, or out of memory."""
    UNKNOWN = "unknown"
    """Another machine runs it, or did, or it has steps and no recipe; this one cannot tell."""
    STORED = "stored"
    """Episodes that were recorded before; nothing was trained."""
    EMPTY = "empty"
    """Nothing has been done yet."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run's process says of itself."""

    state: RunState = RunState.RUNNING
    recipe: str = ""
    """The name or file of its recipe; empty for settings that a program made."""
    version: str = ""
    """Of this package."""
    error: str = ""
    pid: int = 0
    host: str = ""
    started_at: str = ""
    """Of its first process; times are UTC, such as 2026-11-18T20:00:00Z."""
    ended_at: str = ""


@contextmanager
def recorded(run: RunFolder, *, recipe: str, version: str) -> Iterator[None]:
    """Write how a run stands when it begins and when it ends, however it ends.

    A run that resumes keeps the recipe and the time of its first beginning.
    """
    before = read_record(run.path)
    record = RunRecord(
        recipe=before.recipe if before else recipe,
        version=version,
        pid=os.getpid(),
        host=socket.gethostname(),
        started_at=(before.started_at if before else "") or _now(),
    )
    _write(run, record)
    state, error = RunState.STOPPED, ""  # whatever is no Exception is a signal
    try:
        yield
        state = RunState.FINISHED
    except Exception as failure:
        state, error = RunState.FAILED, str(failure) or type(failure).__name__
        raise
    finally:
        if run.path.is_dir():  # a run that was refused before it began is gone
            shown = " ".join(error.split())[:_MAX_ERROR_CHARS]
            _write(run, replace(record, state=state, error=shown, ended_at=_now()))


def record_stored(run: RunFolder) -> None:
    """Write that a run holds episodes that were recorded before, whatever its recipe asks for."""
    now = _now()
    _write(run, RunRecord(state=RunState.STORED, started_at=now, ended_at=now))


def read_record(folder: Path) -> RunRecord | None:
    """Return what the run in a folder says of itself; None where that makes no sense."""
    try:
        table = json.loads(read_regular(folder / FILE, max_bytes=_MAX_BYTES))
        return _record(table) if isinstance(table, dict) else None
    except (OSError, ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class Locks:
    """The locked files of this machine at one moment, for whoever asks about many runs."""

    files: frozenset[tuple[int, int]] | None
    """Device and inode of each; None where the system does not list them."""
    devices: frozenset[int]
    """Those of the file systems that are mounted."""

    @classmethod
    def now(cls) -> Locks:
        try:
            locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
        except (OSError, UnicodeDecodeError):
            return cls(None, frozenset())
        fields = [line.split() for line in locks]
        # Whoever waits for a lock is listed too, with "->" after the number.
        held = [words[5].split(":") for words in fields if len(words) > 5 and words[1] != "->"]
        mounted = [line.split()[2].split(":") for line in mounts]
        return cls(
            frozenset((_device(major, minor, 16), int(inode)) for major, minor, inode in held),
            frozenset(_device(major, minor, 10) for major, minor in mounted),
        )

    def holds(self, file: os.stat_result) -> bool:
        """Whether somebody has locked a file.

        On btrfs and overlayfs a file is of another device than locks and mounts are listed with:
        there its inode alone decides.
        """
        assert self.files is not None, "the system lists locks"
        if file.st_dev in self.devices:
            return (file.st_dev, file.st_ino) in self.files
        return any(inode == file.st_ino for _, inode in self.files)


def _device(major: str, minor: str, base: int) -> int:
    return os.makedev(int(major, base), int(minor, base))


def run_state(
    run: RunFolder, *, num_steps: int, target: int | None, locks: Locks | None = None
) -> RunState:
    """Return how a run stands, from its lock, its record and its files.

    `num_steps` are the steps done, `target` those that its recipe asks for; `locks` are read
    where they are not given.
    """
    record = read_record(run.path)
    if is_running(run, record, locks or Locks.now()):
        return RunState.RUNNING
    if record is not None and record.state is not RunState.RUNNING:
        return record.state
    if record is not None:
        return RunState.CRASHED if record.host == socket.gethostname() else RunState.UNKNOWN
    if target is not None and num_steps >= target and run.model.is_dir():
        return RunState.FINISHED
    if target is None:
        if run.episodes.is_dir():
            return RunState.STORED
        return RunState.UNKNOWN if num_steps else RunState.EMPTY
    return RunState.STOPPED if num_steps or run.is_begun else RunState.EMPTY


def is_running(run: RunFolder, record: RunRecord | None, locks: Locks) -> bool:
    """Whether a process of this machine holds the lock of a run.

    The lock is not asked for: a run that starts at that moment would find it taken. Where the
    system does not list locks, a process of the record's number must be alive.
    """
    if locks.files is not None:
        try:
            return locks.holds(run.lock_file.stat())
        except OSError:
            return False
    if record is None or record.host != socket.gethostname():
        return False
    return record.state is RunState.RUNNING and _is_alive(record.pid)


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)  # asks, and sends nothing
    except (OSError, OverflowError) as error:
        return getattr(error, "errno", None) == errno.EPERM  # OverflowError has none
    return True


def _record(table: Mapping[str, object]) -> RunRecord:
    def word(key: str) -> str:
        value = table.get(key)
        return value[:_MAX_WORD_CHARS] if isinstance(value, str) else ""

    pid = table.get("pid")
    return RunRecord(
        state=RunState(word("state")),
        recipe=word("recipe"),
        version=word("version"),
        error=str(table.get("error") or "")[:_MAX_ERROR_CHARS],
        pid=pid if isinstance(pid, int) and not isinstance(pid, bool) else 0,
        host=word("host"),
        started_at=word("started_at"),
        ended_at=word("ended_at"),
    )


def _write(run: RunFolder, record: RunRecord) -> None:
    write_atomically(run.path / FILE, json.dumps(asdict(record), indent=1) + "\n")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
