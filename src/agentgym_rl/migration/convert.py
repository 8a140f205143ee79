"""Turns the settings of an AgentGym-RL training script into a recipe, with a line for each setting:
what it became, or why it has no counterpart here.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentgym_rl.config import is_meant_as_path, parse_config
from agentgym_rl.config.overrides import override_texts
from agentgym_rl.config.recipes import packaged_recipes, read_table
from agentgym_rl.errors import ConfigError
from agentgym_rl.migration import theirs
from agentgym_rl.migration.shell import hydra_overrides, read_script
from agentgym_rl.migration.theirs import ACTOR, AGENTGYM, MODEL, ROLLOUT

_TRAINS, _EVALUATES = "main_ppo", "main_generation"
_GPUS = "learner and engine share what is here; training.shards spreads the learner"
_SPLIT = f"{ACTOR}ulysses_sequence_parallel_size"
_CHECKPOINT_EVERY = 25
"""Steps, as in the published scripts; where theirs keeps no checkpoint before the end."""
_LOCAL_FOLDERS = frozenset({"checkpoints", "ckpt", "ckpts", "model", "models", "saves"})
"""First parts of a path that are no owner of models on the hub."""
_OURS_DECIDES = ("name", "options", "timeout_s")
"""What a converted recipe takes of the paper's recipe for the same environment."""


@dataclass(frozen=True, slots=True)
class Note:
    """What became of one of their settings."""

    key: str
    value: str
    told: str
    """Our setting, or why there is none."""


@dataclass(slots=True)
class Conversion:
    """A recipe in the making."""

    source: str
    settings: Mapping[str, str]
    """What the script sets."""
    sections: dict[str, dict[str, tuple[object, str]]] = field(default_factory=dict)
    """Ours: section -> key -> value and where it is from."""
    kept: list[Note] = field(default_factory=list)
    """What was carried over."""
    left: list[Note] = field(default_factory=list)
    """What has no counterpart, or had no effect."""
    advice: list[str] = field(default_factory=list)

    def get(self, key: str) -> str:
        return self.settings.get(key, theirs.DEFAULTS.get(key, ""))

    def number(self, key: str) -> float:
        """Return a setting that is a number. Raises ConfigError for any other."""
        text = self.get(key)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ConfigError(f"{self.source}: {key}={text} is not a number")
        return value

    def whole(self, key: str) -> int:
        return int(self.number(key))

    def is_true(self, key: str) -> bool:
        return self.get(key).lower() == "true"

    def put(self, ours: str, value: object, *keys: str, why: str = "") -> None:
        """Set one of our settings, from these keys of theirs."""
        section, _, name = ours.partition(".")
        origin = ", ".join(".".join(key.split(".")[-2:]) for key in keys)
        known = [key for key in keys if key in self.settings]
        comment = why or (origin if known else f"{origin}, their default" if origin else "")
        self.sections.setdefault(section, {})[name] = (value, comment)
        self.kept += [Note(key, self.settings[key], ours) for key in known]

    def leave(self, key: str, told: str) -> None:
        """Record a setting of the script that has no counterpart."""
        if key in self.settings:
            self.left.append(Note(key, self.settings[key], told))


def convert_script(text: str, *, source: str) -> Conversion:
    """Return the recipe that a training script is. Raises ConfigError, which says what to do."""
    try:
        script = read_script(text)
    except ValueError as error:
        raise ConfigError(f"{source} cannot be read as a shell script: {error}") from error
    words = next((each for each in script.commands if _calls(each, _TRAINS)), None)
    if words is None:
        evaluating = next((each for each in script.commands if _calls(each, _EVALUATES)), None)
        if evaluating is not None:
            raise ConfigError(_evaluation(source, hydra_overrides(evaluating)))
        raise ConfigError(
            f"{source} does not call the trainer (python3 -m verl.agent_trainer.main_ppo): name "
            "one of the scripts in examples/train"
        )
    found = Conversion(source, hydra_overrides(words))
    _refuse_unresolved(found, script.unresolved)
    for convert in (_env, _model_and_rollout, _algorithm, _training, _rest):
        convert(found)
    _check(found)
    return found


def recipe_text(found: Conversion) -> str:
    """Return the recipe as TOML, with what was left out as comments at its end."""
    lines = [f"# Converted by `agentgym convert-config` from {_one_line(found.source)}."]
    for section, settings in found.sections.items():
        lines += ["", f"[{section}]"]
        for key, (value, comment) in settings.items():
            # A dotted key, so that a table stays one line.
            (text,) = override_texts({f"{section}.{key}": value})
            shown = text.partition("=")[2]
            lines.append(f"{key} = {shown}" + (f"  # {comment}" if comment else ""))
    if found.advice:
        lines += ["", *(f"# {text}" for text in found.advice)]
    if found.left:
        lines += ["", "# Not carried over:"]
        lines += [f"#   {note.key}={_one_line(note.value)}: {note.told}" for note in found.left]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """Return a text that can be a comment: it goes to the terminal and into TOML."""
    return "".join(each for each in " ".join(text.split()) if each.isprintable())


def _calls(words: list[str], program: str) -> bool:
    return any(word.rpartition(".")[2] == program or f"{program}.py" in word for word in words)


def _refuse_unresolved(found: Conversion, unresolved: list[str]) -> None:
    """Leave out settings whose value only a shell knows."""
    names, known = list(dict.fromkeys(unresolved)), dict(found.settings)
    for key, value in found.settings.items():
        if name := next((name for name in names if name in value), None):
            found.leave(key, f"{name} is not assigned in the script, so its value is unknown")
            del known[key]
    found.settings = known


def _env(found: Conversion) -> None:
    name = found.get(f"{AGENTGYM}task_name")
    recipes = packaged_recipes()
    if f"paper/{name}-grpo" not in recipes:
        known = ", ".join(sorted(theirs.TRAIN_SIZES))
        raise ConfigError(
            f"{found.source}: there is no environment {name!r} here; scripts of {known} can be "
            "converted, and other tasks are an environment of your own (agentgym init env)"
        )
    ours = read_table(recipes[f"paper/{name}-grpo"]).get("env")
    assert isinstance(ours, dict), "every recipe of the paper has an environment"
    found.put("env.name", name, f"{AGENTGYM}task_name")
    for key in _OURS_DECIDES[1:]:
        if key in ours:
            found.put(f"env.{key}", ours[key], why=f"as in paper/{name}-grpo")
    if file := found.get("data.train_file"):
        found.put("env.tasks_file", file, "data.train_file")
        if not Path(file).is_file():
            found.advice.append(
                f"env.tasks_file={_one_line(file)} is not a file here: write where yours is, or "
                '"" for all tasks of the split.'
            )
    address = found.get(f"{AGENTGYM}env_addr")
    if address:
        found.leave(
            f"{AGENTGYM}env_addr",
            "the environment runs in this process; to play on that server, set env.url to it and "
            "env.dialect=agentgym",
        )
    if name == "textcraft":
        found.advice.append(
            "TextCraft: their numbers of goals depend on the machine; here they are sorted by "
            "depth, so an id is a goal of about the same depth, not the same goal."
        )


def _model_and_rollout(found: Conversion) -> None:
    path = found.get(f"{MODEL}path") or "Qwen/Qwen2.5-7B-Instruct"
    found.put("model.path", path, f"{MODEL}path")
    if _is_elsewhere(path):
        name = path.rstrip("/").rpartition("/")[2]
        hub = f"Qwen/{name}" if name.startswith("Qwen") else "OWNER/NAME"
        found.advice.append(
            f"model.path={_one_line(path)} is not a folder here: write the folder of your copy, or "
            f"the model's name on the hub, such as {_one_line(hub)}."
        )
    found.put("model.dtype", "bfloat16", why="as there; updates are float32, there and here")
    found.put("rollout.temperature", found.number(f"{ROLLOUT}temperature"), f"{ROLLOUT}temperature")
    found.put(
        "rollout.max_tokens_per_round", found.whole(f"{ROLLOUT}max_tokens"), f"{ROLLOUT}max_tokens"
    )
    lengths = ("data.max_prompt_length", "data.max_response_length")
    found.put("rollout.max_tokens", sum(map(found.whole, lengths)), *lengths)
    found.put("rollout.max_seconds", 1800.0, why="as in paper/base")
    size = found.whole(f"{ROLLOUT}tensor_model_parallel_size")
    if size > 1 and f"{ROLLOUT}tensor_model_parallel_size" in found.settings:
        found.put("engine.type", "vllm", why="several GPUs share the model")
        found.put("engine.tensor_parallel_size", size, f"{ROLLOUT}tensor_model_parallel_size")
        found.put(
            "engine.memory_fraction",
            found.number(f"{ROLLOUT}gpu_memory_utilization")
            if f"{ROLLOUT}gpu_memory_utilization" in found.settings
            else 0.5,
            f"{ROLLOUT}gpu_memory_utilization",
        )
        return
    found.leave(f"{ROLLOUT}tensor_model_parallel_size", "one GPU holds the model")
    found.leave(
        f"{ROLLOUT}gpu_memory_utilization",
        "the native engine is used, see engine.cache_fraction; with engine.type=vllm it is "
        "engine.memory_fraction",
    )


def _is_elsewhere(path: str) -> bool:
    """Whether a model is a folder that is not on this machine, and not a name on the hub."""
    is_local = is_meant_as_path(path) or path.partition("/")[0] in _LOCAL_FOLDERS
    return is_local and not Path(path).expanduser().exists()


def _algorithm(found: Conversion) -> None:
    estimator = found.get("algorithm.adv_estimator")
    if estimator not in theirs.ESTIMATORS:
        raise ConfigError(
            f"{found.source}: algorithm.adv_estimator={estimator} has no counterpart; known: "
            f"{', '.join(theirs.ESTIMATORS)}"
        )
    kind = theirs.ESTIMATORS[estimator]
    found.put("algorithm.type", kind, "algorithm.adv_estimator")
    found.put("algorithm.group_size", found.whole(f"{ROLLOUT}n"), f"{ROLLOUT}n")
    if kind == "ppo":
        found.put("algorithm.gae_lambda", found.number("algorithm.lam"), "algorithm.lam")
        found.put("algorithm.critic_lr", found.number("critic.optim.lr"), "critic.optim.lr")
        clip = "critic.cliprange_value"
        found.put("algorithm.value_clip", found.number(clip), clip)
        warmup = "trainer.critic_warmup"
        found.put("algorithm.critic_warmup_steps", found.whole(warmup), warmup)
    else:
        for key in ("algorithm.lam", "trainer.critic_warmup"):
            found.leave(key, "only ppo has a critic")
    found.put("credit.discount", found.number("algorithm.gamma"), "algorithm.gamma")
    _rounds(found)
    clip = found.number(f"{ACTOR}clip_ratio")
    found.put("policy_loss.clip_low", clip, f"{ACTOR}clip_ratio")
    found.put("policy_loss.clip_high", clip, why="the same on both sides")
    found.put(
        "policy_loss.aggregation", "episode_mean", why="what passes of one episode each amount to"
    )
    found.put(
        "policy_loss.entropy_coef", found.number(f"{ACTOR}entropy_coeff"), f"{ACTOR}entropy_coeff"
    )
    _kl(found)


def _rounds(found: Conversion) -> None:
    prefix = "algorithm.rounds_ctrl."
    kind, text = found.get(f"{prefix}type"), found.get(f"{prefix}rounds")
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    if kind not in ("fixed", "scaling_inter_stepwise") or not numbers:
        raise ConfigError(
            f"{found.source}: {prefix}type={kind} with {prefix}rounds={text} is not a schedule "
            "of rounds: fixed has a number, scaling_inter_stepwise a list"
        )
    found.put("rounds.type", kind, f"{prefix}type")
    if kind == "fixed":
        found.put("rounds.rounds", numbers[0], f"{prefix}rounds")
        found.leave(f"{prefix}steps_scaling_inter", "a fixed horizon has no stages")
        return
    found.put("rounds.rounds", numbers, f"{prefix}rounds")
    key = f"{prefix}steps_scaling_inter"
    found.put("rounds.steps_per_stage", found.whole(key), key)


def _kl(found: Conversion) -> None:
    in_loss = found.is_true(f"{ACTOR}use_kl_loss")
    kind = f"{ACTOR}kl_loss_type" if in_loss else "algorithm.kl_penalty"
    coef = f"{ACTOR}kl_loss_coef" if in_loss else "algorithm.kl_ctrl.kl_coef"
    found.put("kl.place", "loss" if in_loss else "reward", f"{ACTOR}use_kl_loss")
    found.put("kl.coef", found.number(coef), coef)
    estimator = theirs.KL_ESTIMATORS.get(found.get(kind))
    if estimator is None or (in_loss and estimator == "k1"):
        found.put("kl.estimator", "k3", why=f"{_one_line(found.get(kind))} is not possible here")
        found.leave(
            kind,
            "k1 in the loss has a gradient of mean zero; k3 takes its place"
            if estimator
            else "there are k1, k2 and k3; k3 takes its place",
        )
    else:
        found.put("kl.estimator", estimator, kind)
    where = "KL is in the loss" if in_loss else "KL is in the reward"
    for key in (
        ("algorithm.kl_penalty", "algorithm.kl_ctrl.kl_coef", "algorithm.kl_ctrl.type")
        if in_loss
        else (f"{ACTOR}kl_loss_type", f"{ACTOR}kl_loss_coef")
    ):
        found.leave(key, f"it has no effect: {where}")
    if not in_loss and found.get("algorithm.kl_ctrl.type") == "fixed":
        found.put("kl.place", "reward", f"{ACTOR}use_kl_loss", "algorithm.kl_ctrl.type")
    elif not in_loss:
        found.leave("algorithm.kl_ctrl.type", "the coefficient is constant here")


def _training(found: Conversion) -> None:
    batch, mini = found.whole("data.train_batch_size"), found.whole(f"{ACTOR}ppo_mini_batch_size")
    if batch < 1 or mini < 1:
        raise ConfigError(f"{found.source}: batches of {batch} and {mini} tasks are not possible")
    steps, told = _steps(found, batch)
    found.put("training.steps", steps, *_STEP_KEYS, why=told)
    found.put("training.tasks_per_step", batch, "data.train_batch_size")
    found.put(
        "training.updates_per_step",
        max(1, math.ceil(batch / mini)),
        f"{ACTOR}ppo_mini_batch_size",
        why=f"mini-batches of {mini} tasks",
    )
    found.put("training.lr", found.number(f"{ACTOR}optim.lr"), f"{ACTOR}optim.lr")
    ratio = f"{ACTOR}optim.lr_warmup_steps_ratio"
    updates = max(1, math.ceil(batch / mini))
    found.put("training.warmup_steps", round(found.number(ratio) * steps) * updates, ratio)
    found.put("training.weight_decay", 0.01, why="as there")
    found.put("training.max_grad_norm", found.number(f"{ACTOR}grad_clip"), f"{ACTOR}grad_clip")
    limit = f"{ACTOR}ppo_max_token_len_per_gpu"
    found.put("training.tokens_per_batch", found.whole(limit), limit)
    saves = f"{MODEL}enable_gradient_checkpointing"
    found.put("training.gradient_checkpointing", found.is_true(saves), saves)
    _checkpoints(found, steps)
    _gpus(found)


def _gpus(found: Conversion) -> None:
    """Spread the learner where a sequence was spread there; else only say how."""
    keys, split = ("trainer.nnodes", "trainer.n_gpus_per_node"), _SPLIT
    gpus = found.whole(keys[0]) * found.whole(keys[1])
    if found.whole(split) > 1:
        found.put("training.shards", gpus, *keys, why="as many GPUs as there")
        found.put("training.sequence_parallel", found.whole(split), split)
        return
    found.leave(split, "a sequence stays on one GPU, there and here")
    for key in keys:
        found.leave(key, _GPUS)
    if gpus > 1:
        found.advice.append(f"There, {gpus} GPUs; here, training.shards={gpus} would use as many.")


def _checkpoints(found: Conversion, steps: int) -> None:
    """Keep checkpoints before the end, which their default does not: a run that stops resumes."""
    key = "trainer.save_freq"
    every = found.whole(key)
    if 0 < every < steps or steps <= _CHECKPOINT_EVERY:
        found.put("checkpoint.every", every if 0 < every < steps else steps, key)
        return
    found.put("checkpoint.every", _CHECKPOINT_EVERY, key, why=f"{every} there: none before the end")
    found.advice.append(
        f"checkpoint.every={_CHECKPOINT_EVERY}, as in the published scripts: with "
        f"trainer.save_freq={every} a run of {steps} steps that stops early would begin anew. "
        f"checkpoint.every={steps} does as there."
    )


_STEP_KEYS = ("trainer.total_epochs", "trainer.total_training_steps")


def _steps(found: Conversion, batch: int) -> tuple[int, str]:
    """Return the number of steps, and how it was found."""
    given = found.settings.get("trainer.total_training_steps", "null")
    if given not in ("null", "None", ""):
        return found.whole("trainer.total_training_steps"), "total_training_steps"
    epochs, size = found.whole("trainer.total_epochs"), _num_tasks(found)
    per_epoch = max(1, size // batch)
    return max(1, epochs * per_epoch), f"{epochs} epochs of {per_epoch} steps ({size} tasks)"


def _num_tasks(found: Conversion) -> int:
    """Return the tasks of an epoch: of the file, or of the published one where it is not here."""
    file = Path(found.get("data.train_file") or ".")
    if file.is_file():
        try:
            return len(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError):
            pass  # it is read, and refused with the reason, when the recipe is trained
    return theirs.TRAIN_SIZES[found.get(f"{AGENTGYM}task_name")]


def _rest(found: Conversion) -> None:
    """Say of every other setting why it has no counterpart."""
    known = {note.key for note in (*found.kept, *found.left)}
    for key in found.settings:
        if key not in known:
            found.leave(key, _why_left(key))


def _why_left(key: str) -> str:
    if key in theirs.NO_EFFECT:
        return f"it had no effect there: {theirs.NO_EFFECT[key]}"
    if key.startswith(theirs.NO_EFFECT_BLOCKS):
        return "it had no effect there: nothing reads it"
    if key in theirs.NO_COUNTERPART:
        return theirs.NO_COUNTERPART[key]
    for block, told in theirs.NO_COUNTERPART_BLOCKS.items():
        if key.startswith(block):
            return told
    return "it is not a setting that is known here; look for it in docs/reference/settings.md"


def _check(found: Conversion) -> None:
    """Refuse what cannot be trained, before it is written."""
    try:
        parse_config(tomllib.loads(recipe_text(found)), source=found.source)
    except (ConfigError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"the settings do not make a valid recipe: {error}") from error


def _evaluation(source: str, settings: Mapping[str, str]) -> str:
    """Return what to run in the place of an evaluation script."""
    task, path = settings.get("agentgym.task_name", "ENV"), settings.get("data.path", "AgentEval")
    words = [
        "agentgym eval",
        settings.get("model.path", "MODEL"),
        f"--env {task} --tasks {path}/{task}_test.json",
        f"--rounds {settings.get('agentgym.max_rounds', '10')}",
        f"-k {settings.get('data.n_samples', '1')}",
        f"eval.temperature={settings.get('rollout.temperature', '1')}",
        f"rollout.max_tokens_per_round={settings.get('rollout.max_tokens', '1024')}",
    ]
    return _one_line(f"{source} is an evaluation, which needs no recipe: {' '.join(words)}")
