"""`agentgym bench learning`: the same task learned in several ways, over several seeds.

A study is a TOML file (`study_files.py`) that names recipes with overrides. Every variant is
run once a seed by `agentgym train`; then held-out success before and after, and curves over
training steps and over generated tokens, are put together from the run folders. What is finished
is not run again, and what was interrupted goes on.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from threading import Event

from bench_arguments import whole_from
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from study_files import Study, Variant, check_runs, read_study

from agentgym_rl.errors import RunError
from agentgym_rl.evaluation.report import EvalReport, read_reports
from agentgym_rl.runs.folder import RunFolder


@dataclass(frozen=True, slots=True)
class Curve:
    """Held-out success of one run at its evaluations."""

    steps: list[int]
    tokens: list[float]
    """Generated in training up to then."""
    reports: list[EvalReport]

    @property
    def success(self) -> list[float]:
        return [report.overall.success_rate for report in self.reports]


def run_study(study: Study, out: Path, seeds: Sequence[int], *, jobs: int) -> None:
    """Run what is not finished, `jobs` runs at a time.

    After a failure no other run begins; those under way go on to their end.
    """
    done: dict[tuple[str, int], Future[None]] = {}
    has_failed = Event()

    def run(variant: Variant, seed: int) -> None:
        if variant.start:
            done[variant.start, seed].result()
        if has_failed.is_set():
            return
        try:
            _train(study, variant, out, seed)
        except BaseException:
            has_failed.set()
            raise

    with ThreadPoolExecutor(jobs) as pool:
        # A variant that waits for another's run holds a place, so those that wait come last.
        for variant in study.in_order():
            for seed in seeds:
                done[variant.name, seed] = pool.submit(run, variant, seed)
        finished, _ = wait(done.values(), return_when=FIRST_EXCEPTION)
        pool.shutdown(wait=False, cancel_futures=True)
        for future in finished:
            future.result()


def _train(study: Study, variant: Variant, out: Path, seed: int) -> None:
    folder = RunFolder(variant.folder(out, seed))
    if folder.model.exists():
        return
    command = [sys.executable, "-c", "from agentgym_rl.cli.main import main; main()", "train"]
    command += ["--run-dir", str(folder.path)]
    if folder.latest_checkpoint():
        command.append("--resume")
    else:  # Before its first checkpoint a run has nothing to go on from that is worth it.
        command += [variant.recipe, *study.overrides_of(variant, out, seed)]
    log = out / f"{folder.path.name}.log"
    with log.open("a") as output:
        # One thread each: a tiny model gains little from a second, and runs share the machine.
        result = subprocess.run(
            command,
            stdout=output,
            stderr=output,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=False,
        )
    if result.returncode:
        raise RunError(
            f"variant {variant.name!r}, seed {seed} ended with {result.returncode}: "
            f"{_last_line(log)} (all of it: {log}); the same command goes on with what is left"
        )


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "nothing was said")


def read_curve(run: RunFolder) -> Curve:
    """Return the evaluations of a run in order."""
    reports, metrics = read_reports(run), run.read_metrics()
    tokens = [
        sum(line.get("rollout/tokens", 0.0) for line in metrics if line["step"] <= report.step)
        for report in reports
    ]
    return Curve([report.step for report in reports], tokens, reports)


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


def draw(path: Path, study: Study, curves: dict[str, list[Curve]]) -> None:
    """Write a PNG: every seed as a thin line, the mean as a thick one."""
    figure = Figure(figsize=(11, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    for place, (name, runs) in enumerate(curves.items()):
        _draw_runs(left, name, [(curve.steps, curve.success) for curve in runs], f"C{place}")
        if all(curve.tokens[-1] for curve in runs):
            points = [([t / 1e6 for t in curve.tokens], curve.success) for curve in runs]
            _draw_runs(right, name, points, f"C{place}")
    left.set(xlabel="training step", ylabel="held-out success", ylim=(0, 1.02))
    right.set(xlabel="generated tokens, millions")
    left.legend(loc="lower right")
    figure.suptitle(study.title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw_runs(
    axes: Axes, name: str, runs: Sequence[tuple[Sequence[float], Sequence[float]]], color: str
) -> None:
    for x, y in runs:
        axes.plot(x, y, color=color, alpha=0.3, linewidth=1)
    mean_x = [fmean(values) for values in zip(*(x for x, _ in runs), strict=True)]
    mean_y = [fmean(values) for values in zip(*(y for _, y in runs), strict=True)]
    axes.plot(mean_x, mean_y, color=color, linewidth=2, marker="o", markersize=4, label=name)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench learning", description="Compare runs.")
    parser.add_argument("study", help="a TOML file, or the name of one in benchmarks/studies")
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", type=whole_from(0), nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--jobs", type=whole_from(1), default=os.cpu_count() or 1, help="runs at a time"
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="overrides for every variant"
    )
    chosen = parser.parse_args(arguments)
    if len(set(chosen.seeds)) < len(chosen.seeds):
        parser.error(f"--seeds: each once, got {' '.join(map(str, chosen.seeds))}")
    study, out = read_study(chosen.study, chosen.set), chosen.out
    check_runs(study, out, chosen.seeds)
    out.mkdir(parents=True, exist_ok=True)
    run_study(study, out, chosen.seeds, jobs=chosen.jobs)
    curves = {
        variant.name: [read_curve(RunFolder(variant.folder(out, seed))) for seed in chosen.seeds]
        for variant in study.variants
    }
    table = to_markdown(study, curves, chosen.seeds)
    (out / "table.md").write_text(table, encoding="utf-8")
    draw(out / "curves.png", study, curves)
    Console(soft_wrap=True).print(table, f"{out / 'table.md'}, {out / 'curves.png'}", markup=False)


if __name__ == "__main__":
    main()
