"""Evaluations of one policy under several limits on rounds, in one table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from agentgym_rl.evaluation.report import EvalReport, Score
from agentgym_rl.evaluation.samples import SuccessEstimate
from agentgym_rl.runs.folder import write_atomically


def save_horizons(folder: Path, name: str, reports: Sequence[EvalReport]) -> None:
    """Write the table as `name`.md and all reports as `name`.json."""
    write_atomically(folder / f"{name}.md", horizons_markdown(reports))
    data = {"reports": [asdict(report) for report in reports]}
    write_atomically(folder / f"{name}.json", json.dumps(data, indent=2) + "\n")


def horizons_markdown(reports: Sequence[EvalReport]) -> str:
    """Return one table, with a column for each limit on rounds."""
    first = reports[0]
    columns = [_column(report) for report in reports]
    names = dict.fromkeys(name for column in columns for name in column)
    lines = [
        f"# {first.title}",
        "",
        f"Temperature {first.temperature:g}, {first.samples_per_task} sample"
        f"{'s' * (first.samples_per_task > 1)} per task; intervals are 95% "
        f"({'Wilson' if first.samples_per_task == 1 else 'bootstrap over tasks'}).",
        *([f"Success: {first.success}."] if first.success else []),
        "",
        f"| at most | {' | '.join(f'{report.max_rounds} rounds' for report in reports)} |",
        "|---|" + "---|" * len(reports),
        *(f"| {name} | {' | '.join(c.get(name, '') for c in columns)} |" for name in names),
        "",
    ]
    if first.several is not None:
        lines += ["The oracle is the environment's own reward: a bound on choosing.", ""]
    return "\n".join(lines)


def _column(report: EvalReport) -> dict[str, str]:
    """Return the cells of one horizon by the names of their rows."""
    score = report.overall
    cells = {"success": with_interval(score)}
    if report.several is not None:
        cells |= {name: with_interval(item) for name, item in report.several.rows()[1:]}
    for tries, item in (report.reflection or {}).items():
        cells[f"within {tries} tries" if tries != "1" else "first try"] = with_interval(item)
    return cells | {
        "reward": f"{score.reward_mean:.3f}" if score.episodes else "-",
        "rounds": f"{score.rounds_mean:.1f}" if score.episodes else "-",
        "invalid actions": f"{score.invalid_rate:.1%}" if score.episodes else "-",
        "tokens of a reply": f"{score.reply_tokens_mean:.0f}" if score.episodes else "-",
        "episodes": str(score.episodes),
        "failed": str(score.failed),
    }


def with_interval(rate: Score | SuccessEstimate) -> str:
    """Return "14.4% (7.5% - 22.5%)"; "-" where there is nothing that it could be a rate of."""
    if not (rate.episodes if isinstance(rate, Score) else rate.tasks):
        return "-"
    return f"{rate.success_rate:.1%} ({rate.success_low:.1%} - {rate.success_high:.1%})"
