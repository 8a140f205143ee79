"""The scoreboard of a study: every scenario and seed, before and after, as Markdown and JSON.

Everything is read from the folders that the study's jobs wrote, so that the page can be made at any
time; what is not there yet is left empty.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from study_files import Study, Variant
from study_jobs import (
    TINY,
    UNTRAINED,
    EvalJob,
    Job,
    plan_jobs,
    transfer_jobs,
    untrained_jobs,
)
from study_stretch import Record, Records

from agentgym_rl.evaluation.report import Score
from agentgym_rl.evaluation.stored import read_reports
from agentgym_rl.runs.folder import RunFolder, write_atomically

NAME = "scoreboard"
COMMANDS = "## Commands"
"""The title of the last part of a page."""


@dataclass(frozen=True, slots=True)
class Row:
    """One scenario with one seed."""

    scenario: str
    seed: int
    model: str
    before: Score | None
    """Of the untrained model, which is measured once for all seeds."""
    warm_start: Score | None
    """After the demonstrations; None where there are none, or not yet."""
    after: Score | None
    """After the last step; None until then."""
    latest: Score | None
    """At the newest evaluation of the run."""
    step: int
    """Of the last phase that has begun."""
    steps: int
    seconds: float
    """Of all processes of this scenario and seed: loading, training, evaluations."""
    tokens: int
    """Generated in training."""
    failed_training: int
    """Episodes that failed for reasons which are not the model's; no reward, not trained on."""
    failed_evaluations: int
    """The same of the evaluations of this run; no mean has them."""
    commits: list[str]

    @property
    def gain(self) -> float | None:
        """Return the points of success from the untrained to the trained model."""
        if self.before is None or self.after is None:
            return None
        return 100 * (self.after.success_rate - self.before.success_rate)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the study, as it was begun, or will be."""

    job: str
    is_done: bool
    seconds: float
    stretches: int
    commits: list[str]
    command: str
    """Empty where it depends on what is not there yet."""


@dataclass(frozen=True, slots=True)
class Scoreboard:
    """All that the page shows."""

    title: str
    command: str
    """What made all this, and resumes it."""
    rows: list[Row]
    transfer: dict[str, dict[str, list[Score]]]
    """Trained on -> played -> the scores of the seeds; "untrained" is trained on nothing."""
    commands: list[Command]

    @property
    def gains(self) -> dict[str, float]:
        """Return the mean gain over the finished seeds of each scenario that has any."""
        found: dict[str, list[float]] = {}
        for row in self.rows:
            if row.gain is not None:
                found.setdefault(row.scenario, []).append(row.gain)
        return {scenario: fmean(gains) for scenario, gains in found.items()}

    def save(self, out: Path) -> None:
        gains = self.gains
        means = {"gain_mean": fmean(gains.values()) if gains else None, "gains": gains}
        data = means | asdict(self)
        for row, written in zip(self.rows, data["rows"], strict=True):
            written["gain"] = row.gain
        write_atomically(out / f"{NAME}.md", to_markdown(self))
        write_atomically(out / f"{NAME}.json", json.dumps(data, indent=2) + "\n")


def read_scoreboard(
    study: Study, out: Path, seeds: Sequence[int], *, transfer: bool, command: str = ""
) -> Scoreboard:
    """Return what the folders in `out` hold so far."""
    records = Records(out).by_name
    untrained = {job.variant: job.report() for job in untrained_jobs(study, out, seeds[0])}
    before = {name: report.overall for name, report in untrained.items() if report is not None}
    rows = [
        _row(study, scenario, out, seed, before=before.get(scenario.name), records=records)
        for scenario in study.scenarios()
        for seed in seeds
    ]
    crossed = _transfer(study, out, seeds, rows, before) if transfer else {}
    jobs = plan_jobs(study, out, seeds, transfer=transfer)
    commands = [_command(job, records.get(job.name, Record())) for job in jobs]
    return Scoreboard(study.title, command, rows, crossed, commands)


def _row(
    study: Study,
    scenario: Variant,
    out: Path,
    seed: int,
    *,
    before: Score | None,
    records: Mapping[str, Record],
) -> Row:
    phases = study.phases(scenario)
    runs = [RunFolder(phase.folder(out, seed)) for phase in phases]
    metrics = [run.read_metrics() for run in runs]
    reports = read_reports(runs[-1])
    config = study.config_of(scenario, out, seed)
    model = study.config_of(phases[0], out, seed).model.path
    first = reports[0].overall if reports and reports[0].step == 0 else None
    is_warmed = len(phases) > 1 or config.warm_start.steps > 0
    if model == TINY and not is_warmed:
        before = first
    known = [records[run.path.name] for run in runs if run.path.name in records]
    begun = [place for place, run in enumerate(runs) if run.exists]
    at = begun[-1] if begun else 0
    return Row(
        scenario=scenario.name,
        seed=seed,
        model=model,
        before=before,
        warm_start=first if is_warmed else None,
        after=reports[-1].overall if reports and runs[-1].model.exists() else None,
        latest=reports[-1].overall if reports else None,
        step=int(metrics[at][-1]["step"]) if metrics[at] else 0,
        steps=study.config_of(phases[at], out, seed).training.steps,
        seconds=sum(record.seconds for record in known),
        tokens=round(_total(metrics, "rollout/tokens")),
        failed_training=round(_total(metrics, "rollout/episodes_failed")),
        failed_evaluations=sum(report.overall.failed for report in reports),
        commits=list(dict.fromkeys(name for record in known for name in record.commits)),
    )


def _total(metrics: Sequence[Sequence[Mapping[str, float]]], key: str) -> float:
    return sum(line.get(key, 0.0) for lines in metrics for line in lines)


def _transfer(
    study: Study,
    out: Path,
    seeds: Sequence[int],
    rows: Sequence[Row],
    before: Mapping[str, Score],
) -> dict[str, dict[str, list[Score]]]:
    """Return the scores of every model on every scenario."""
    names = [scenario.name for scenario in study.scenarios()]
    matrix = {UNTRAINED: {name: [before[name]] for name in names if name in before}}
    for name in names:
        own = [row.after for row in rows if row.scenario == name and row.after is not None]
        matrix[name] = {name: own}
    for seed in seeds:
        for job in transfer_jobs(study, out, seed):
            report = job.report()
            if report is not None and report.overall.episodes:
                matrix[job.trained_on].setdefault(job.played, []).append(report.overall)
    return matrix


def _command(job: Job, record: Record) -> Command:
    is_known = not (isinstance(job, EvalJob) and job.needs)
    words = record.command or (job.arguments() if is_known else [])
    return Command(
        job.name,
        job.is_done(),
        record.seconds,
        record.stretches,
        record.commits,
        shlex.join(["agentgym", *words]) if words else "",
    )


def to_markdown(board: Scoreboard) -> str:
    """Return the page."""
    models = ", ".join(dict.fromkeys(row.model for row in board.rows))
    num_done = sum(row.after is not None for row in board.rows)
    picture = ["![Success over steps, seconds and generated tokens](curves.png)", ""]
    lines = [
        f"# {board.title}",
        "",
        f"Model: {models}. {num_done} of {len(board.rows)} runs are finished. Success on held-out "
        "tasks with 95% intervals (Wilson). Episodes that failed for reasons which are not the "
        "model's are counted, and are in no mean.",
        "",
        *_means(board),
        *(picture if any(row.latest is not None for row in board.rows) else []),
        *_successes(board.rows),
        *_behaviour(board.rows),
        *(_matrix(board.transfer) if board.transfer else []),
        *_commands(board),
    ]
    return "\n".join(lines)


def _means(board: Scoreboard) -> list[str]:
    gains = board.gains
    lines = [
        "| scenario | seeds finished | before | after, mean | gain, mean |",
        "|---|---|---|---|---|",
    ]
    for scenario in dict.fromkeys(row.scenario for row in board.rows):
        rows = [row for row in board.rows if row.scenario == scenario]
        after = [row.after.success_rate for row in rows if row.after is not None]
        mean = f"**{fmean(after):.1%}**" if after else "-"
        gain = f"{gains[scenario]:+.1f}" if scenario in gains else "-"
        finished = f"{len(after)} of {len(rows)}"
        lines.append(f"| {scenario} | {finished} | {_rate(rows[0].before)} | {mean} | {gain} |")
    if gains:
        total = len({row.scenario for row in board.rows})
        over = f"{len(gains)} of {total} scenarios"
        lines += ["", f"Mean gain over {over}: **{fmean(gains.values()):+.1f}** points."]
    return [*lines, ""]


def _successes(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Every run",
        "",
        "| scenario | seed | before | after the warm start | after training | gain | step "
        "| seconds | generated tokens | failed in training | in evaluations | commit |",
        "|---" * 12 + "|",
    ]
    for row in rows:
        gain = f"{row.gain:+.1f}" if row.gain is not None else "-"
        after = _rate(row.after)
        if row.after is None and row.latest is not None and row.step:
            after = f"so far {_rate(row.latest)}"
        lines.append(
            f"| {row.scenario} | {row.seed} | {_rate(row.before)} | {_rate(row.warm_start)} "
            f"| {after} | {gain} | {row.step} of {row.steps} | {row.seconds:.0f} | {row.tokens:,} "
            f"| {row.failed_training} | {row.failed_evaluations} | {', '.join(row.commits)} |"
        )
    return [*lines, ""]


def _behaviour(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Behaviour",
        "",
        "Before → after training; tokens of a reply are a mean over all replies.",
        "",
        "| scenario | seed | invalid actions | rounds | tokens of a reply | replies cut |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.after is None:
            continue
        known = (row.before, row.after)
        cells = [
            " → ".join(text.format(score) if score is not None else "-" for score in known)
            for text in (
                "{0.invalid_rate:.1%}",
                "{0.rounds_mean:.1f}",
                "{0.reply_tokens_mean:.0f}",
                "{0.replies_cut_rate:.1%}",
            )
        ]
        lines.append(f"| {row.scenario} | {row.seed} | {' | '.join(cells)} |")
    return [*lines, ""]


def _matrix(transfer: Mapping[str, Mapping[str, Sequence[Score]]]) -> list[str]:
    names = [name for name in transfer if name != UNTRAINED]
    lines = [
        "## Transfer",
        "",
        "Every model on every scenario's test tasks, the mean over seeds (their number).",
        "",
        f"| trained on | {' | '.join(names)} |",
        "|---" * (len(names) + 1) + "|",
    ]
    for trained, played in transfer.items():
        cells = [played.get(name, ()) for name in names]
        shown = [
            f"{fmean(score.success_rate for score in scores):.1%} ({len(scores)})"
            if scores
            else "-"
            for scores in cells
        ]
        lines.append(f"| {trained} | {' | '.join(shown)} |")
    return [*lines, ""]


def _commands(board: Scoreboard) -> list[str]:
    lines = [COMMANDS, "", "```", f"# runs or resumes all of these\n{board.command}"]
    for command in board.commands:
        state = f"{command.seconds:.0f} s" if command.is_done else "not finished"
        told = f"# {command.job}: {state}"
        if command.stretches > 1:
            told += f", {command.stretches} stretches"
        if command.commits:
            told += f", commit {', '.join(command.commits)}"
        lines += [told, command.command or "# follows from the runs before it"]
    return [*lines, "```", ""]


def _rate(score: Score | None) -> str:
    """Return "83.0% [74.5, 89.1]", with the number of failed episodes if there are any; or "-"."""
    if score is None or not score.episodes:
        return "-"
    low, high = 100 * score.success_low, 100 * score.success_high
    failed = f", {score.failed} failed" if score.failed else ""
    return f"{score.success_rate:.1%} [{low:.1f}, {high:.1f}]{failed}"
