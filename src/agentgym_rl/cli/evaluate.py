"""`agentgym eval`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as ProgressBar

from agentgym_rl.agents.agent import make_agent
from agentgym_rl.cli.environments import boundary, check_split
from agentgym_rl.cli.progress import duration, quiet_transformers
from agentgym_rl.config import RunConfig, parse_config, read_table
from agentgym_rl.envs import registry
from agentgym_rl.errors import AgentGymError, ConfigError, RunError
from agentgym_rl.evaluation.horizons import horizons_markdown
from agentgym_rl.evaluation.paper import PAPER_TASKS
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.evaluation.run import Wanted, evaluate, evaluate_suite, folder_name
from agentgym_rl.evaluation.settings import load_settings
from agentgym_rl.models.loading import TINY
from agentgym_rl.rollout.tasks import select_tasks
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import Episode

logger = logging.getLogger(__name__)

ALL = "all"
_ALL_TASKS = 10**9
"""More tasks than any environment has."""
_OPENAI = "openai"
_ONLY_BY_COMMAND = {"engine": ("python", "args"), "env": ("token_file",)}
"""Settings that are not taken from a run: which program is started, and which file of this machine
is sent to the run's server as a token."""


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """The options of the command."""

    envs: Sequence[str]
    """Names, or "all" for the five scenarios of the paper."""
    split: str = "test"
    limit: int = 0
    """Number of tasks; 0 for all."""
    per_category: int = 0
    """Number of tasks of each category, in the place of `limit`."""
    samples_per_task: int = 1
    rounds: str = "0"
    """Like "10,20,30"."""
    engine: str = ""
    """Empty for that of the settings."""
    out: Path | None = None


def run_evaluation(model: str, options: EvalOptions, overrides: Sequence[str]) -> None:
    """Evaluate, print the report and keep it with all episodes."""
    horizons = parse_horizons(options.rounds)
    if options.limit and options.per_category:
        raise ConfigError("--limit and --per-category both choose tasks; give one of them")
    envs, missing = _choose_envs(options.envs)
    configs = {env: _settings(model, env, options, overrides) for env in envs}
    is_suite = len(set(options.envs)) > 1 or ALL in options.envs
    if is_suite and any(config.env.url for config in configs.values()):
        raise ConfigError("env.url is the server of one environment; evaluate it by itself")
    is_endpoint = next(iter(configs.values())).engine.type == _OPENAI
    wanted = Wanted(
        model if is_endpoint else model_directory(model),
        options.samples_per_task,
        horizons,
        options.per_category,
    )
    for config in configs.values():
        if not config.env.url:
            _check_env(config)
    out = options.out or _default_folder(wanted, configs, is_suite=is_suite)
    if is_suite and load_settings(out) is not None:
        raise RunError(f"{out} holds the evaluation of one environment; choose another --out")
    _refuse_a_run(out)
    quiet_transformers()
    console = Console()
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
    console.print(Markdown(text))
    _close(console, out, reports, display.first_error)


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


def model_directory(model: str) -> str:
    """Return the directory to load: the model of a run folder or a checkpoint, else as given."""
    path = Path(model).expanduser()
    for inner in ("model", "checkpoints/latest/model", "latest/model"):
        if (path / inner).is_dir():
            return str((path / inner).resolve())  # what `latest` points at may change
    if (path / "config.toml").is_file():
        raise ConfigError(f"the run in {model} has no checkpoint yet, so there is no model in it")
    if path.is_dir() and not any(path.glob("*.json")) and not any(path.glob("*.gguf")):
        runs = sorted(file.parent.name for file in path.glob("*/config.toml"))
        remedy = f"name one of its runs: {', '.join(runs)}" if runs else "name another folder"
        raise ConfigError(f"there is no model in {model}; {remedy}")
    if not path.exists() and _is_in_a_run(path):
        names = sorted(item.name for item in path.parent.iterdir() if item.is_dir())
        raise ConfigError(
            f"there is no {path.name!r} in {path.parent}; it has {', '.join(names) or 'no folders'}"
        )
    if model == TINY and not path.exists():
        raise ConfigError(
            f"there is no model {TINY!r} to evaluate: training makes one from the environment's "
            "text; name the folder of a run that did (such as of `agentgym train quickstart`), a "
            "model directory or a hub name"
        )
    return str(path) if path.exists() else model


def _is_in_a_run(path: Path) -> bool:
    """Whether a missing path is meant as a run or as a part of one, not as a hub name."""
    if len(path.parts) < 2 or not path.parent.is_dir():
        return False
    beside = [item / "config.toml" for item in path.parent.iterdir()]
    return path.parent.name == "checkpoints" or any(file.is_file() for file in beside)


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
        self._num_new = self._num_completed = self._num_solved = self._num_failed = 0
        self._started = time.monotonic()
        self.first_error = ""
        """Of the episodes that failed."""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
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
        for env in PAPER_TASKS:
            try:
                registry.make(env, {}).close()
            except (AgentGymError, ValueError) as error:
                missing[env] = str(error).partition(";")[0]
            else:
                envs.append(env)
    if not envs:
        raise ConfigError(f"none of {', '.join(missing)} can run here; see `agentgym envs`")
    return list(dict.fromkeys(envs)), missing


def _settings(model: str, env: str, options: EvalOptions, overrides: Sequence[str]) -> RunConfig:
    """Return the settings: those of the run that the model comes from, if it comes from one."""
    run = _run_of(model)
    table = read_table(run.config_file) if run is not None else {}
    _drop_what_only_commands_say(table)
    trained_on = table.get("env")
    if isinstance(trained_on, dict) and trained_on.get("name") != env:
        del table["env"]  # levels, options and address belong to the environment of the run
    left_out = table.pop("reward", None)
    if isinstance(left_out, dict) and left_out.get("function"):
        # A run folder is data: only a command names code of the user's own.
        logger.warning(
            "rewards are the environment's own; for those of the run add reward.function=%s",
            left_out["function"],
        )
    forced = [
        f"env.name={env}",
        f"env.eval_split={options.split}",
        f"eval.max_rounds={max(parse_horizons(options.rounds))}",
        f"eval.tasks={options.limit or _ALL_TASKS}",
    ]
    if options.engine:
        forced.append(f"engine.type={options.engine}")
    return parse_config(table, [*forced, *overrides], source=model)


def _drop_what_only_commands_say(table: dict[str, object]) -> None:
    """Leave out what a run may not decide on the machine of whoever evaluates its model."""
    for name, keys in _ONLY_BY_COMMAND.items():
        section = table.get(name)
        if isinstance(section, dict):
            for key in keys:
                section.pop(key, None)


def _run_of(model: str) -> RunFolder | None:
    """Return the run folder that a path is, or lies in."""
    path = Path(model)
    for folder in (path, *list(path.parents)[:3]) if path.exists() else ():
        if (folder / "config.toml").is_file():
            return RunFolder(folder)
    return None


def _default_folder(wanted: Wanted, configs: Mapping[str, RunConfig], *, is_suite: bool) -> Path:
    """Return the newest folder in eval/ where this very evaluation was stopped, or a new one."""
    stem = folder_name(next(iter(configs))) if not is_suite else f"{len(configs)}-environments"
    for folder in sorted(Path("eval").glob(f"{stem}-*"), reverse=True):
        if (folder / "report.json").exists():
            continue
        found = [
            (load_settings(folder / folder_name(env) if is_suite else folder), config)
            for env, config in configs.items()
        ]
        known = [(settings, config) for settings, config in found if settings is not None]
        if known and not any(
            settings.differences(wanted.settings(config)) for settings, config in known
        ):
            return folder
    return Path("eval") / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _check_env(config: RunConfig) -> None:
    """Find a mistake before a model is loaded and there is a folder for results."""
    env = config.env
    try:
        with boundary(f"environment {env.name!r}"):
            cls = registry.configured(registry.env_class(env.name), env.options)
            check_split(cls, env.eval_split)
            select_tasks(env, cls.spec, cls.tasks(env.eval_split))
            make_agent(config.agent, cls.spec)
            registry.construct(cls, env.options).close()
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _refuse_a_run(out: Path) -> None:
    """A report and episodes among those of training would pass for the run's own."""
    if RunFolder(out).exists:
        raise RunError(f"{out} is the folder of a run; choose another --out, such as {out}-eval")


_ResultT = TypeVar("_ResultT")


def _run(work: Coroutine[None, None, _ResultT]) -> _ResultT:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise RunError("stopped; the same command goes on") from None


def _close(console: Console, out: Path, reports: Sequence[EvalReport], error: str) -> None:
    """Say where all is, and whether it is whole."""
    console.print(f"report, picture and episodes in {out}", highlight=False)
    num_failed = sum(report.overall.failed for report in reports)
    if any(report.overall.episodes == 0 for report in reports):
        raise RunError(f"there is no result: every episode failed; the first with: {error}")
    if num_failed:
        raise RunError(
            f"{num_failed} episodes failed for reasons that are not the model's, the first with: "
            f"{error}; repeat the command with --out {out} to play them again"
        )
