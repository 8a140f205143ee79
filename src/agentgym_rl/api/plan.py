"""What a run will be, found out before anything heavy is imported: settings, objects, folder.

The command line and `agentgym_rl.train` both plan here, so both refuse the same mistakes with the
same words, and both resume a run under the same rules.
"""

from __future__ import annotations

import itertools
import logging
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from agentgym_rl import __version__
from agentgym_rl.agents.agent import agent_class
from agentgym_rl.config import (
    AdaptiveRoundsConfig,
    RunConfig,
    dump_config,
    find_recipe,
    naming_env,
    parse_config,
    read_table,
)
from agentgym_rl.config.load import flatten
from agentgym_rl.config.overrides import Overrides, override_texts
from agentgym_rl.config.recipes import TomlTable
from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.errors import ConfigError, EnvError, RunError, some_of
from agentgym_rl.objects import Objects
from agentgym_rl.rewards import load_function
from agentgym_rl.rollout.tasks import select_tasks
from agentgym_rl.runs.folder import RunFolder, no_run_in, step_of, write_atomically
from agentgym_rl.runs.record import FILE as RECORD
from agentgym_rl.runs.record import recorded

logger = logging.getLogger(__name__)

DEFAULT_RECIPE = "quickstart"
# What may change when a run resumes: how long, where and what it keeps; not what it learns.
_MAY_CHANGE = (
    "training.steps",
    "training.tokens_per_batch",
    "training.share_prefix",
    "training.compile",
    "training.gradient_checkpointing",
    "training.shards",
    "training.sequence_parallel",
    "training.offload",
    "model.device",
    "rollout.max_concurrency",
    "engine.",
    "cluster.",
    "checkpoint.",
    "eval.every",
    "env.timeout_s",
    "env.url",
    "env.workers",
    "env.token_file",
    "tracking",
    "callbacks.",
)


_MAX_SHOWN = 60
"""Characters of a setting's value in a message."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run that is about to start or to resume."""

    config: RunConfig
    folder: RunFolder
    objects: Objects
    is_new: bool
    recipe: str = ""
    """The name or file of the recipe; empty for settings that a program made."""


def plan_run(
    recipe: str | Path | RunConfig | None,
    overrides: Overrides = (),
    *,
    run_dir: Path | None = None,
    resume: bool = False,
    objects: Objects | None = None,
) -> RunPlan:
    """Return the plan of a run. Raises ConfigError or RunError, which say what to change."""
    if run_dir == Path():
        raise ConfigError(
            "the run folder is empty or the current folder; name a folder for the run"
        )
    objects = objects or Objects()
    texts = [*override_texts(objects.settings()), *override_texts(overrides)]
    if resume:
        config, folder = _resumed(recipe, texts, run_dir, objects)
    else:
        table, source = _base(recipe if recipe is not None else DEFAULT_RECIPE)
        config = _parsed(table, texts, objects, source)
        folder = RunFolder(run_dir or _default_folder(source))
    objects.refuse_missing(config, source=f"the run in {folder.path}")
    _check_names(config, objects)
    name = (
        DEFAULT_RECIPE if recipe is None else "" if isinstance(recipe, RunConfig) else str(recipe)
    )
    return RunPlan(config, folder, objects, is_new=not resume, recipe="" if resume else name)


@contextmanager
def opened(plan: RunPlan) -> Iterator[None]:
    """Make the run's folder, or take the one there is, and keep other processes out of it.

    A run that is refused before it has begun leaves nothing behind.
    """
    run = plan.folder
    made = [folder for folder in (run.path, *run.path.parents) if not folder.exists()]
    with run.locked():
        text = dump_config(plan.config)
        if plan.is_new:
            run.create(text)
        else:
            write_atomically(run.config_file, text)
        with recorded(run, recipe=plan.recipe, version=__version__):
            try:
                yield
            except Exception:
                _remove_unbegun(run, made)
                raise


def _remove_unbegun(run: RunFolder, made: Sequence[Path]) -> None:
    """Leave nothing of a run that was refused; `made` are the folders that this call made."""
    own = (run.config_file, run.lock_file, run.path / RECORD)
    is_begun = any(item not in own for item in run.path.iterdir())
    if is_begun or run.path not in made:
        return
    shutil.rmtree(run.path)
    with suppress(OSError):  # another run may be in there by now
        for folder in made[1:]:
            folder.rmdir()


def check_env(config: RunConfig, cls: type[Environment] | None = None) -> None:
    """Refuse options, splits, categories and levels that the environment does not have.

    Whether it can run here is not asked: a recipe may be for another machine.
    """
    env = config.env
    if env.url:
        return  # its server knows
    try:
        cls = cls or registry.env_class(env.name)
    except EnvError:
        return
    try:
        registry.check_options(cls, env.options)
    except ValueError as error:
        raise ConfigError(f"{error} ('env.options={{}}' leaves out those of a recipe)") from error
    if env.options and cls.with_options.__func__ is not Environment.with_options.__func__:
        return  # options change the tasks, and finding out may read data or build an index
    with suppress(EnvError, ModuleNotFoundError):
        for split in (env.split, env.eval_split) if config.eval.tasks else (env.split,):
            if split == env.eval_split:
                _require_tested_split(cls, split)
            cls.require_split(split)
            if env.categories or env.levels:
                select_tasks(env, cls.spec, cls.tasks(split))


def _require_tested_split(cls: type[Environment], split: str) -> None:
    if split not in cls.spec.splits:
        raise ConfigError(
            f"{cls.spec.name} has no split {split!r} to evaluate on; it has "
            f"{', '.join(cls.spec.splits)}: choose one with env.eval_split, or train without "
            "evaluations with eval.tasks=0"
        )


def changed_keys(old: RunConfig, new: RunConfig) -> list[str]:
    before, after = flatten(old.model_dump(mode="json")), flatten(new.model_dump(mode="json"))
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))


def _check_names(config: RunConfig, objects: Objects) -> None:
    """Refuse names that stand for nothing, before a folder is made and torch is imported."""
    for label, of_env in config.environments.items():
        with naming_env(label, is_several=bool(config.envs)):
            check_env(of_env, objects.of_env(label).env)
            if objects.agent is None:
                agent_class(of_env.agent)
    if config.reward.function and objects.reward is None:
        load_function(config.reward.function, setting="reward.function")


def _base(recipe: str | Path | RunConfig) -> tuple[TomlTable, str]:
    """Return the table of a recipe, and what to call it."""
    if isinstance(recipe, RunConfig):
        return recipe.model_dump(mode="json"), "config"
    if not isinstance(recipe, str | Path):
        raise ConfigError(
            f"recipe={recipe!r} is a {type(recipe).__name__}; give the name of a recipe, a TOML "
            "file, or what load_config returned"
        )
    return read_table(find_recipe(str(recipe))), str(recipe)


def _parsed(table: TomlTable, texts: Iterable[str], objects: Objects, source: str) -> RunConfig:
    """Return the configuration; other environments do not inherit the recipe's choices."""
    texts, env = list(texts), table.get("env")
    wanted = objects.settings().get("env.name")
    is_other = isinstance(env, dict) and env.get("name") != wanted
    if objects.envs or (wanted is not None and (is_other or "envs" in table)):
        left_out = [key for key in flatten(table) if key.startswith(("env.", "envs."))]
        if left_out:
            logger.info("%s of %s are about other environments", ", ".join(left_out), source)
        table = {key: value for key, value in table.items() if key not in ("env", "envs")}
    return parse_config(table, texts, source=source, classes=objects.classes())


def _default_folder(source: str) -> Path:
    """Return a folder that does not exist yet: runs/<recipe>-<time>."""
    stem = Path("runs") / f"{Path(source).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    later = (stem.with_name(f"{stem.name}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([stem], later) if not path.exists())


def _resumed(
    recipe: str | Path | RunConfig | None,
    texts: list[str],
    run_dir: Path | None,
    objects: Objects,
) -> tuple[RunConfig, RunFolder]:
    """Return the recipe and folder of a run that resumes, with the changes that are allowed."""
    if run_dir is None:
        raise ConfigError("--resume needs the folder of the run (--run-dir, in Python run_dir)")
    run = RunFolder(run_dir)
    if not run.exists:
        remedy = (
            "put its config.toml back, or name another folder"
            if run.is_begun
            else "a new run there starts without --resume (in Python resume=True)"
        )
        raise RunError(f"{no_run_in(run_dir)}; {remedy}")
    source = str(run.config_file)
    saved = parse_config(read_table(run.config_file), source=source, classes=objects.classes())
    table, source = _base(recipe) if recipe is not None else (read_table(run.config_file), source)
    config = _parsed(table, texts, objects, source)
    differing = changed_keys(saved, config)
    changed = [key for key in differing if not _may_change(key)]
    if changed:
        raise ConfigError(
            f"changed against the run in {run_dir}: {_changes(saved, config, changed)}; a run "
            "resumes with the settings it began with, which are in its folder: "
            f"{_resuming_command(run_dir, texts)} (in Python without the recipe and these "
            "settings). Only where and how fast it runs may change; anything else needs a new run"
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


def _changes(saved: RunConfig, config: RunConfig, keys: Sequence[str]) -> str:
    """Return "training.lr (0.001, now 1.0)" for each setting that differs."""
    before, after = (flatten(each.model_dump(mode="json")) for each in (saved, config))
    return some_of(f"{key} ({_shown(before, key)}, now {_shown(after, key)})" for key in keys)


def _shown(values: Mapping[str, object], key: str) -> str:
    return shorten(repr(values[key]), _MAX_SHOWN) if key in values else "not set"


def _resuming_command(run_dir: Path, texts: Iterable[str]) -> str:
    """Return the command that resumes the run, with those overrides that may change."""
    kept = [text for text in texts if _may_change(text.partition("=")[0].strip())]
    words = ["agentgym", "train", "--resume", "--run-dir", str(run_dir), *kept]
    return shlex.join(words)


def _may_change(key: str) -> bool:
    """Whether a setting may change when a run resumes; so may that of one of its environments."""
    table, _, rest = key.partition(".")
    inner = rest.partition(".")[2]
    names = (f"env.{inner}", inner) if table == "envs" else (key,)
    return any(name.startswith(_MAY_CHANGE) for name in names)


def _check_past(run: RunFolder, config: RunConfig, checkpoint: Path | None) -> None:
    """Warn of metrics that are lost; refuse to resume where later steps depend on them."""
    if checkpoint is None:
        return
    if not (run.checkpoints / "latest").exists():
        logger.warning(
            "%s does not point at a checkpoint: the run resumes from %s",
            run.checkpoints / "latest", checkpoint.name,
        )  # fmt: skip
    known = {int(line["step"]) for line in run.read_metrics()}
    missing = [step for step in range(1, step_of(checkpoint.name) + 1) if step not in known]
    if not missing:
        return
    lost = f"{run.metrics_file} lacks {len(missing)} of the steps done, the first is {missing[0]}"
    schedules = [of_env.rounds for of_env in config.environments.values()]
    if any(isinstance(rounds, AdaptiveRoundsConfig) for rounds in schedules):
        raise RunError(
            f"{lost}, and rounds.type=adaptive decides by them: put the file back, or start a new "
            "run"
        )
    logger.warning("%s: the run resumes, and its curves have a gap", lost)
