"""`agentgym bench learning`: the same task learned in several ways, over several seeds.

A study is a TOML file (`study_files.py`) that names recipes with overrides. Every variant is
run once per seed by `agentgym train` (`study_stretch.py`); then held-out success before and after,
and curves over training steps, generated tokens and seconds, are put together from the run folders.
Studies with a scoreboard (`scoreboard.py`) get its page. What is finished is not run again, and
what was interrupted resumes.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench_arguments import positive, whole_from
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from scoreboard import COMMANDS, NAME, read_scoreboard
from study_files import Study, check_runs, read_study
from study_jobs import plan_jobs
from study_stretch import Stretch

from agentgym_rl.errors import RunError
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.evaluation.stored import read_reports
from agentgym_rl.runs.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Curve:
    """Held-out success of one run at its evaluations."""

    steps: list[int]
    tokens: list[float]
    """Generated in training up to then."""
    seconds: list[float]
    """Of training steps and their evaluations up to then."""
    reports: list[EvalReport]

    @property
    def success(self) -> list[float]:
        return [report.overall.success_rate for report in self.reports]


def read_curve(run: RunFolder) -> Curve:
    """Return the evaluations of a run in order."""
    reports, metrics = read_reports(run), run.read_metrics()
    steps = [report.step for report in reports]

    def until(step: int, key: str) -> float:
        return sum(line.get(key, 0.0) for line in metrics if line["step"] <= step)

    tokens = [until(step, "rollout/tokens") for step in steps]
    return Curve(steps, tokens, [until(step, "time/step_s") for step in steps], reports)


def to_markdown(study: Study, curves: dict[str, list[Curve]], seeds: Sequence[int]) -> str:
    """Return a table with a row a variant: success of each seed, and the means."""
    lines = [
        f"| | before | {' | '.join(f'seed {seed}' for seed in seeds)} | after, mean | gain |",
        "|---|---|" + "---|" * len(seeds) + "---|---|",
    ]
    for variant in study.variants:
        runs = curves[variant.name]
        before = fmean(curve.success[0] for curve in runs)
        after = fmean(curve.success[-1] for curve in runs)
        cells = [
            f"{last.success_rate:.0%} [{100 * last.success_low:.0f}, {100 * last.success_high:.0f}]"
            for last in (curve.reports[-1].overall for curve in runs)
        ]
        lines.append(
            f"| {variant.name} | {before:.0%} | {' | '.join(cells)} | **{after:.0%}** "
            f"| {100 * (after - before):+.0f} |"
        )
    return "\n".join(lines) + "\n"


def draw(path: Path, title: str, curves: dict[str, list[Curve]]) -> None:
    """Write a PNG: every seed as a thin line, the mean as a thick one."""
    figure = Figure(figsize=(15, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    for place, (name, runs) in enumerate(curves.items()):
        color = f"C{place}"
        _draw_runs(left, name, [(curve.steps, curve.success) for curve in runs], color)
        points = [(curve.seconds, curve.success) for curve in runs]
        _draw_runs(middle, name, points, color)
        if all(curve.tokens[-1] for curve in runs):
            points = [([t / 1e6 for t in curve.tokens], curve.success) for curve in runs]
            _draw_runs(right, name, points, color)
    left.set(xlabel="training step", ylabel="held-out success", ylim=(0, 1.02))
    middle.set(xlabel="seconds of steps and their evaluations")
    right.set(xlabel="generated tokens, millions")
    left.legend(loc="lower right")
    figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_runs(
    axes: Axes, name: str, runs: Sequence[tuple[Sequence[float], Sequence[float]]], color: str
) -> None:
    for x, y in runs:
        axes.plot(x, y, color=color, alpha=0.3, linewidth=1)
    # Up to where the shortest is: seeds of a study that is not finished are at different steps.
    mean_x = [fmean(values) for values in zip(*(x for x, _ in runs), strict=False)]
    mean_y = [fmean(values) for values in zip(*(y for _, y in runs), strict=False)]
    axes.plot(mean_x, mean_y, color=color, linewidth=2, marker="o", markersize=4, label=name)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench learning", description="Compare runs.")
    parser.add_argument("study", help="a TOML file, or the name of one in benchmarks/studies")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", type=whole_from(0), nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--jobs",
        type=whole_from(1),
        help="commands at a time; default: what the study says, else one per processor",
    )
    parser.add_argument(
        "--minutes",
        type=positive,
        help="stop after this long: runs save their last step, and the same command resumes them",
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these variants")
    parser.add_argument(
        "--transfer",
        action="store_true",
        help="evaluate the run of each scenario on the others (studies with a scoreboard)",
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides for every variant"
    )
    chosen = parser.parse_args(arguments)
    if len(set(chosen.seeds)) < len(chosen.seeds):
        parser.error(f"--seeds: each once, got {' '.join(map(str, chosen.seeds))}")
    study = read_study(chosen.study, chosen.set)
    study = study.only(chosen.only) if chosen.only else study
    if chosen.transfer and not study.scoreboard:
        parser.error(f"--transfer: {chosen.study} has no scoreboard (scoreboard = true)")
    check_runs(study, chosen.out, chosen.seeds)
    _run(study, chosen)


def _run(study: Study, chosen: argparse.Namespace) -> None:
    """Run a stretch of the study and write what came of it."""
    out, seeds, console = chosen.out, chosen.seeds, Console(soft_wrap=True)
    with RunFolder(out).locked():
        stretch = Stretch(
            plan_jobs(study, out, seeds, transfer=chosen.transfer),
            out,
            at_once=chosen.jobs or study.jobs or os.cpu_count() or 1,
            minutes=chosen.minutes,
            say=lambda text: console.print(text, markup=False, highlight=False),
            on_done=lambda: _write(study, chosen),
        )
        stretch.run()
        written = _write(study, chosen)
    if written:
        table = written[0].read_text("utf-8").partition(COMMANDS)[0]
        console.print(table, ", ".join(map(str, written)), markup=False)
    if stretch.failures:
        raise RunError("\n".join(stretch.failures.values()))
    if left := stretch.left():
        console.print(f"{len(left)} commands are left; the same command resumes with them")


def _write(study: Study, chosen: argparse.Namespace) -> list[Path]:
    """Write tables and curves of what is there; return their files.

    After every command, because the machine may be gone before the last.
    """
    out, seeds = chosen.out, chosen.seeds
    scenarios = study.scenarios() if study.scoreboard else study.variants
    runs = {v.name: [RunFolder(v.folder(out, seed)) for seed in seeds] for v in scenarios}
    curves = {name: [read_curve(run) for run in found] for name, found in runs.items()}
    curves = {name: [c for c in found if c.reports] for name, found in curves.items()}
    curves = {name: found for name, found in curves.items() if found}
    written = []
    if study.scoreboard:
        command = shlex.join(_words(chosen))
        read_scoreboard(study, out, seeds, transfer=chosen.transfer, command=command).save(out)
        written = [out / f"{NAME}.md", out / f"{NAME}.json"]
    elif all(run.model.exists() for found in runs.values() for run in found):
        written = [out / "table.md"]
        written[0].write_text(to_markdown(study, curves, seeds), encoding="utf-8")
    if written and curves:
        draw(out / "curves.png", study.title, curves)
        written.append(out / "curves.png")
    return written


def _words(chosen: argparse.Namespace) -> list[str]:
    """Return the command that resumes the study, without what only this stretch was given."""
    words = ["agentgym", "bench", "learning", chosen.study, "--out", str(chosen.out), "--seeds"]
    words += [*map(str, chosen.seeds), *(["--transfer"] if chosen.transfer else [])]
    words += ["--only", *chosen.only] if chosen.only else []
    return words + (["--set", *chosen.set] if chosen.set else [])


if __name__ == "__main__":
    main()
