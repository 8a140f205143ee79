"""`agentgym train`."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from agentgym_rl.agents.agent import agent_class
from agentgym_rl.cli.stopping import Stopped, run_stoppable
from agentgym_rl.cli.terminal import interruptible_imports
from agentgym_rl.config import (
    AdaptiveRoundsConfig,
    EnvConfig,
    RunConfig,
    dump_config,
    find_recipe,
    load_config,
    parse_config,
    read_table,
)
from agentgym_rl.config.load import flatten
from agentgym_rl.envs import registry
from agentgym_rl.errors import ConfigError, EnvError, RunError
from agentgym_rl.evaluation.report import EvalReport, read_reports
from agentgym_rl.rewards import load_function
from agentgym_rl.runs.folder import Metrics, RunFolder, step_of, write_atomically

logger = logging.getLogger(__name__)

_DEFAULT_RECIPE = "quickstart"
_TERMINATED = 128 + signal.SIGTERM
"""Exit status of a run that SIGTERM stopped: schedulers take it for one to be started again."""
# What may change when a run goes on: how long, where and what it keeps; not what it learns.
_MAY_CHANGE = (
    "training.steps",
    "training.tokens_per_batch",
    "training.compile",
    "training.gradient_checkpointing",
    "training.offload_reference",
    "model.device",
    "rollout.max_concurrency",
    "engine.",
    "checkpoint.",
    "eval.every",
    "env.timeout_s",
    "env.url",
    "env.workers",
    "env.token_file",
)


def run_training(
    recipe: str | None,
    overrides: Sequence[str],
    *,
    run_dir: Path | None,
    resume: bool,
    dry_run: bool,
) -> None:
    """Train, with progress on the terminal and a closing table."""
    if run_dir == Path():
        raise ConfigError("--run-dir is empty or the present folder; name a folder of its own")
    if resume:
        config, run = _resumed(recipe, overrides, run_dir)
    else:
        config = load_config(recipe or _DEFAULT_RECIPE, overrides)
        run = RunFolder(run_dir or _default_run_dir(recipe or _DEFAULT_RECIPE))
    check_env_options(config.env)
    agent_class(config.agent)
    if config.reward.function:
        load_function(config.reward.function, setting="reward.function")
    if dry_run:
        print(dump_config(config), end="")
        return
    _train(config, run, is_new=not resume, title=f"{recipe or _DEFAULT_RECIPE} -> {run.path}")


def _train(config: RunConfig, run: RunFolder, *, is_new: bool, title: str) -> None:
    with interruptible_imports():  # here, because --dry-run must not wait for torch
        from agentgym_rl.cli.progress import TrainingDisplay, quiet_transformers
        from agentgym_rl.experiment import train

    quiet_transformers()
    console = Console()
    made = [folder for folder in (run.path, *run.path.parents) if not folder.exists()]
    with run.locked():
        if is_new:
            run.create(dump_config(config))
        else:
            write_atomically(run.config_file, dump_config(config))
        started = time.monotonic()
        with TrainingDisplay(console, title=title) as display:
            try:
                run_stoppable(train(config, run, progress=display))
            except (Stopped, KeyboardInterrupt) as stop:
                with suppress(Exception):  # how to go on is what has to be said
                    _draw_curve(run, run.read_metrics(), read_reports(run))
                error = _stopped(run)
                if isinstance(stop, Stopped) and stop.by == signal.SIGTERM:
                    print(f"error: {error}", file=sys.stderr)
                    sys.exit(_TERMINATED)
                raise error from None
            except Exception:
                _remove_unbegun(run, made)
                raise
        _close(console, run, seconds=time.monotonic() - started)


def _stopped(run: RunFolder) -> RunError:
    """Return what to say of a run that was stopped."""
    checkpoint = run.latest_checkpoint()
    step = step_of(checkpoint.name) if checkpoint is not None else 0
    saved = f"step {step} is saved" if step else "no step was complete"
    return RunError(f"stopped, {saved}; resume with: agentgym train --run-dir {run.path} --resume")


def check_env_options(env: EnvConfig) -> None:
    """Refuse options that the environment does not take; whether it can run here is not asked."""
    if env.url:
        return
    try:
        cls = registry.env_class(env.name)
    except EnvError:
        return  # its package is missing here, and a recipe may be for another machine
    try:
        registry.check_options(cls, env.options)
    except ValueError as error:
        raise ConfigError(f"{error} ('env.options={{}}' leaves out those of a recipe)") from error


def _remove_unbegun(run: RunFolder, made: Sequence[Path]) -> None:
    """Leave nothing of a run that was refused; `made` are the folders that are this call's."""
    is_begun = any(item not in (run.config_file, run.lock_file) for item in run.path.iterdir())
    if is_begun or run.path not in made:
        return
    shutil.rmtree(run.path)
    with suppress(OSError):  # another run may be in there by now
        for folder in made[1:]:
            folder.rmdir()


def _close(console: Console, run: RunFolder, *, seconds: float) -> None:
    """Print what came of the run and draw its curve."""
    from agentgym_rl.cli.progress import closing_table  # as above: torch

    reports, metrics = read_reports(run), run.read_metrics()
    if len(reports) > 1:
        console.print(closing_table(reports[0], reports[-1]))
    number = "1 step" if len(metrics) == 1 else f"{len(metrics)} steps"
    console.print(f"{number}; this call took {seconds:.0f} s", highlight=False)
    console.print(f"model   {run.model}", highlight=False)
    if picture := _draw_curve(run, metrics, reports):
        console.print(f"curve   {picture}", highlight=False)


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


def _resumed(
    recipe: str | None, overrides: Sequence[str], run_dir: Path | None
) -> tuple[RunConfig, RunFolder]:
    """Return the recipe and folder of a run that goes on, with the changes that are allowed."""
    if run_dir is None:
        raise ConfigError("--resume needs --run-dir, the folder of the run to go on with")
    run = RunFolder(run_dir)
    if not run.exists:
        remedy = (
            "put its config.toml back, or choose another --run-dir"
            if run.is_begun
            else "leave --resume out to start one there"
        )
        raise RunError(f"{run_dir} holds no run (no config.toml); {remedy}")
    saved = parse_config(read_table(run.config_file), source=str(run.config_file))
    if recipe is not None:
        config = parse_config(read_table(find_recipe(recipe)), overrides, source=recipe)
    else:
        config = parse_config(read_table(run.config_file), overrides, source=str(run.config_file))
    differing = changed_keys(saved, config)
    changed = [key for key in differing if not key.startswith(_MAY_CHANGE)]
    if changed:
        raise ConfigError(
            f"changed against the run in {run_dir}: {', '.join(changed)}; a run goes on with the "
            f"settings it began with (only {_may_change()} may change): start a new run instead"
        )
    checkpoint = run.latest_checkpoint()
    num_done = step_of(checkpoint.name) if checkpoint is not None else 0
    if config.training.steps < num_done:
        raise ConfigError(
            f"training.steps={config.training.steps}, but the run in {run_dir} has done "
            f"{num_done} steps; give a larger number, or start a new run"
        )
    _check_past(run, config, checkpoint)
    if "training.steps" in differing and config.training.lr_schedule != "constant":
        logger.warning(
            "training.steps=%d was %d, and training.lr_schedule=%s falls over the whole run: from "
            "here on the learning rate is that of a run of %d steps",
            config.training.steps,
            saved.training.steps,
            config.training.lr_schedule,
            config.training.steps,
        )
    return config, run


def _may_change() -> str:
    return ", ".join(key + "*" * key.endswith(".") for key in _MAY_CHANGE)


def _check_past(run: RunFolder, config: RunConfig, checkpoint: Path | None) -> None:
    """Tell what of the run's past is lost; refuse to go on where it decides what comes."""
    if checkpoint is None:
        return
    if not (run.checkpoints / "latest").exists():
        logger.warning(
            "%s points at no checkpoint: the run goes on from %s",
            run.checkpoints / "latest", checkpoint.name,
        )  # fmt: skip
    known = {int(line["step"]) for line in run.read_metrics()}
    missing = [step for step in range(1, step_of(checkpoint.name) + 1) if step not in known]
    if not missing:
        return
    told = f"{run.metrics_file} lacks {len(missing)} of the steps done, the first is {missing[0]}"
    if isinstance(config.rounds, AdaptiveRoundsConfig):
        raise RunError(
            f"{told}, and rounds.type=adaptive decides by them: put the file back, or start anew"
        )
    logger.warning("%s: the run goes on, and its curves have a gap", told)


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    """Return the dotted keys whose values differ."""
    before, after = flatten(old.model_dump(mode="json")), flatten(new.model_dump(mode="json"))
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _default_run_dir(recipe: str) -> Path:
    return Path("runs") / f"{Path(recipe).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
