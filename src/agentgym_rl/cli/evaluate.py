"""`agentgym eval`."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from agentgym_rl.api.eval_plan import (
    ALL_TASKS,
    check_env,
    default_folder,
    eval_config,
    refuse_a_run,
)
from agentgym_rl.api.model_names import model_directory
from agentgym_rl.api.task_choice import check_task_file
from agentgym_rl.cli.progress import duration, quiet_transformers
from agentgym_rl.cli.terminal import ToldInterrupt, print_markdown, suggest
from agentgym_rl.config import RunConfig
from agentgym_rl.envs import registry
from agentgym_rl.errors import AgentGymError, ConfigError, RunError, RunFailedError
from agentgym_rl.evaluation.horizons import horizons_markdown
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.evaluation.run import evaluate, evaluate_suite
from agentgym_rl.evaluation.settings import Wanted, load_settings
from agentgym_rl.evaluation.suite import ALL_ENVS
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import Episode

ALL = "all"
_OPENAI = "openai"
_INTERRUPTED = 130
"""Exit status after Ctrl-C."""


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """The options of the command."""

    envs: Sequence[str]
    """Names, labels of the model's run, or "all" for the five scenarios of the paper."""
    split: str = "test"
    limit: int = 0
    """Number of tasks; 0 for all."""
    per_category: int = 0
    """Number of tasks of each category, instead of `limit`."""
    samples_per_task: int = 1
    rounds: str = "0"
    """Like "10,20,30"."""
    engine: str = ""
    """Empty for the engine of the settings."""
    out: Path | None = None
    tasks: Path | None = None
    """File of the ids of the tasks, instead of those of the split."""

    def settings(self) -> list[str]:
        engine = [f"engine.type={self.engine}"] if self.engine else []
        return [
            f"env.eval_split={self.split}",
            f"eval.max_rounds={max(parse_horizons(self.rounds))}",
            f"eval.tasks={self.limit or ALL_TASKS}",
            *([f"env.eval_tasks_file={json.dumps(str(self.tasks))}"] if self.tasks else []),
            *engine,
        ]


def run_evaluation(model: str, options: EvalOptions, overrides: Sequence[str]) -> None:
    """Evaluate, print the report and keep it with all episodes."""
    horizons = parse_horizons(options.rounds)
    if options.limit and options.per_category:
        raise ConfigError("--limit and --per-category both choose tasks; give one of them")
    if options.tasks is not None:
        check_task_file(options.tasks, given=f"--tasks {options.tasks}", number="--limit {}")
    envs, missing = _choose_envs(options.envs)
    configs = {env: eval_config(model, env, [*options.settings(), *overrides]) for env in envs}
    is_suite = len(set(options.envs)) > 1 or ALL in options.envs
    urls = [config.env.url for config in configs.values() if config.env.url]
    if is_suite and len(set(urls)) < len(urls):
        raise ConfigError("env.url is the server of one environment; evaluate it by itself")
    is_endpoint = next(iter(configs.values())).engine.type == _OPENAI
    wanted = Wanted(
        model if is_endpoint else model_directory(model),
        options.samples_per_task,
        horizons,
        options.per_category,
    )
    for config in configs.values():
        check_env(config)
    out = options.out or default_folder(wanted, configs, is_suite=is_suite)
    if is_suite and load_settings(out) is not None:
        raise RunError(f"{out} holds the evaluation of one environment; choose another --out")
    refuse_a_run(out)
    quiet_transformers()
    console = Console()
    for config in configs.values():
        _say_what_is_chosen(console, config)
    with RunFolder(out).locked(), _Display(console) as display:
        if is_suite:
            work = evaluate_suite(wanted, configs, out=out, missing=missing, progress=display)
            suite = _run(work)
            reports = [report for found in suite.reports.values() for report in found]
            text = suite.to_markdown()
        else:
            work = evaluate(wanted, configs[envs[0]], out=out, progress=display)
            reports = _run(work)
            text = reports[0].to_markdown() if len(reports) == 1 else horizons_markdown(reports)
    print_markdown(text)
    _close(console, out, reports, display.first_error)


def parse_horizons(text: str) -> tuple[int, ...]:
    """Return the limits on rounds that "10,20,30" names; (0,) for the environment's own."""
    words = [word.strip() for word in text.split(",")]
    numbers = tuple(int(word) for word in words if word.isascii() and word.isdigit())
    is_repeated = len(set(numbers)) < len(numbers)
    if len(numbers) < len(words) or is_repeated or (len(numbers) > 1 and 0 in numbers):
        raise ConfigError(
            f"--rounds {text!r} is not a list of limits on rounds; write one number (0 for the "
            "environment's own), or several above 0 that differ, such as 10,20,30"
        )
    return numbers


class _Display(Progress):
    """A bar with the success so far and the time left. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._bar = ProgressBar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            console=console,
        )
        self._task = self._bar.add_task("starting", total=None, told="")
        self._has_begun = False
        self._num_new = self._num_completed = self._num_solved = self._num_failed = 0
        self._started = time.monotonic()
        self.first_error = ""
        """The first error of an episode that failed."""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Of an evaluation that was refused, an empty bar would stay above the error.
        self._bar.update(self._task, visible=self._has_begun)
        self._bar.stop()

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        self._has_begun = True
        self._num_new = self._num_completed = self._num_solved = self._num_failed = 0
        self._started = time.monotonic()
        self._bar.update(self._task, description=phase, total=total, completed=done, told="")

    def on_kept(self, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            self._count(episode)
        self._bar.update(self._task, completed=len(episodes))

    def on_episode(self, episode: Episode) -> None:
        self._num_new += 1
        self._count(episode)
        self._bar.update(self._task, advance=1, told=self._told())

    def _count(self, episode: Episode) -> None:
        self._num_failed += episode.is_failed
        self.first_error = self.first_error or episode.error or ""
        self._num_completed += not episode.is_failed
        self._num_solved += episode.success

    def _told(self) -> str:
        task = self._bar.tasks[0]
        rate = self._num_solved / self._num_completed if self._num_completed else 0.0
        elapsed_s = time.monotonic() - self._started
        left_s = elapsed_s / self._num_new * ((task.total or 0) - task.completed - 1)
        failed = f", {self._num_failed} failed" if self._num_failed else ""
        return f"success {rate:.1%}{failed}, left {duration(max(0.0, left_s))}"


def _choose_envs(names: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the environments to evaluate on, and those of "all" that cannot run, with reasons."""
    envs, missing = list[str](), dict[str, str]()
    for name in names:
        if name != ALL:
            envs.append(name)
            continue
        for env in ALL_ENVS:
            try:
                registry.make(env, {}).close()
            except (AgentGymError, ValueError) as error:
                missing[env] = str(error).partition(";")[0]
            else:
                envs.append(env)
    if not envs:
        raise ConfigError(f"none of {', '.join(missing)} can run here; see `agentgym envs`")
    return list(dict.fromkeys(envs)), missing


_ResultT = TypeVar("_ResultT")


def _run(work: Coroutine[None, None, _ResultT]) -> _ResultT:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        print("error: stopped; repeat the command to resume", file=sys.stderr)
        raise ToldInterrupt(_INTERRUPTED) from None


def _say_what_is_chosen(console: Console, config: RunConfig) -> None:
    """Say which tasks alone are evaluated: a run that learned from some is asked about these."""
    for key, names in (("levels", config.env.levels), ("categories", config.env.categories)):
        if names:
            console.print(
                f"only {config.env.name} tasks of {key} {', '.join(names)}; env.{key}=[] for all",
                highlight=False,
                markup=False,
            )


def _close(console: Console, out: Path, reports: Sequence[EvalReport], error: str) -> None:
    """Say where the results are, and whether they are complete."""
    console.print(f"report, picture and episodes in {out}", highlight=False)
    num_failed = sum(report.overall.failed for report in reports)
    if any(report.overall.episodes == 0 for report in reports):
        raise RunFailedError(f"there is no result: every episode failed; the first with: {error}")
    if num_failed:
        raise RunFailedError(
            f"{num_failed} episodes failed through no fault of the model, the first with: "
            f"{error}; repeat the command with --out {out} to play them again"
        )
    suggest(["agentgym", "ui", out.parent], ["agentgym", "eval", "--compare", out, "OTHER"])
