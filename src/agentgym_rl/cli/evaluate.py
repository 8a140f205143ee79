"""`agentgym eval`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import Progress as ProgressBar

from agentgym_rl.cli.progress import quiet_transformers
from agentgym_rl.config import RunConfig, parse_config, read_table
from agentgym_rl.errors import RunError
from agentgym_rl.experiment import Progress, evaluate_model
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import Episode

_ALL = 10**9
"""More tasks than any environment has."""


def run_evaluation(
    model: str,
    env: str,
    *,
    split: str,
    limit: int,
    rounds: int,
    out: Path | None,
    overrides: Sequence[str],
) -> None:
    """Evaluate, print the report and keep it with all episodes."""
    config = _settings(model, env, split=split, limit=limit, rounds=rounds, overrides=overrides)
    out = out or Path("eval") / f"{env}-{time.strftime('%Y%m%d-%H%M%S')}"
    out.mkdir(parents=True, exist_ok=True)  # found out before the work, if it cannot be written
    quiet_transformers()
    console = Console()
    with ProgressBar(console=console) as bar:
        display = _Display(bar)
        report = asyncio.run(
            evaluate_model(_model_directory(model), config, out=out, progress=display)
        )
    console.print(Markdown(report.to_markdown()))
    console.print(f"report and episodes in {out}", highlight=False)
    if report.overall.episodes == 0:
        raise RunError("there is no result: every episode failed; the episodes tell why")


class _Display(Progress):
    """A bar that counts episodes."""

    def __init__(self, bar: ProgressBar) -> None:
        self._bar = bar
        self._task = bar.add_task("episodes", total=None)

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        self._bar.update(self._task, total=total)

    def on_episode(self, episode: Episode) -> None:
        self._bar.advance(self._task)


def _settings(
    model: str, env: str, *, split: str, limit: int, rounds: int, overrides: Sequence[str]
) -> RunConfig:
    """Return the settings: those of the run that the model comes from, if it comes from one."""
    run = _run_of(model)
    table = read_table(run.config_file) if run is not None else {}
    trained_on = table.get("env")
    if isinstance(trained_on, dict) and trained_on.get("name") != env:
        del table["env"]  # levels, options and address belong to the environment of the run
    forced = [f"env.name={env}", f"env.eval_split={split}", f"eval.max_rounds={rounds}"]
    forced.append(f"eval.tasks={limit or _ALL}")
    return parse_config(table, [*forced, *overrides], source=model)


def _run_of(model: str) -> RunFolder | None:
    """Return the run folder that a path is, or lies in."""
    for folder in (Path(model), *list(Path(model).parents)[:3]):
        if (folder / "config.toml").is_file():
            return RunFolder(folder)
    return None


def _model_directory(model: str) -> str:
    """Return the directory to load: the model of a run folder or a checkpoint, else as given."""
    for inner in ("model", "checkpoints/latest/model", "latest/model"):
        if (Path(model) / inner).is_dir():
            return str(Path(model) / inner)
    return model
