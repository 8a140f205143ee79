"""The process of one tracker: follows a run folder as far as the run says, and survives failures.

    python -m agentgym_rl.tracking.process RUN_DIR NAME

reads lines from its standard input: "step 12" (the step ended), "saved 10" (a checkpoint holds the
step), "end" (the run is done, its model is saved). The end of the input without "end" means that
the run stopped or died, and may resume. What it has done, and what went wrong, is in
`tracking/NAME.json`, which the run reads.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from agentgym_rl.config.tracking import TRACKERS
from agentgym_rl.lookup import is_own, load_class
from agentgym_rl.runs.folder import RunFolder, write_atomically
from agentgym_rl.runs.regular_files import read_regular
from agentgym_rl.tracking.base import Tracker
from agentgym_rl.tracking.entries import EntryReader

logger = logging.getLogger(__name__)

_TRIES = 3
"""How often an entry is sent before it is left out."""
_LEAVE_S = 15.0
"""How long a tracker whose run has died may take to write out."""
_RETRY_S = 1.0


@dataclass
class State:
    """What a tracker has done, kept in the run folder."""

    id: Annotated[str, Field(pattern=r"^([0-9a-f]{12})?$")] = ""
    """Becomes part of file names."""
    step: int = -1
    """The last step sent."""
    failures: int = 0
    missing: int = 0
    """Entries left out because they failed too often."""
    error: str = ""
    """The last failure."""
    note: str = ""
    """What the tracker has to say."""
    is_finished: bool = False


_STATE = TypeAdapter(State)
_MAX_STATE_BYTES = 64_000


def state_file(folder: Path, name: str) -> Path:
    return folder / "tracking" / f"{name.replace(':', '-')}.json"


def read_state(folder: Path, name: str) -> State:
    """Return the state of a tracker; an empty one where there is none, or none of ours."""
    try:
        text = read_regular(state_file(folder, name), max_bytes=_MAX_STATE_BYTES)
        return _STATE.validate_json(text, strict=True)
    except (OSError, ValueError):
        return State()


class Orders:
    """What the run has said so far; read on a thread, so that a busy tracker hears the end."""

    def __init__(self) -> None:
        self.step = self.saved = -1
        self.is_end = self.is_closed = False
        self._changed = threading.Condition()
        # No tracker that asks its user something may read from here.
        self._lines = os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8")
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), sys.stdin.fileno())
        threading.Thread(target=self._read, daemon=True).start()

    def wait(self, seen: tuple[int, int], timeout: float | None) -> tuple[int, int]:
        """Return the latest steps, as soon as there are later ones or nothing more will come."""
        with self._changed:
            self._changed.wait_for(
                lambda: (self.step, self.saved) != seen or self.is_closed, timeout
            )
            return self.step, self.saved

    def _read(self) -> None:
        for line in self._lines:
            word, _, number = line.strip().partition(" ")
            with self._changed:
                if word == "step":
                    self.step = int(number)
                elif word == "saved":
                    self.step, self.saved = max(self.step, int(number)), int(number)
                self.is_end = self.is_end or word == "end"
                self._changed.notify()
        with self._changed:
            self.is_closed = True
            self._changed.notify()
        if not self.is_end:
            time.sleep(_LEAVE_S)  # and then no tracker keeps the process of a dead run alive
            os._exit(1)


class Follower:
    """Sends a run to one tracker."""

    def __init__(self, folder: Path, name: str, orders: Orders) -> None:
        self._folder, self._name, self._orders = folder, name, orders
        self._state = read_state(folder, name)
        self._state.id = self._state.id or uuid.uuid4().hex[:12]
        self._state.failures = self._state.missing = 0
        self._state.error, self._state.is_finished = "", False
        self._entries = EntryReader(folder)
        self._tracker: Tracker | None = None
        self._num_failed = 0

    def follow(self) -> None:
        """Send everything until the run ends."""
        seen, is_behind = (-2, -2), False
        while not self._orders.is_closed:
            seen = self._orders.wait(seen, _RETRY_S if is_behind else None)
            is_behind = not self._catch_up()
        for _ in range(_TRIES):
            if self._catch_up():
                break
            time.sleep(_RETRY_S)
        self._finish()

    def _catch_up(self) -> bool:
        """Send what is there; return whether all went well."""
        try:
            tracker = self._opened()
            until = self._orders.step if tracker.is_live else self._orders.saved
            while entry := self._entries.next_after(self._state.step, until=until):
                try:
                    tracker.log(entry)
                except Exception:  # reported below
                    self._num_failed += 1
                    if self._num_failed < _TRIES:
                        raise
                    self._state.missing += 1
                    logger.exception("step %d is left out", entry.step)
                self._num_failed = 0
                self._state.step = entry.step
        except Exception as error:  # noqa: BLE001 - trackers fail in every way there is
            self._failed(error)
            return False
        self._save()
        return True

    def _opened(self) -> Tracker:
        if self._tracker is None:
            cls = load_class(
                self._name if is_own(self._name) else TRACKERS[self._name],
                Tracker,
                setting="tracking",
            )
            tracker = cls()
            self._save()
            self._state.step = tracker.open(self._entries.tracked(id_=self._state.id))
            self._state.note = tracker.note
            self._entries.rewind()
            self._tracker = tracker
        return self._tracker

    def _finish(self) -> None:
        model = RunFolder(self._folder).model
        is_done = self._orders.is_end and model.is_dir()
        try:
            if self._tracker is not None:
                self._tracker.finish(model if is_done else None)
                self._state.is_finished = is_done
            self._save()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        logger.exception("tracking %s", self._name)
        self._state.failures += 1
        lines = str(error).strip().splitlines() or [""]
        self._state.error = f"{type(error).__name__}: {lines[0]}"
        self._save()

    def _save(self) -> None:
        with suppress(OSError):  # a full disk must not end the tracker
            text = json.dumps(asdict(self._state), indent=1)
            write_atomically(state_file(self._folder, self._name), text + "\n")


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Wait until the tracker of an earlier process, which its death may leave behind, is gone."""
    with (folder / "tracking" / f".{name.replace(':', '-')}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s")
    folder, name = Path(sys.argv[1]), sys.argv[2]
    orders = Orders()
    with _alone(folder, name):
        Follower(folder, name, orders).follow()


if __name__ == "__main__":
    main()
