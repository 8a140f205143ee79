"""A stretch of a study: its commands, several at once, for a limited time; the next one resumes.

`progress.json` keeps what the files of the jobs do not say: seconds, commits, and the commands.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from study_jobs import Job

from agentgym_rl import __version__
from agentgym_rl.errors import AgentGymError
from agentgym_rl.runs.folder import write_atomically

_POLL_S = 0.2
_RECORD_S = 5.0
_SAVING_S = 60.0
"""Before the end of a stretch: what runs are given to save their last step."""
_KILL_S = 180.0
"""After this long they are not waited for any more."""
_WORTHWHILE_S = 120.0
"""A command that would have less than this is not begun."""
_PARTS = 5
"""Neither saving nor what is not begun takes more than a fifth of a stretch."""
_CHILD = """
import ctypes, signal, sys
if sys.platform == "linux":  # when this bench is killed its commands save and end as well
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
from agentgym_rl.cli.main import main
main()
"""


@dataclass(slots=True)
class Record:
    """What a job took so far, in all stretches."""

    command: list[str] = field(default_factory=list)
    """The words after `agentgym` that began it."""
    seconds: float = 0.0
    """Of its processes, from start to end."""
    stretches: int = 0
    commits: list[str] = field(default_factory=list)
    """Of the code, in order."""


class Records:
    """The records of a study's jobs, by name, in a file."""

    def __init__(self, out: Path) -> None:
        self._file = out / "progress.json"
        found = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        self.by_name = {name: Record(**record) for name, record in found.items()}

    def of(self, name: str) -> Record:
        return self.by_name.setdefault(name, Record())

    def save(self) -> None:
        records = {name: asdict(record) for name, record in self.by_name.items()}
        write_atomically(self._file, json.dumps(records, indent=2) + "\n")


@dataclass(slots=True)
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    counted_at: float
    """Its record holds the seconds until then."""


class Stretch:
    """Runs the jobs of a study that are not done, until all are or the time is over."""

    def __init__(
        self,
        jobs: Sequence[Job],
        out: Path,
        *,
        at_once: int,
        minutes: float | None = None,
        say: Callable[[str], None] = lambda _: None,
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        self._jobs, self._out, self._at_once = jobs, out, at_once
        self._say, self._on_done = say, on_done
        self.records = Records(out)
        self.failures: dict[str, str] = {}
        """What went wrong, by the variant."""
        self._running: list[_Running] = []
        self._tried: set[str] = set()
        self._done = {job.name for job in jobs if job.is_done()}
        self._commit = commit()
        total_s = minutes * 60 if minutes is not None else float("inf")
        saving_s = min(_SAVING_S, total_s / _PARTS)
        self._stop_at = time.monotonic() + total_s - saving_s
        self._begin_until = self._stop_at - min(_WORTHWHILE_S, total_s / _PARTS)
        self._kill_at = float("inf")
        self._is_stopping = False

    def left(self) -> list[Job]:
        """Return the jobs that are not done."""
        return [job for job in self._jobs if job.name not in self._done]

    def run(self) -> None:
        """Run what can be run. A signal (Ctrl-C, SIGTERM) stops it as the end of the time does."""
        with self._stopped_by_signals():
            saved_at = time.monotonic()
            while True:
                self._reap()
                if time.monotonic() > self._stop_at:
                    self._stop()
                if time.monotonic() > self._kill_at:
                    for running in self._running:
                        running.process.kill()
                self._begin_more()
                if not self._running:
                    break
                if time.monotonic() > saved_at + _RECORD_S:
                    self._count()
                    saved_at = time.monotonic()
                time.sleep(_POLL_S)
        self.records.save()

    def _begin_more(self) -> None:
        if self._is_stopping or time.monotonic() > self._begin_until:
            return
        for job in self._jobs:
            is_free = job.name not in self._done | self._tried
            if is_free and self._done.issuperset(job.needs) and job.variant not in self.failures:
                if len(self._running) == self._at_once:
                    return
                try:
                    self._begin(job)
                except (AgentGymError, ValueError) as error:
                    self.failures[job.variant] = f"{job.title} cannot begin: {error}"

    def _begin(self, job: Job) -> None:
        self._tried.add(job.name)
        record = self.records.of(job.name)
        record.command = record.command or job.arguments()
        record.stretches += 1
        if self._commit not in record.commits:
            record.commits.append(self._commit)
        log = self._out / f"{job.name}.log"
        with log.open("a") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, *job.resuming()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # One thread each: a tiny model gains little from a second, runs share the machine.
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # Ctrl-C is for this process, which stops the others
            )
        self._running.append(_Running(job, process, log, time.monotonic()))
        self.records.save()
        self._say(f"{'resumes' if record.stretches > 1 else 'begins'}: {job.title}")

    def _reap(self) -> None:
        """See which commands have ended, and how."""
        ended = [running for running in self._running if running.process.poll() is not None]
        if not ended:
            return
        self._count()
        self._running = [running for running in self._running if running not in ended]
        for running in ended:
            job, status = running.job, running.process.returncode
            if status == 0:
                job.finish()
            if job.is_done():
                self._done.add(job.name)
                self._say(f"done: {job.title}, {self.records.of(job.name).seconds:.0f} s")
                self._on_done()
            elif not self._is_stopping:
                self.failures[job.variant] = (
                    f"{job.title} ended with {status}: {_last_line(running.log)} (all of it: "
                    f"{running.log}); the same command goes on with what is left"
                )

    def _count(self) -> None:
        now = time.monotonic()
        for running in self._running:
            self.records.of(running.job.name).seconds += now - running.counted_at
            running.counted_at = now
        self.records.save()

    def _stop(self) -> None:
        """Let the commands save what they have, and begin no other."""
        if not self._is_stopping:
            self._is_stopping = True
            self._kill_at = time.monotonic() + _KILL_S
            for running in self._running:
                running.process.terminate()
                self._say(f"stops: {running.job.title}")

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def stop(number: int, _: FrameType | None) -> None:
            signal.signal(number, before[signal.Signals(number)])  # a second one ends this process
            self._stop_at = 0.0

        for number in before:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def commit() -> str:
    """Return the commit of this code, with "+" where files differ from it; else the version."""
    git, folder = shutil.which("git"), Path(__file__).parent

    def ask(*words: str) -> str:
        asked = [str(git), "-C", str(folder), *words]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        return answer.stdout.strip() if answer.returncode == 0 else ""

    name = ask("rev-parse", "--short=12", "HEAD") if git else ""
    # A folder that git does not know lies in somebody else's repository.
    if not name or not ask("ls-files", Path(__file__).name):
        return f"version {__version__}"
    return name + "+" * bool(ask("status", "--porcelain", "--untracked-files=no"))


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing was said")
