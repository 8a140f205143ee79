"""The runs below a folder, one line each: how a run stands, how far it got, what it learned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.report import by_env, with_numbers
from agentgym_rl.evaluation.stored import readable_reports
from agentgym_rl.runs.folder import RunFolder, no_run_in
from agentgym_rl.runs.record import FILE as RECORD
from agentgym_rl.runs.record import Locks, RunState, read_record
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.catalog import Config, RunCatalog
from agentgym_rl.ui.overview import run_status
from agentgym_rl.ui.series import MetricSeries, Row, steps_done

_SUCCESS = "rollout/success_rate"


@dataclass(frozen=True, slots=True)
class RunLine:
    """What is known of one run at a glance; texts are as the folder has them."""

    run: str
    """Its path below the folder that was searched."""
    path: str
    state: RunState
    error: str
    """What ended it, where an error did."""
    recipe: str
    """The name or file of its recipe; empty where it is not recorded."""
    env: str
    algorithm: str
    step: int
    target: int | None
    measured: str
    """On what success was measured: "held-out tasks", "training tasks", or nothing."""
    success_before: float | None
    success_now: float | None
    updated_at: str
    age_s: float
    """Seconds since it wrote something."""
    problem: str
    """What of the folder cannot be read."""


def list_runs(root: Path) -> list[RunLine]:
    """Return the runs below a folder, the one that changed last first; parts of a run, such as its
    warm start, are not listed. Raises ConfigError where there is no such folder."""
    if not root.is_dir():
        raise ConfigError(f"there is no folder {str(root)!r}; runs are made by `agentgym train`")
    catalog, locks = RunCatalog(root), Locks.now()
    ids = set(catalog.find()[0])
    lines: list[RunLine] = []
    for run in ids:
        around = [above.as_posix() for above in Path(run).parents]
        if run != "." and any(above in ids for above in around):
            continue
        try:
            folder = catalog.folder(run)
            if folder.config_file.exists():
                lines.append(run_line(catalog, run, locks))
        except (ApiError, OSError) as error:  # removed meanwhile, closed to us, or a link
            lines.append(_unreadable(run, str(root / run), str(error)))
    return sorted(lines, key=lambda found: found.age_s)


def run_line(catalog: RunCatalog, run: str, locks: Locks) -> RunLine:
    """Return the line of one run of a catalog; `locks` say which runs are running."""
    folder, config, series = catalog.folder(run), catalog.config(run), catalog.series(run)
    rows, target = series.rows(), config.target_steps
    step = steps_done(rows)
    record = read_record(folder.path)
    before, now, measured, problems = _success(folder, rows)
    updated = _updated(folder)
    return RunLine(
        run=run if run != "." else folder.path.name,
        path=str(folder.path),
        state=run_status(folder, catalog.root, num_steps=step, config=config, locks=locks),
        error=record.error if record else "",
        recipe=record.recipe if record else "",
        env=config.envs or "",
        algorithm=config.word("algorithm", "type") or "",
        step=step,
        target=target,
        measured=measured,
        success_before=before,
        success_now=now,
        updated_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(updated)),
        age_s=round(max(0.0, time.time() - updated), 1),
        problem="; ".join([*filter(None, (config.problem, series.problem)), *problems]),
    )


def _unreadable(run: str, path: str, problem: str) -> RunLine:
    return RunLine(
        run=run,
        path=path,
        state=RunState.UNKNOWN,
        error="",
        recipe="",
        env="",
        algorithm="",
        step=0,
        target=None,
        measured="",
        success_before=None,
        success_now=None,
        updated_at="",
        age_s=0.0,
        problem=problem,
    )


def open_run(path: Path) -> tuple[RunCatalog, MetricSeries, Config]:
    """Return the reader of one run folder. Raises ConfigError where there is no run."""
    if not (path / "config.toml").is_file():
        raise ConfigError(no_run_in(path))
    catalog = RunCatalog(path)
    return catalog, catalog.series("."), catalog.config(".")


def _success(
    folder: RunFolder, rows: Sequence[Row]
) -> tuple[float | None, float | None, str, list[str]]:
    """Return success before and now, on what, and what could not be read.

    On several environments it is the mean over them.
    """
    found, problems = readable_reports(folder)
    of_envs = [of_env for of_env in by_env(with_numbers(found)).values() if len(of_env) > 1]
    if of_envs:
        ends = [(each[0].overall.success_rate, each[-1].overall.success_rate) for each in of_envs]
        before, now = (sum(rates) / len(rates) for rates in zip(*ends, strict=True))
        return before, now, "held-out tasks", problems
    known = [row[_SUCCESS] for row in rows if row.get(_SUCCESS) is not None]
    if not known:
        return None, None, "", problems
    return known[0], known[-1], "training tasks", problems


def _updated(folder: RunFolder) -> float:
    """Return when the run last wrote something."""
    own = (folder.config_file, folder.metrics_file, folder.episodes, folder.path / RECORD)
    times = []
    for path in own:
        try:
            times.append(path.lstat().st_mtime)
        except OSError:
            continue
    return max(times, default=0.0)
