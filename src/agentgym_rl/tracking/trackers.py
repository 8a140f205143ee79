"""The trackers of one run, from the run's side: each is a process that follows the run folder.

A run imports none of their packages and waits for none of them. It writes short lines to a pipe,
and where a tracker does not read them the line is dropped: the next one says the same and more.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentgym_rl.config.tracking import TRACKERS
from agentgym_rl.errors import ConfigError, install_command
from agentgym_rl.lookup import is_own, load_class
from agentgym_rl.tracking.base import Tracker
from agentgym_rl.tracking.process import read_state

logger = logging.getLogger(__name__)

END_S = 90.0
"""How long a run that is done waits for its trackers, all together."""
STOP_S = 20.0
"""The same for a run that is stopped."""


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker whose package is missing, before the run begins."""
    for name in names:
        if is_own(name):
            load_class(name, Tracker, setting="tracking")
        elif name in TRACKERS and importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"tracking={name} needs the package {name}, which is not installed: "
                f"{install_command(name)}"
            )


class Trackers:
    """What a run tells its trackers. No method raises, and only `close` waits."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._names = names
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._warned = set[str]()

    def __enter__(self) -> Trackers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(is_done=kind is None)

    def start(self, done: int) -> None:
        """Follow the run, whose steps up to `done` are in a checkpoint."""
        # A run that goes back to a checkpoint has them already.
        for name in [name for name in self._names if name not in self._processes]:
            try:
                self._processes[name] = _started(self._folder, name)
            except OSError as error:
                self._warn(name, f"could not be started: {error}")
        self.saved(done)

    def step(self, number: int) -> None:
        """A step ended, and is in the run folder."""
        self._tell(f"step {number}")

    def saved(self, number: int) -> None:
        """A checkpoint holds the step."""
        self._tell(f"saved {number}")

    def close(self, *, is_done: bool) -> None:
        """Let the trackers write out what they have, and end those that take too long."""
        if is_done:
            self._tell("end")
        for process in self._processes.values():
            if process.stdin is not None:
                with suppress(OSError):
                    process.stdin.close()
        seconds = END_S if is_done else STOP_S
        deadline = time.monotonic() + seconds
        try:
            for name, process in self._processes.items():
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    what = f"did not end within {seconds:.0f} s and was stopped"
                    self._warn(name, what, again=True)
                self._report(name)
        finally:
            for process in self._processes.values():
                _kill(process)  # with what it started
            self._processes = {}

    def _tell(self, line: str) -> None:
        for name, process in self._processes.items():
            assert process.stdin is not None
            with suppress(OSError, ValueError):  # full, or its reader is gone
                os.write(process.stdin.fileno(), f"{line}\n".encode())
            if name not in self._warned:
                self._look_at(name, process)

    def _look_at(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Warn of a tracker that fails or died, once."""
        state = read_state(self._folder, name)
        if state.error and state.failures:
            self._warn(name, f"failed ({state.error})")
        elif process.poll() is not None:
            self._warn(name, f"its process ended with status {process.returncode}")

    def _report(self, name: str) -> None:
        """Say at the end what is not there."""
        state = read_state(self._folder, name)
        if state.note:
            logger.warning("tracking %s: %s", name, state.note)
        if state.failures:
            self._warn(
                name,
                f"failed {state.failures} times, the last time with {state.error}; sent up to step "
                f"{max(0, state.step)}, {state.missing} left out",
                again=True,
            )

    def _warn(self, name: str, what: str, *, again: bool = False) -> None:
        if name in self._warned and not again:
            return
        self._warned.add(name)
        log = _log_file(self._folder, name)
        logger.warning("tracking %s %s; the run is not affected (%s)", name, what, log)


def _log_file(folder: Path, name: str) -> Path:
    return folder / "tracking" / f"{name.replace(':', '-')}.log"


def _started(folder: Path, name: str) -> subprocess.Popen[bytes]:
    (folder / "tracking").mkdir(parents=True, exist_ok=True)
    # Classes of the user's own are found as they are here.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with _log_file(folder, name).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentgym_rl.tracking.process", str(folder), name],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env=env,
            start_new_session=True,  # Ctrl-C is for the run, and its group can be ended as a whole
        )
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started; nothing where they have ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
