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
from agentgym_rl.errors import ConfigError, RunError
from agentgym_rl.evaluation.horizons import horizons_markdown
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
    attempts: int,
    rounds: str,
    out: Path | None,
    overrides: Sequence[str],
) -> None:
    """Evaluate, print the report and keep it with all episodes; `rounds` is like "10,20,30"."""
    horizons = parse_horizons(rounds)
    config = _settings(
        model, env, split=split, limit=limit, rounds=max(horizons), overrides=overrides
    )
    out = out or Path("eval") / f"{env}-{time.strftime('%Y%m%d-%H%M%S')}"
    out.mkdir(parents=True, exist_ok=True)  # found out before the work, if it cannot be written
    quiet_transformers()
    console = Console()
    with ProgressBar(console=console) as bar:
        display = _Display(bar)
        reports = asyncio.run(
            evaluate_model(
                _model_directory(model),
                config,
                out=out,
                attempts=attempts,
                horizons=horizons if len(horizons) > 1 else (),
                progress=display,
            )
        )
    text = reports[0].to_markdown() if len(reports) == 1 else horizons_markdown(reports)
    console.print(Markdown(text))
    console.print(f"report and episodes in {out}", highlight=False)
    if any(report.overall.episodes == 0 for report in reports):
        raise RunError("there is no result: every episode failed; the episodes tell why")


def parse_horizons(text: str) -> tuple[int, ...]:
    """Return the limits on rounds that "10,20,30" names; (0,) for the environment's own."""
    words = [word.strip() for word in text.split(",")]
    numbers = tuple(int(word) for word in words if word.isascii() and word.isdigit())
    is_repeated = len(set(numbers)) < len(numbers)
    if len(numbers) < len(words) or is_repeated or (len(numbers) > 1 and 0 in numbers):
        raise ConfigError(
            f"--rounds {text!r} is no list of limits on rounds; write one number (0 for the "
            "environment's own), or several above 0 that differ, such as 10,20,30"
        )
    return numbers


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
