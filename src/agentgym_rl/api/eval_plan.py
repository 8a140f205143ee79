"""What an evaluation will be, found out before a model is loaded: settings, tasks, folder.

The command line, `agentgym_rl.evaluate` and `agentgym_rl.rollout` all plan here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentgym_rl.api.model_names import RUNS, refuse_missing, run_of
from agentgym_rl.config import EnvConfig, RunConfig, parse_config, parse_value, read_table
from agentgym_rl.config.overrides import Overrides, override_texts
from agentgym_rl.config.recipes import TomlTable, merged
from agentgym_rl.envs import registry
from agentgym_rl.errors import ConfigError, RunError, boundary
from agentgym_rl.evaluation.run import folder_name
from agentgym_rl.evaluation.settings import Wanted, load_settings
from agentgym_rl.lookup import OBJECT_MARKER
from agentgym_rl.objects import Objects
from agentgym_rl.rollout.chosen_tasks import TaskName, choose_tasks, find_tasks, task_splits
from agentgym_rl.runs.folder import RunFolder

logger = logging.getLogger(__name__)

ALL_TASKS = 10**9
"""More tasks than any environment has."""
_ONLY_BY_COMMAND = {"engine": ("python", "args"), "env": ("token_file",)}
"""Settings that are not taken from a run: which program is started, and which file of this machine
is sent to the run's server as a token."""


def eval_config(
    model: str, env: str, overrides: Overrides = (), *, objects: Objects | None = None
) -> RunConfig:
    """Return the settings to play a model with: of the run that it comes from, if any.

    `env` is a name, or a label of that run; empty for its environment, if it has one.
    """
    objects = objects or Objects()
    _refuse_training_temperature(override_texts(overrides))
    table = _table_of_run(model)
    if objects.env is not None:
        env = str(objects.settings()["env.name"])
    elif not env:
        env = _only_env(model, table)
    table, env = _of_env(model, table, env)
    trained_on = table.get("env")
    trained_name = trained_on.get("name") if isinstance(trained_on, dict) else None
    if not env:
        raise _without_env(model, table, override_texts(overrides))
    if trained_name != env:
        table.pop("env", None)  # levels, options and address belong to the environment of the run
    texts = [*override_texts(objects.settings()), *override_texts({"env.name": env})]
    texts += override_texts(overrides)
    config = parse_config(table, texts, source=model, is_data=True)
    objects.refuse_missing(config, source=f"the run of {model}", needed=("env", "agent", "reward"))
    return config


def _refuse_training_temperature(texts: Sequence[str]) -> None:
    """Refuse what would change nothing, and is easily taken for the temperature of an evaluation.

    Only as an override: a run's own settings have it for its training.
    """
    for key, _, value in map(_parted, texts):
        if key == "rollout.temperature":
            raise ConfigError(
                f"rollout.temperature={value} is about training; an evaluation samples at "
                f"eval.temperature: write eval.temperature={value}"
            )


def trained_envs(model: str) -> list[str]:
    """Return the environments of the run that a model comes from: its labels, or its one name."""
    envs = _named(_table_of_run(model))
    # Code of the user's own is named by the user, not by a run folder.
    return [env for env, name in envs.items() if ":" not in name]


def check_env(
    config: RunConfig, objects: Objects | None = None, named: Sequence[TaskName] = ()
) -> None:
    """Find a mistake before a model is loaded and there is a folder for results.

    `named` are the tasks that a program chose, if it did.
    """
    env, objects = config.env, objects or Objects()
    if env.url:
        return  # its server knows
    try:
        with boundary(f"environment {env.name!r}"):
            cls = registry.configured(objects.env or registry.env_class(env.name), env.options)
            cls.require_split(env.eval_split)
            splits = cls.spec.splits if named else task_splits(env, cls.spec, tested=True)
            tasks = [task for split in splits for task in cls.tasks(split)]
            if named:
                find_tasks(tasks, cls.spec, named)
            else:
                choose_tasks(env, cls.spec, tasks, tested=True)
            objects.make_agent(config.agent, cls.spec)
            registry.construct(cls, env.options).close()
    except ValueError as error:
        raise ConfigError(str(error)) from error


def default_folder(wanted: Wanted, configs: Mapping[str, RunConfig], *, is_suite: bool) -> Path:
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


def refuse_a_run(out: Path) -> None:
    """Refuse a run's folder: the evaluation's files would pass for the run's own."""
    if RunFolder(out).exists:
        raise RunError(f"{out} is the folder of a run; choose another, such as {out}-eval")


def _table_of_run(model: str) -> TomlTable:
    """Return the settings of a model's run, without what a run may not decide on this machine."""
    run = run_of(model)
    table = read_table(run.config_file) if run is not None else {}
    envs = table.get("envs")
    sections = [(table.get(name), keys) for name, keys in _ONLY_BY_COMMAND.items()]
    sections += [(env, _ONLY_BY_COMMAND["env"]) for env in _values(envs)]
    for section, keys in sections:
        if isinstance(section, dict):
            for key in keys:
                section.pop(key, None)
    left_out = table.pop("reward", None)
    name = str(left_out.get("function", "")) if isinstance(left_out, dict) else ""
    if name and not name.startswith(OBJECT_MARKER):
        # A run folder is data: only a command names code of the user's own.
        logger.warning(
            "rewards are the environment's own; for the run's rewards add reward.function=%s", name
        )
    return table


def _values(table: object) -> list[object]:
    return list(table.values()) if isinstance(table, dict) else []


def _named(table: TomlTable) -> dict[str, str]:
    """Return the environments of a run: label -> name, and of a run with one, name -> name."""
    envs, env = table.get("envs"), table.get("env")
    if isinstance(envs, dict):
        return {
            label: str(inner.get("name") or label)
            for label, inner in envs.items()
            if isinstance(inner, dict)
        }
    name = env.get("name") if isinstance(env, dict) else None
    return {name: name} if isinstance(name, str) else {}


def _only_env(model: str, table: TomlTable) -> str:
    envs = _named(table)
    if len(envs) > 1:
        raise ConfigError(
            f"{model} was trained on {', '.join(envs)}: say which of them it plays, such as "
            f"env={next(iter(envs))}"
        )
    return next((env for env, name in envs.items() if ":" not in name), "")


def _without_env(model: str, table: TomlTable, texts: Sequence[str]) -> ConfigError:
    """Return what to say where neither the caller nor the model says which environment it plays."""
    engines = [parse_value(value) for key, _, value in map(_parted, texts) if key == "engine.type"]
    shown = model
    if engines[-1:] != ["openai"]:  # whose models have names of any form
        refuse_missing(model)
        if not Path(model).exists():
            shown = f"{model} is not a folder here; as a model of the hub, it"
    how = "add --env (in Python env=...)"
    if own := [name for name in _named(table).values() if ":" in name]:
        return ConfigError(
            f"{model} was trained on {', '.join(own)}, which is not imported, because a run folder "
            f"is data: {how} with that name if you trust it"
        )
    hint = ""
    if run_of(str(RUNS / model)) is not None:
        hint = f"; for the run of that name write {RUNS / model}"
    return ConfigError(
        f"{shown} does not say which environment it plays: {how}, such as --env babyai; "
        f"`agentgym envs` lists them{hint}"
    )


def _parted(text: str) -> tuple[str, str, str]:
    key, equals, value = text.partition("=")
    return key.strip(), equals, value.strip()


def _of_env(model: str, table: TomlTable, env: str) -> tuple[TomlTable, str]:
    """Return the settings of a run as if it had only this environment, and the name of that.

    `env` is a label of the run, or the name of an environment, which one label may have.
    """
    envs = table.get("envs")
    if not isinstance(envs, dict):
        return table, env
    names = _named(table)
    rest = {key: value for key, value in table.items() if key != "envs"}
    rest = merged(rest, {"rollout": {"follow_learnable": 0.0}})  # there is nothing to choose
    labels = [env] if env in names else [label for label, name in names.items() if name == env]
    if len(labels) > 1:
        raise ConfigError(
            f"{model} was trained on {env!r} as {', '.join(labels)}: name one of these labels"
        )
    if not labels:
        return rest, env
    (label,), name = labels, names[labels[0]]
    if ":" in name and env != name:
        raise ConfigError(
            f"{label!r} is {name!r} in the run of {model}, which is not imported, because a run "
            f"folder is data: name {name} itself if you trust it"
        )
    own = {key: value for key, value in envs[label].items() if key in EnvConfig.model_fields}
    changes = {key: envs[label][key] for key in ("agent", "rollout") if key in envs[label]}
    return merged(rest, {**changes, "env": own | {"name": name}}), name
