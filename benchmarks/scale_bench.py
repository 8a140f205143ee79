"""`agentgym bench scale`: predicts how long steps take with other numbers of engines and GPUs.

It reads from runs how long replies, environments, updates and publications took (scale_parts.py)
and plays that with other splits and ways of collecting (scale_model.py).

    agentgym bench scale --from runs/small --gpus 16
    agentgym bench scale --from runs/small --splits 8 6+2 12+4 --ways synchronous 1
    agentgym bench scale --from runs/a --against runs/b    # predict a run that was measured

A split "12+4" has 12 GPUs for engines and 4 for the learner; "8" has 8 that both use by turns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from bench_arguments import number_from, whole_from
from rich.console import Console
from rich.table import Table
from scale_model import WAYS, EpisodePlan, Job, Outcome, Simulation, Speeds
from scale_parts import CONTROLLER_S, MeasuredRun, Parts, measure, read_run

from agentgym_rl.errors import ConfigError

_AS_GOOD = 1.02
"""A less stale way that is at most this much slower than the fastest is the better one."""
_HALVED: dict[str, Callable[[Speeds], Speeds]] = {
    "engines": lambda s: replace(s, token_s=s.token_s / 2, token_s_each=s.token_s_each / 2),
    "environments": lambda s: replace(s, env_slowness=s.env_slowness / 2),
    "learner": lambda s: replace(s, update_s=s.update_s / 2, learner_token_s=s.learner_token_s / 2),
    "publication": lambda s: replace(s, publish_s=s.publish_s / 2),
    "controller": lambda s: replace(s, controller_s=s.controller_s / 2),
}
"""The parts, each made twice as fast."""


@dataclass(frozen=True, slots=True)
class Split:
    """GPUs of the engines, and of the learner; `is_shared`: the same ones."""

    for_engines: int
    for_learner: int
    is_shared: bool = False

    def __str__(self) -> str:
        own = f"{self.for_engines}+{self.for_learner}"
        return str(self.for_engines) if self.is_shared else own


@dataclass(frozen=True, slots=True)
class Row:
    """What is predicted of a split and a way."""

    split: Split
    way: str
    outcome: Outcome
    if_halved_s: dict[str, float]
    """Seconds of a step with each part twice as fast."""

    @property
    def bottleneck(self) -> str:
        """The part that would help most."""
        return min(self.if_halved_s, key=lambda part: self.if_halved_s[part])

    @property
    def gain(self) -> float:
        """How many times as fast steps would be with the bottleneck twice as fast."""
        return self.outcome.step_s / max(1e-9, self.if_halved_s[self.bottleneck])


def split_of(text: str) -> Split:
    """Return the split that is written "12+4" or "8"."""
    numbers = [whole_from(1)(word) for word in text.split("+")]
    if len(numbers) > 2:
        raise argparse.ArgumentTypeError(f"12+4, or 8 for GPUs used by turns, got {text!r}")
    return Split(numbers[0], numbers[-1], is_shared=len(numbers) == 1)


def splits_of(num_gpus: int, per_engine: int) -> list[Split]:
    """Return splits of a number of GPUs: shared, and eighths of them for the learner."""
    found = [Split(num_gpus, num_gpus, is_shared=True)]
    for eighths in (7, 6, 5, 4, 3, 2, 1):
        engines = num_gpus * eighths // 8 // per_engine * per_engine
        split = Split(engines, num_gpus - engines)
        if engines and split.for_learner and split not in found:
            found.append(split)
    return found


def predict(parts: Parts, split: Split, job: Job, *, group_size: int, per_engine: int) -> Row:
    """Return what a job takes with the GPUs of a split."""

    def groups(number: int) -> list[EpisodePlan]:
        return parts.draw(number, size=group_size)

    job = replace(job, engines=split.for_engines // per_engine, learners=split.for_learner)
    speeds = parts.speeds
    halved = {
        part: Simulation(job, half(speeds), groups).run().step_s for part, half in _HALVED.items()
    }
    return Row(split, job.way, Simulation(job, speeds, groups).run(), halved)


def best_of(rows: Sequence[Row]) -> Row:
    """Return the fastest, or one that is nearly as fast and less stale."""
    fastest = min(row.outcome.step_s for row in rows)
    nearly = [row for row in rows if row.outcome.step_s <= fastest * _AS_GOOD]
    return min(nearly, key=lambda row: (row.outcome.staleness_max, row.outcome.step_s))


def way_name(way: str) -> str:
    return f"overlapped, {way}" if way.isdigit() else way


def table(rows: Sequence[Row], most_in_flight: float) -> Table:
    shown = _table("split", "way", "s/step", "engines", "learner", "loop", "envs", "stale")
    shown.add_column("bottleneck")
    for row in rows:
        found = row.outcome
        is_beyond = found.most_in_flight > 1.25 * most_in_flight
        shown.add_row(
            str(row.split),
            way_name(row.way),
            _seconds(found.step_s) + "*" * is_beyond,
            f"{found.engines:.0%}",
            f"{found.learner:.0%}",
            f"{found.controller:.0%}",
            f"{found.env_calls:.0f}",
            f"{found.staleness_mean:.1f}, {found.staleness_max}",
            f"{row.bottleneck} {row.gain:.1f}x",
        )
    return shown


def describe(parts: Parts, runs: Sequence[MeasuredRun]) -> str:
    """Return what was measured, in lines."""
    speeds, first = parts.speeds, runs[0]
    return (
        f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}: {parts.num_episodes:,} episodes of "
        f"{parts.rounds_mean:.1f} rounds\n"
        f"engine ({first.engines} measured): {1000 * speeds.token_s:.3g} ms per token, and "
        f"{1000 * speeds.token_s_each:.3g} per reply under way (up to {parts.most_in_flight:.0f})\n"
        f"environment: {parts.env_s:.3g} s per step; controller: {1000 * speeds.controller_s:.2g} "
        f"ms per round\n"
        f"learner ({first.learners} measured): {speeds.update_s:.3g} s per update, and "
        f"{1000 * speeds.learner_token_s:.3g} ms per token and GPU\n"
        f"publication: {speeds.publish_s:.3g} s; the rest of a step: {speeds.rest_s:.3g} s"
    )


def compare(parts: Parts, run: MeasuredRun, console: Console) -> dict[str, float | str]:
    """Print what is predicted of a run beside what it took; return it."""
    config = run.config
    job = Job(
        run.way,
        int(run.lines[-1]["step"]),
        config.training.tasks_per_step,
        engines=run.engines,
        learners=run.learners,
        updates=config.training.updates_per_step * config.training.epochs_per_step,
        max_concurrency=config.rollout.max_concurrency,
    )

    def groups(number: int) -> list[EpisodePlan]:
        return parts.draw(number, size=run.group_size)

    found = Simulation(job, parts.speeds, groups).run()
    own = [line["time/step_s"] - line["time/eval_s"] for line in run.lines]
    measured, predicted = fmean(own), fmean(found.steps_s[-len(own) :])
    stale = fmean(line.get("rollout/staleness_mean", 0.0) for line in run.lines)
    console.print(
        f"{run.path}: {way_name(run.way)}, {len(own)} steps: {_seconds(measured)} s per step, "
        f"predicted {_seconds(predicted)} ({predicted / measured - 1:+.1%}); staleness "
        f"{stale:.2f}, predicted {found.staleness_mean:.2f}",
        soft_wrap=True,
    )
    return {
        "run": str(run.path),
        "way": run.way,
        "measured_s": measured,
        "predicted_s": predicted,
        "measured_staleness": stale,
        "predicted_staleness": found.staleness_mean,
    }


def as_json(parts: Parts, rows: Sequence[Row], compared: Sequence[object]) -> dict[str, object]:
    """Return all numbers."""
    lines = [
        {"split": str(row.split), "way": row.way, "bottleneck": row.bottleneck}
        | {name: value for name, value in asdict(row.outcome).items() if name != "steps_s"}
        | {"if_halved_s": row.if_halved_s}
        for row in rows
    ]
    found: dict[str, object] = {"speeds": asdict(parts.speeds), "rows": lines}
    if rows:
        best = best_of(rows)
        found["best"] = {"split": str(best.split), "way": best.way}
    return found | ({"against": list(compared)} if compared else {})


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = _parser().parse_args(arguments)
    console = Console(highlight=False)
    runs = [read_run(path) for path in chosen.runs]
    parts = measure(runs, controller_s=chosen.controller_ms / 1000)
    parts = replace(parts, speeds=replace(parts.speeds, takes_turns=not chosen.together))
    console.print(describe(parts, runs), soft_wrap=True)
    compared = [compare(parts, read_run(path), console) for path in chosen.against]
    rows = [] if compared and not (chosen.gpus or chosen.splits) else sweep(parts, runs[0], chosen)
    if rows:
        console.print(table(rows, parts.most_in_flight), soft_wrap=True)
        if any(row.outcome.most_in_flight > 1.25 * parts.most_in_flight for row in rows):
            console.print("* more replies on an engine than were measured: an extrapolation")
        best = best_of(rows)
        console.print(
            f"best: {best.split}, {way_name(best.way)}: {_seconds(best.outcome.step_s)} s per step"
        )
        halved = [f"{part} {_seconds(s)}" for part, s in best.if_halved_s.items()]
        console.print(f"with one part twice as fast: {', '.join(halved[:3])},")
        console.print(f"    {', '.join(halved[3:])}")
    if chosen.json:
        text = json.dumps(as_json(parts, rows, compared), indent=1)
        chosen.json.write_text(text + "\n", encoding="utf-8")


def sweep(parts: Parts, run: MeasuredRun, chosen: argparse.Namespace) -> list[Row]:
    """Return what is predicted of each split and way that was asked for."""
    config = run.config
    splits = chosen.splits or (
        splits_of(chosen.gpus, chosen.per_engine)
        if chosen.gpus
        else [Split(run.engines * chosen.per_engine, run.learners)]
    )
    too_small = [str(split) for split in splits if split.for_engines < chosen.per_engine]
    if too_small:
        raise ConfigError(
            f"an engine has --per-engine {chosen.per_engine} GPUs, and {too_small[0]} has fewer"
        )
    job = Job(
        "synchronous",
        chosen.steps,
        chosen.groups or config.training.tasks_per_step,
        updates=config.training.updates_per_step * config.training.epochs_per_step,
        max_concurrency=chosen.at_once or config.rollout.max_concurrency,
    )
    return [
        predict(
            parts,
            split,
            replace(job, way=way),
            group_size=chosen.group_size or run.group_size,
            per_engine=chosen.per_engine,
        )
        for split in splits
        for way in chosen.ways
        if not (split.is_shared and way.isdigit())  # who updates cannot sample
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentgym bench scale",
        description="Predict seconds per step with other numbers of engines and GPUs.",
        epilog="example: agentgym bench scale --from runs/small --gpus 16",
    )
    add, whole = parser.add_argument, whole_from(1)
    add("--from", dest="runs", nargs="+", type=Path, required=True, metavar="RUN",
        help="runs to measure the parts in; synchronous ones tell most")  # fmt: skip
    add("--gpus", type=whole, help="try splits of this many")
    add("--splits", nargs="+", type=split_of, help="12+4: engines and learner; 8: by turns")
    add("--per-engine", type=whole, default=1, help="GPUs of an engine, as measured")
    add("--ways", nargs="+", default=WAYS, choices=WAYS, help="1 and 2 overlap, so stale")
    add("--groups", type=whole, help="of a step; as in the first run unless given")
    add("--group-size", type=whole, help="likewise")
    add("--at-once", type=whole, help="likewise: rollout.max_concurrency")
    add("--steps", type=whole, default=30)
    add("--together", action="store_true", help="engines take weights all at once (NCCL)")
    add("--controller-ms", type=number_from(0), default=1000 * CONTROLLER_S,
        help="of the run's own process per round (bench rollout --parts between)")  # fmt: skip
    add("--against", nargs="+", type=Path, default=[], metavar="RUN",
        help="predict these runs and show how far off it is")  # fmt: skip
    add("--json", type=Path, help="file for all numbers")
    return parser


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 1000 else f"{seconds:,.0f}"


def _table(*columns: str) -> Table:
    shown = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        shown.add_column(column, justify="left" if column in ("split", "way") else "right")
    return shown


if __name__ == "__main__":
    main()
