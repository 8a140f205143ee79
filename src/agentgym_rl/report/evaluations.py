"""The evaluations of a run folder, as far as they can be read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from agentgym_rl.evaluation.report import EvalReport, Score, report_from
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.regular_files import MEGABYTE, read_regular

_MAX_BYTES = MEGABYTE
_MAX_FILES = 1000


def evaluations(run: RunFolder) -> tuple[list[EvalReport], list[str]]:
    """Return the evaluations of a run by step, and what is wrong with those left out."""
    found: list[EvalReport] = []
    problems: list[str] = []
    if run.eval.is_symlink():
        return found, ["eval is a link, so it is not read"]
    files = sorted(run.eval.glob("step-*.json"))[:_MAX_FILES]
    for file in files:
        try:
            found += _reports(file)
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            problems.append(f"{file.name} cannot be read: {_reason(error)}")
    return sorted(found, key=lambda report: report.step), problems


def _reports(file: Path) -> Iterator[EvalReport]:
    content = json.loads(read_regular(file, max_bytes=_MAX_BYTES))
    if not isinstance(content, dict):
        raise ValueError("it is not a report")
    inner = content.get("reports")  # of several environments
    for item in inner if isinstance(inner, list) else [content]:
        if not isinstance(item, dict):
            raise ValueError("it is not a report")
        report = report_from(item)
        if not all(map(_is_sound, (report.overall, *report.categories.values()))):
            raise ValueError("its rates are not between 0 and 1")
        yield report


def _is_sound(score: Score) -> bool:
    rates = (score.success_rate, score.success_low, score.success_high)
    return all(0 <= rate <= 1 for rate in rates) and math.isfinite(score.reward_mean)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return f"{error.error_count()} values are not as reports have them"
    return str(error).partition("\n")[0] or type(error).__name__
