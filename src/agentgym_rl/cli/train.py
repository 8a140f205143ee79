"""`agentgym train`."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from agentgym_rl.api.plan import DEFAULT_RECIPE, RunPlan, opened, plan_run
from agentgym_rl.cli.memory import report_memory
from agentgym_rl.cli.stopping import Stopped, run_stoppable
from agentgym_rl.cli.terminal import ToldInterrupt, interruptible_imports, suggest
from agentgym_rl.config import dump_config
from agentgym_rl.evaluation.report import EvalReport, by_env
from agentgym_rl.evaluation.stored import read_reports
from agentgym_rl.models.hub import check_hub_name
from agentgym_rl.report.words import command
from agentgym_rl.runs.folder import Metrics, RunFolder, step_of

_TERMINATED = 128 + signal.SIGTERM
"""Exit status of a run that SIGTERM stopped: schedulers take it for one to be started again."""
_INTERRUPTED = 128 + signal.SIGINT
"""Exit status after Ctrl-C."""


def run_training(
    recipe: str | None,
    overrides: Sequence[str],
    *,
    run_dir: Path | None,
    resume: bool,
    dry_run: bool,
) -> None:
    """Train, with progress on the terminal and a closing table."""
    plan = plan_run(recipe, overrides, run_dir=run_dir, resume=resume)
    if dry_run:
        print(dump_config(plan.config), end="", flush=True)
        report_memory(plan.config)
        return
    _train(plan, title=f"{recipe or DEFAULT_RECIPE} -> {plan.folder.path}")


def _train(plan: RunPlan, *, title: str) -> None:
    if plan.is_new:
        plan.folder.refuse_begun()
        check_hub_name(plan.config.model.path)  # before torch, which takes seconds to import
    with interruptible_imports():  # here, because --dry-run must not wait for torch
        from agentgym_rl.cli.progress import TrainingDisplay, quiet_transformers
        from agentgym_rl.experiment import train

    quiet_transformers()
    console, run = Console(), plan.folder
    started = time.monotonic()
    try:
        with opened(plan):
            with TrainingDisplay(console, title=title) as display:
                run_stoppable(train(plan.config, run, progress=display))
            _close(console, run, seconds=time.monotonic() - started)
    except (Stopped, KeyboardInterrupt) as stop:
        with suppress(Exception):  # how to resume is what has to be said
            _draw_curve(run, run.read_metrics(), read_reports(run))
        print(f"error: {_stopped(run)}", file=sys.stderr)
        is_by_machine = isinstance(stop, Stopped) and stop.by == signal.SIGTERM
        if is_by_machine:
            sys.exit(_TERMINATED)
        raise ToldInterrupt(_INTERRUPTED) from None


def _stopped(run: RunFolder) -> str:
    """Return what to say of a run that was stopped."""
    checkpoint = run.latest_checkpoint()
    step = step_of(checkpoint.name) if checkpoint is not None else 0
    saved = f"step {step} is saved" if step else "no step was complete"
    resume = command("agentgym", "train", "--run-dir", run.path, "--resume")
    return f"stopped, {saved}; resume with: {resume}"


def _close(console: Console, run: RunFolder, *, seconds: float) -> None:
    """Print what came of the run and draw its curve."""
    from agentgym_rl.cli.progress import closing_table  # as above: torch

    reports, metrics = read_reports(run), run.read_metrics()
    for of_env in by_env(reports).values():
        if len(of_env) > 1:
            console.print(closing_table(of_env[0], of_env[-1]))
    number = "1 step" if len(metrics) == 1 else f"{len(metrics)} steps"
    console.print(f"{number}; this call took {seconds:.0f} s", highlight=False)
    console.print(f"model   {run.model}", highlight=False)
    if picture := _draw_curve(run, metrics, reports):
        console.print(f"curve   {picture}", highlight=False)
    suggest(
        ["agentgym", "ui", run.path.parent],
        ["agentgym", "eval", run.path],
        ["agentgym", "report", run.path],
    )


def _draw_curve(
    run: RunFolder, metrics: Sequence[Metrics], reports: Sequence[EvalReport]
) -> Path | None:
    """Draw the curve of what was learned so far; a run without episodes has none."""
    from agentgym_rl.evaluation.curve import draw_learning_curve  # as above: matplotlib

    if not metrics or "rollout/success_rate" not in metrics[0]:
        return None
    picture = run.path / "learning_curve.png"
    draw_learning_curve(picture, metrics, reports, title=run.path.name)
    return picture
