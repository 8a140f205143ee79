"""What `agentgym train` shows: a live panel, or plain lines where there is no terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Self

import transformers
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport, by_env, with_numbers
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.types import Episode

_BLOCKS = " ▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 60
_UNITS = {
    "train": "step",
    "warm start": "step",
    "evaluation": "episode",
    "demonstrations": "episode",
}


class TrainingDisplay(Progress):
    """Follows a run on the terminal. Use as a context manager."""

    def __init__(self, console: Console, *, title: str) -> None:
        self._console, self._title = console, title
        self._phase, self._total, self._done, self._done_before = "starting", 0, 0, 0
        self._phase_started = time.monotonic()
        self._episodes_in_step = 0
        self._metrics: Metrics = {}
        self._success: list[float] = []
        self._reports: list[EvalReport] = []
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        if phase == "evaluation" and self._phase == "train":
            return  # an evaluation between steps is part of training
        self._phase, self._total, self._done, self._done_before = phase, total, done, done
        self._phase_started = time.monotonic()
        self._print(
            f"{phase}: {total} {_UNITS.get(phase, 'step')}{'s' if total != 1 else ''}"
            + (f", {done} done" if done else "")
        )

    def on_episode(self, episode: Episode) -> None:
        if self._phase == "evaluation":
            self._done += 1
        else:
            self._episodes_in_step += 1

    def on_step(self, metrics: Metrics) -> None:
        self._done = int(metrics["step"])
        self._episodes_in_step = 0
        if "rollout/success_rate" in metrics:
            self._metrics = metrics
            self._success.append(metrics["rollout/success_rate"])
            self._print(self._line(metrics))
        elif "train/loss" in metrics and self._done % 20 == 0:
            self._print(
                f"{self._phase} {self._done}/{self._total}  loss {metrics['train/loss']:.3f}"
            )

    def on_report(self, report: EvalReport) -> None:
        self._reports.append(report)
        score = report.overall
        self._print(
            f"success on {report.split} tasks of {report.env} after step {report.step}: "
            + (
                f"{score.success_rate:.1%} [{score.success_low:.1%}, {score.success_high:.1%}]"
                if score.episodes
                else f"unknown, all {score.failed} episodes failed"
            )
        )

    def _print(self, line: str) -> None:
        if not self._console.is_terminal:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _line(self, metrics: Metrics) -> str:
        return (
            f"step {self._done}/{self._total}  success {metrics['rollout/success_rate']:.1%}  "
            f"reward {metrics['rollout/reward_mean']:.3f}  "
            f"rounds {metrics['rollout/rounds_mean']:.1f}/{metrics['rollout/max_rounds']:.0f}  "
            f"{metrics['rollout/tokens_per_s']:.0f} tokens/s  "
            f"{metrics['time/step_s']:.1f} s  left {duration(self._seconds_left())}"
        )

    def _seconds_left(self) -> float:
        done = self._done - self._done_before
        elapsed = time.monotonic() - self._phase_started
        return elapsed / done * (self._total - self._done) if done else 0.0

    def _render(self) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(self._phase, style="bold"),
            ProgressBar(total=max(1, self._total), completed=self._done, width=36),
            f"{self._done}/{self._total}",
            f"left {duration(self._seconds_left())}",
            f"{self._episodes_in_step} episodes" if self._episodes_in_step else "",
        )
        parts: list[RenderableType] = [head]
        if self._success:
            parts += [
                Text(),
                Text.assemble("success  ", (sparkline(self._success), "cyan")),
                self._rates(),
            ]
        for env, reports in by_env(with_numbers(self._reports)).items():
            shown = "  ->  ".join(f"{report.overall.success_rate:.0%}" for report in reports)
            parts.append(Text.assemble(f"held out, {env}  ", (shown, "bold red")))
        return Panel(Group(*parts), title=self._title, border_style="dim")

    def _rates(self) -> Table:
        metrics, table = self._metrics, Table.grid(padding=(0, 3))
        table.add_row(
            f"success {metrics['rollout/success_rate']:.0%}",
            f"reward {metrics['rollout/reward_mean']:.2f}",
            f"rounds {metrics['rollout/rounds_mean']:.1f} of {metrics['rollout/max_rounds']:.0f}",
            f"entropy {metrics['train/entropy']:.2f}",
            f"{metrics['rollout/tokens_per_s']:.0f} tokens/s",
            f"{metrics['time/step_s']:.1f} s per step",
            f"{metrics['rollout/episodes_failed']:.0f} failed",
        )
        return table


def quiet_transformers() -> None:
    """Keep transformers' progress bars out of ours, and the hub's messages from coming twice."""
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").propagate = False  # it prints its messages itself


def sparkline(values: Sequence[float]) -> str:
    """Return rates between 0 and 1 as a line of blocks, the newest last."""
    shown = values[-_CURVE_WIDTH:]
    return "".join(
        _BLOCKS[round(max(0.0, min(1.0, value)) * (len(_BLOCKS) - 1))] for value in shown
    )


def closing_table(before: EvalReport, after: EvalReport) -> Table:
    """Return success before and after training, by category, with 95% intervals."""
    table = Table(
        title=f"{after.env}, {after.split} tasks: success rate [95% interval]", title_justify="left"
    )
    for name in ("category", "tasks", "before", "after"):
        table.add_column(name, justify="left" if name == "category" else "right")
    names = after.categories if len(after.categories) > 1 else ()
    scores = [(name, before.categories[name], after.categories[name]) for name in names]
    for name, old, new in [*scores, ("all", before.overall, after.overall)]:
        cells = [
            f"{score.success_rate:6.1%} [{score.success_low:.0%}, {score.success_high:.0%}]"
            if score.episodes
            else "-"
            for score in (old, new)
        ]
        table.add_row(name, str(new.episodes), *cells, style="bold" if name == "all" else "")
    return table


def duration(seconds: float) -> str:
    """Return "1:02:03", or "2:03" where there are no hours."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
