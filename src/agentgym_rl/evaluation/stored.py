"""The evaluations that a run folder keeps: the JSON files of its `eval/`.

Anybody may have made the folder: only regular files of a limited size are read. `report.py` has
what a report is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentgym_rl.evaluation.report import EvalReport, Score, report_from
from agentgym_rl.runs.folder import RunFolder, step_of
from agentgym_rl.runs.regular_files import MEGABYTE, read_regular

_MAX_BYTES = MEGABYTE
_MAX_FILES = 1000


def read_reports(run: RunFolder) -> list[EvalReport]:
    """Return the evaluations of a run in the order of their steps, in each of its environments.

    Raises OSError or ValueError where one cannot be read.
    """
    files = sorted(run.eval.glob("step-*.json"), key=lambda file: step_of(file.stem))
    return [report_from(table) for file in files for table in report_tables(file)]


def readable_reports(run: RunFolder) -> tuple[list[EvalReport], list[str]]:
    """Return the evaluations of a run by step, and what is wrong with those left out."""
    if run.eval.is_symlink():
        return [], ["eval is a link, so it is not read"]
    found: list[EvalReport] = []
    files, problems = first_and_last(sorted(run.eval.glob("step-*.json")))
    for file in files:
        try:
            found += [_sound(report_from(table)) for table in report_tables(file)]
        except (OSError, ValueError, TypeError, AttributeError) as error:
            problems.append(f"{file.name} cannot be read: {_reason(error)}")
    return sorted(found, key=lambda report: report.step), problems


def first_and_last(files: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return as many files as are read, and what to say of the others: the first file is what a
    run began with, the last ones are how it stands."""
    if len(files) <= _MAX_FILES:
        return list(files), []
    newest = _MAX_FILES - 1
    told = f"of {len(files)} reports only the first and the last {newest} are shown"
    return [files[0], *files[-newest:]], [told]


def report_tables(file: Path) -> list[dict[str, Any]]:  # Any: what a file holds
    """Return the reports in a file, one per environment, as the file has them.

    Raises OSError or ValueError where it holds anything else.
    """
    try:
        content = json.loads(read_regular(file, max_bytes=_MAX_BYTES))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError("it is not a report")
    inner = content.get("reports")  # of several environments
    tables = inner if isinstance(inner, list) else [content]
    if not all(isinstance(table, dict) for table in tables):
        raise ValueError("it is not a report")
    return tables


def _sound(report: EvalReport) -> EvalReport:
    """Return a report that can be drawn. Raises ValueError for any other."""
    if not all(map(_is_sound, (report.overall, *report.categories.values()))):
        raise ValueError("its rates are not between 0 and 1")
    return report


def _is_sound(score: Score) -> bool:
    rates = (score.success_rate, score.success_low, score.success_high)
    return all(0 <= rate <= 1 for rate in rates) and math.isfinite(score.reward_mean)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return f"{error.error_count()} values are not as reports have them"
    return str(error).partition("\n")[0] or type(error).__name__
