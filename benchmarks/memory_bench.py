"""`agentgym bench memory`: a training run, watched for memory that grows from step to step.

A recipe is trained as `agentgym train` does it. Every so many steps the program counts Python's
objects and reads the memory of the process, of its children (environments, servers) and of the
GPU. From `--settled` on nothing may be more than 5% above what it was then: the program says so,
and fails where it is.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from bench_arguments import whole_from
from rich.console import Console
from rich.table import Table

from agentgym_rl.config import RunConfig, dump_config, load_config
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.experiment import train
from agentgym_rl.runs.folder import Metrics, RunFolder

MAX_GROWTH = 0.05


@dataclass(frozen=True, slots=True)
class Sample:
    """What the run holds at the end of a step."""

    step: int
    objects: int
    """Containers that Python's collector knows, spared ones included."""
    resident_mb: float
    anonymous_mb: float
    """Of the resident memory, what is not mapped from files: the kernel drops and reads libraries
    again as it likes, but a leak is here."""
    children_mb: float
    """Resident memory of all child processes."""
    gpu_mb: float
    """What torch has taken of the GPU's memory."""
    garbage_ms: float
    """Time of the collector in the step."""

    def __str__(self) -> str:
        return (
            f"step {self.step}: {self.objects:,} objects, {self.resident_mb:,.0f} MB "
            f"({self.anonymous_mb:,.0f} anonymous), children "
            f"{self.children_mb:,.0f} MB, GPU {self.gpu_mb:,.0f} MB"
        )


class Watch(Progress):
    """Samples a run every so many steps."""

    def __init__(self, every: int, console: Console) -> None:
        self.samples: list[Sample] = []
        self._every, self._console = every, console
        self._phase = ""

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        if phase != "evaluation":  # which comes within a phase
            self._phase = phase

    def on_step(self, metrics: Metrics) -> None:
        step = int(metrics["step"])
        if self._phase == "train" and (step % self._every == 0 or step == 1):
            self.samples.append(sample(step, garbage_s=metrics.get("time/garbage_s", 0.0)))
            self._console.print(str(self.samples[-1]), soft_wrap=True, highlight=False)


def sample(step: int, *, garbage_s: float) -> Sample:
    """Read this process and its children."""
    process = psutil.Process()
    children = process.children(recursive=True)
    return Sample(
        step,
        len(gc.get_objects()) + gc.get_freeze_count(),
        process.memory_info().rss / 2**20,
        (process.memory_info().rss - process.memory_info().shared) / 2**20,
        sum(child.memory_info().rss for child in children) / 2**20,
        torch.cuda.memory_reserved() / 2**20 if torch.cuda.is_available() else 0.0,
        1000 * garbage_s,
    )


def judge(samples: Sequence[Sample], *, settled: int) -> list[str]:
    """Return what grew after step `settled`, in words."""
    late = [one for one in samples if one.step >= settled]
    if len(late) < 2:
        return [f"there are {len(late)} samples from step {settled} on, and it takes 2"]
    problems = []
    for name in ("objects", "resident_mb", "anonymous_mb", "children_mb", "gpu_mb"):
        values: list[float] = [getattr(one, name) for one in late]  # columns, judged alike
        if max(values) > values[0] * (1 + MAX_GROWTH):
            growth = max(values) / values[0] - 1 if values[0] else float("inf")
            problems.append(f"{name} grew by {growth:.1%} after step {settled}")
    return problems


def table_of(samples: Sequence[Sample]) -> Table:
    """Return the samples as a table."""
    table = Table()
    for column in (
        "step",
        "objects",
        "resident MB",
        "anonymous MB",
        "children MB",
        "GPU MB",
        "collector ms",
    ):
        table.add_column(column, justify="right")
    for one in samples:
        numbers = (
            one.resident_mb, one.anonymous_mb, one.children_mb, one.gpu_mb, one.garbage_ms
        )  # fmt: skip
        table.add_row(str(one.step), f"{one.objects:,}", *(f"{number:,.0f}" for number in numbers))
    return table


def watch(config: RunConfig, folder: Path, *, every: int) -> list[Sample]:
    """Train in `folder`; return the samples."""
    run, progress = RunFolder(folder), Watch(every, Console())
    run.create(dump_config(config))
    asyncio.run(train(config, run, progress=progress))
    return progress.samples


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="agentgym bench memory", description="Memory of a training run from step to step."
    )
    parser.add_argument(
        "recipe", nargs="?", default="quickstart", help="a recipe, as for `agentgym train`"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the recipe")
    parser.add_argument("--every", type=whole_from(1), default=50, help="steps between samples")
    parser.add_argument(
        "--settled", type=whole_from(1), default=50, help="the step from which on nothing may grow"
    )
    chosen = parser.parse_args(arguments)
    config = load_config(chosen.recipe, chosen.overrides)
    folder = Path(tempfile.mkdtemp(prefix="memory-"))
    try:
        samples = watch(config, folder / "run", every=chosen.every)
    finally:
        shutil.rmtree(folder)
    Console().print(table_of(samples))
    if problems := judge(samples, settled=chosen.settled):
        raise SystemExit("; ".join(problems))
    print(f"nothing grew by more than {MAX_GROWTH:.0%}")  # noqa: T201 - a program


if __name__ == "__main__":
    main()
