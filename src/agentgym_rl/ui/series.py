"""The metrics of a run, read while they are being written: only what was added is read again."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

from agentgym_rl.runs.regular_files import MEGABYTE, open_regular

Row = dict[str, float | None]

_MAX_FILE_BYTES = 32 * MEGABYTE
_MAX_LINE_BYTES = MEGABYTE
_MAX_METRICS = 5000
"""Of one line."""
_MAX_VALUES = 2_000_000
"""Of all lines together, at most some 150 MB: 80 metrics of 25,000 steps."""


def steps_done(rows: Sequence[Row]) -> int:
    """Return the number of the last step."""
    return max((int(row["step"] or 0) for row in rows), default=0)


class MetricSeries:
    """The lines of one `metrics.jsonl`. Lines that are no step of a run are counted and left out.

    A file that shrank or was replaced (a resumed run writes it anew) is read from the beginning.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._identity: tuple[int, int] | None = None
        self._read_bytes = 0
        self._rows: list[Row] = []
        self._num_values = self._num_broken = 0
        self._failure = ""

    @property
    def problem(self) -> str | None:
        """What is wrong with the file, in words."""
        if self._failure:
            return self._failure
        if self._num_values > _MAX_VALUES:
            return f"{self._file.name} is too large to show: more than {_MAX_VALUES} values"
        if self._num_broken:
            return f"{self._num_broken} line(s) of {self._file.name} are not the metrics of a step"
        return None

    def rows(self) -> list[Row]:
        """Return every step so far, in the order of the file; one dictionary each."""
        with self._lock:
            try:
                self._refresh()
                self._failure = ""
            except FileNotFoundError:
                self._forget()
                self._failure = ""
            except (OSError, ValueError) as error:
                self._failure = f"{self._file.name} cannot be read: {error}"
            return list(self._rows)

    def _forget(self) -> None:
        self._identity, self._read_bytes = None, 0
        self._num_values = self._num_broken = 0
        self._rows = list[Row]()

    def _refresh(self) -> None:
        with open_regular(self._file, max_bytes=_MAX_FILE_BYTES) as file:
            stat = os.fstat(file.fileno())
            identity = (stat.st_dev, stat.st_ino)
            if identity != self._identity or stat.st_size < self._read_bytes:
                self._forget()
                self._identity = identity
            if stat.st_size == self._read_bytes:
                return
            file.seek(self._read_bytes)
            fresh = file.read(_MAX_FILE_BYTES)
        # Half a line at the end is being written.
        whole, newline, rest = fresh.rpartition(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            raise ValueError(f"a line of {len(rest)} bytes")
        if not newline:
            return
        self._read_bytes += len(whole) + 1
        for line in whole.split(b"\n"):
            if self._num_values <= _MAX_VALUES:
                self._add(line)

    def _add(self, line: bytes) -> None:
        if not line.strip():
            return
        row = _parsed(line) if len(line) <= _MAX_LINE_BYTES else None
        if row is None:
            self._num_broken += 1
            return
        self._num_values += len(row)
        if self._num_values <= _MAX_VALUES:
            self._rows.append(row)


def names_of(rows: Collection[Row]) -> list[str]:
    """Return every metric that occurs, sorted; the step is none."""
    return sorted({name for row in rows for name in row} - {"step"})


def columns_of(rows: Collection[Row], names: Collection[str]) -> dict[str, object]:
    """Return the steps and, aligned to them, the values of the named metrics."""
    values = {name: [row.get(name) for row in rows] for name in names}
    return {"steps": [int(row["step"] or 0) for row in rows], "values": values}


def _parsed(line: bytes) -> Row | None:
    """Return the numbers of a line; None where it is not of a step."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or len(found) > _MAX_METRICS:
        return None
    step = _number(found.get("step"))
    if step is None or step != int(step):
        return None
    # The same names in every line: kept once.
    return {sys.intern(name): _number(value) for name, value in found.items()}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
