"""One line for each run: what it is, how far it got, whether it is running."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path, PurePath

from agentgym_rl.evaluation.settings import name_of_path
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import RunCatalog
from agentgym_rl.ui.decoders import Decoders
from agentgym_rl.ui.parts import BROKEN, PartFile, list_parts, num_rows
from agentgym_rl.ui.series import Row

logger = logging.getLogger(__name__)

_COUNTING_S = 0.2
"""For reading the footers of parts, in one request; what is left is counted in the next."""
_SETTLED_NS = 5_000_000_000
_RECENT_S = 120.0
"""Where locks cannot be seen, a run whose metrics are younger counts as live."""


class Overview:
    """Summarises the runs of a catalog. Thread-safe."""

    def __init__(self, catalog: RunCatalog, decoders: Decoders) -> None:
        self._catalog, self._decoders = catalog, decoders
        self._counts: dict[tuple[str, PartFile], int] = {}
        self._totals: dict[str, tuple[int, int, str | None]] = {}

    def runs(self) -> dict[str, object]:
        """Return every run, the one that changed last first."""
        ids, problem = self._catalog.find()
        deadline = time.monotonic() + _COUNTING_S
        locked = _locked_inodes()
        lines = []
        for run in ids:
            try:
                lines.append(self._line(run, locked, deadline))
            except (ApiError, OSError) as error:  # removed or closed to us meanwhile
                lines.append(_unreadable(run, str(error)))
        lines.sort(key=lambda line: str(line["updated_at"] or ""), reverse=True)
        return {"runs": lines, "problem": problem}

    def _line(self, run: str, locked: set[int] | None, deadline: float) -> dict[str, object]:
        folder, config = self._catalog.folder(run), self._catalog.config(run)
        series = self._catalog.series(run)
        rows = series.rows()
        steps = max((int(row["step"] or 0) for row in rows), default=0)
        is_trained = folder.config_file.exists() or folder.metrics_file.exists()
        target = config.get("training", "steps") if is_trained else None
        target = target if isinstance(target, int) else None
        started, updated = _times(folder)
        count, broken = self._count(run, deadline)
        model = config.word("model", "path")
        problems = [config.problem, series.problem, broken]
        return {
            "run": run,
            "env": config.envs,
            "algorithm": config.word("algorithm", "type"),
            "model": _model_name(model) if model and config.is_evaluation else model,
            "format": config.word("agent", "format"),
            "status": _status(folder, self._catalog.root, locked, steps, target, updated),
            "steps": steps,
            "target_steps": target,
            "started_at": _stamp(started),
            "updated_at": _stamp(updated),
            "num_episodes": count,
            "latest": _latest(rows),
            "problem": "; ".join(text for text in problems if text) or None,
        }

    def _count(self, run: str, deadline: float) -> tuple[int | None, str | None]:
        """Return the number of stored episodes (None: not counted yet), and what is broken."""
        folder = self._catalog.episodes(run)
        # Adding and replacing parts changes the folder's own time; a very young one may do so
        # again within the clock's resolution.
        changed_ns = folder.stat().st_mtime_ns
        known = self._totals.get(str(folder))
        if known is not None and known[0] == changed_ns:
            return known[1], known[2]
        num_broken, total = 0, 0
        for part in list_parts(folder):
            key = (str(folder), part)
            count = self._counts.get(key)
            if count is None:
                if time.monotonic() > deadline:
                    return None, None
                count = self._counts[key] = self._num_rows(folder / part.name)
            num_broken += count < 0
            total += max(count, 0)
        problem = f"{num_broken} part(s) of episodes cannot be read" if num_broken else None
        if time.time_ns() - changed_ns > _SETTLED_NS:
            self._totals[str(folder)] = (changed_ns, total, problem)
        return total, problem

    def _num_rows(self, file: Path) -> int:
        """Return the rows of a part; -1 for one that cannot be read."""
        try:
            return self._decoders.call(num_rows, file)
        except BROKEN:
            return -1


def _model_name(model: str) -> str:
    """Return what reports call a model. Settings have paths in full, so nothing is looked up."""
    path = PurePath(model)
    return name_of_path(path) if path.is_absolute() else model


def _latest(rows: list[Row]) -> dict[str, float | None]:
    latest: dict[str, float | None] = {}
    for row in rows[-100:]:
        latest |= {name: value for name, value in row.items() if value is not None}
    latest.pop("step", None)
    return latest


def _status(
    folder: RunFolder,
    root: Path,
    locked: set[int] | None,
    steps: int,
    target: int | None,
    updated: float | None,
) -> str:
    is_finished = target is not None and steps >= target and folder.model.is_dir()
    if is_finished:
        return "finished"
    if locked is None:
        is_live = updated is not None and time.time() - updated < _RECENT_S
    else:
        # A warm start is covered by the lock of the run around it.
        around = [folder.path, *folder.path.parents]
        own = [path for path in around if path.is_relative_to(root)]
        is_live = any(_inode(path / ".lock") in locked for path in own)
    if is_live:
        return "live"
    if steps or list_parts(folder.episodes) or list_parts(folder.path):
        return "finished" if target is None else "stopped"
    return "empty"


def _locked_inodes() -> set[int] | None:
    """Return the inodes of locked files; None where the system does not say.

    Asking for a lock ourselves could make a run that starts at that moment fail.
    """
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    fields = [line.split() for line in lines]
    return {int(words[5].rpartition(":")[2]) for words in fields if len(words) > 5}


def _inode(file: Path) -> int | None:
    try:
        return file.stat().st_ino
    except OSError:
        return None


def _times(folder: RunFolder) -> tuple[float | None, float | None]:
    """Return when the run was made and when it last wrote, as far as its files show."""
    times = []
    own = (folder.config_file, folder.metrics_file, folder.episodes)
    for path in own if any(path.exists() for path in own) else (folder.path,):
        try:
            times.append(os.stat(path).st_mtime)
        except OSError:
            continue
    return (min(times), max(times)) if times else (None, None)


def _stamp(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _unreadable(run: str, problem: str) -> dict[str, object]:
    empty = dict.fromkeys(
        ("env", "algorithm", "model", "format", "target_steps", "started_at", "updated_at")
    )
    return empty | {
        "run": run,
        "status": "empty",
        "steps": 0,
        "num_episodes": None,
        "latest": {},
        "problem": problem,
    }
