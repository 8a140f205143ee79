"""One line for each run: what it is, how far it got, whether it is running."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path, PurePath

from agentgym_rl.evaluation.settings import name_of_path
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.record import Locks, RunState, is_running, read_record, run_state
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import Config, RunCatalog
from agentgym_rl.ui.decoders import Decoders
from agentgym_rl.ui.parts import BROKEN, PartFile, list_parts, num_rows
from agentgym_rl.ui.series import Row, steps_done

logger = logging.getLogger(__name__)

_COUNTING_S = 0.2
"""For reading the footers of parts, in one request; what is left is counted in the next."""
_SETTLED_NS = 5_000_000_000


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
        locks = Locks.now()
        lines = []
        for run in ids:
            try:
                lines.append(self._line(run, locks, deadline))
            except (ApiError, OSError) as error:  # removed or closed to us meanwhile
                lines.append(_unreadable(run, str(error)))
        lines.sort(key=lambda line: str(line["updated_at"] or ""), reverse=True)
        return {"runs": lines, "problem": problem}

    def _line(self, run: str, locks: Locks, deadline: float) -> dict[str, object]:
        folder, config = self._catalog.folder(run), self._catalog.config(run)
        series = self._catalog.series(run)
        rows = series.rows()
        steps, record = steps_done(rows), read_record(folder.path)
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
            "recipe": record.recipe if record else None,
            "status": run_status(
                folder, self._catalog.root, num_steps=steps, config=config, locks=locks
            ),
            "error": record.error if record else "",
            "steps": steps,
            "target_steps": config.target_steps,
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


def run_status(
    folder: RunFolder, root: Path, *, num_steps: int, config: Config, locks: Locks
) -> RunState:
    """Return how a run stands; one with no record and no lock of its own as its folders say."""
    target = config.target_steps
    state = run_state(folder, num_steps=num_steps, target=target, locks=locks)
    if state not in (RunState.STOPPED, RunState.UNKNOWN, RunState.STORED, RunState.EMPTY):
        return state
    if read_record(folder.path) is None and _is_covered(folder, root, locks):
        return RunState.RUNNING
    if state is RunState.EMPTY and list_parts(folder.path):
        return RunState.FINISHED if config.is_evaluation else RunState.STORED
    return state


def _is_covered(folder: RunFolder, root: Path, locks: Locks) -> bool:
    """Whether a run around this one is running, such as that of a warm start."""
    around = [RunFolder(path) for path in folder.path.parents if path.is_relative_to(root)]
    return any(is_running(one, read_record(one.path), locks) for one in around)


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
        (
            "env",
            "algorithm",
            "model",
            "format",
            "recipe",
            "target_steps",
            "started_at",
            "updated_at",
        )
    )
    return empty | {
        "run": run,
        "status": RunState.UNKNOWN,
        "error": "",
        "steps": 0,
        "num_episodes": None,
        "latest": {},
        "problem": problem,
    }
