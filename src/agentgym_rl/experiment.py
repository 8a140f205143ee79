"""One run put together: environment, agent, model, engine, trainer and evaluator from a recipe.

The command line calls `train` and `evaluate_model`; so can a program. Nothing here decides
anything that the recipe does not say.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agentgym_rl.agents.agent import make_agent
from agentgym_rl.config import (
    AgentEvolConfig,
    CreditConfig,
    DPOConfig,
    EnvConfig,
    KindWeightsConfig,
    KLConfig,
    LoraConfig,
    PolicyLossConfig,
    RunConfig,
    SFTConfig,
    dump_config,
)
from agentgym_rl.engines.create import create_engine
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client.agentgym import AgentGymEnvSource
from agentgym_rl.envs.client.base import EnvSource
from agentgym_rl.envs.client.http import HttpEnvSource
from agentgym_rl.envs.client.local import LocalEnvSource
from agentgym_rl.envs.client.openenv import OpenEnvOptions, OpenEnvSource
from agentgym_rl.envs.client.workers import WorkersEnvSource
from agentgym_rl.envs.demos import collect_demonstrations
from agentgym_rl.errors import ConfigError, did_you_mean
from agentgym_rl.evaluation.evaluator import Evaluator, check_attempts
from agentgym_rl.evaluation.horizons import save_horizons
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.device import choose_device
from agentgym_rl.models.forward import enable_checkpointing
from agentgym_rl.models.loading import ADAPTER, TINY, Policy, load_policy, load_pretrained
from agentgym_rl.models.lora import add_lora, load_adapter
from agentgym_rl.rollout.episode import Actors
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.tasks import EpochSampler, evaluation_tasks, select_tasks
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.agentevol import AgentEvolTrainer
from agentgym_rl.training.conversation_files import read_conversations
from agentgym_rl.training.conversations import Conversation, from_demonstration, texts_of
from agentgym_rl.training.dpo import DPOTrainer
from agentgym_rl.training.preferences import load_pairs
from agentgym_rl.training.sft import SFTTrainer
from agentgym_rl.training.trainer import Evaluate, Listeners, OnlineTrainer, RLTrainer
from agentgym_rl.types import Episode, Task

logger = logging.getLogger(__name__)

_NUM_DEMOS = 256
"""How many the expert is asked for where a recipe does not say."""


class Progress:
    """What a run tells of itself while it goes on; override what is wanted."""

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        """A phase of `total` steps (or episodes) begins, `done` of them already behind."""

    def on_episode(self, episode: Episode) -> None:
        """An episode ended."""

    def on_step(self, metrics: Metrics) -> None:
        """A training step ended."""

    def on_report(self, report: EvalReport) -> None:
        """An evaluation ended."""


async def train(config: RunConfig, run: RunFolder, *, progress: Progress | None = None) -> None:
    """Run a recipe from where its folder stands; a new folder starts at the beginning.

    The folder holds the recipe already (`RunFolder.create`).
    """
    async with make_source(config.env) as source:
        spec = await source.spec()
        if config.env.url and ":" not in config.env.name and config.env.name != spec.name:
            raise ConfigError(
                f"the server at {config.env.url} serves {spec.name!r}, not {config.env.name!r}: "
                f"set env.name={spec.name}, or env.url to another server"
            )
        experiment = _Experiment(config, run, source, spec, progress or Progress())
        await experiment.train()


async def evaluate_model(
    path: str,
    config: RunConfig,
    *,
    out: Path,
    attempts: int = 1,
    horizons: Sequence[int] = (),
    progress: Progress | None = None,
) -> list[EvalReport]:
    """Evaluate a saved model on tasks of `env.eval_split`; keep reports and episodes in `out`.

    There is one report for each of `horizons`, limits on rounds; without any, one with the
    recipe's or the environment's own. Several are evaluated one after another, with the same
    sampling noise, and have a folder each in `out` beside their table.
    """
    check_attempts(attempts, temperature=config.eval.temperature)
    progress = progress or Progress()
    policy = load_pretrained(path, dtype=config.model.dtype, device=config.model.device)
    async with make_source(config.env) as source:
        spec = await source.spec()
        tasks = select_tasks(config.env, spec, await source.tasks(config.env.eval_split))
        tasks = evaluation_tasks(tasks, config.eval.tasks, seed=config.seed)
        horizons = horizons or (config.eval.max_rounds or spec.max_rounds,)
        engine = create_engine(policy, config.engine, folder=out / "engine")
        progress.begin("evaluation", len(tasks) * attempts * len(horizons))
        reports: list[EvalReport] = []
        try:
            actors = Actors(source, engine, make_agent(config.agent, spec), policy.renderer)
            for max_rounds in horizons:
                limits = episode_limits(config, policy, max_rounds=max_rounds)
                evaluator = Evaluator(config, actors, limits, tasks, spec=spec, attempts=attempts)
                folder = out if len(horizons) == 1 else out / f"rounds-{max_rounds}"
                report = await evaluator.run(
                    0,
                    reports=folder,
                    name="report",
                    episodes=folder,
                    on_episode=progress.on_episode,
                )
                reports.append(report)
        finally:
            engine.close()
    if len(reports) > 1:
        save_horizons(out, "report", reports)
    return reports


def make_source(config: EnvConfig) -> EnvSource:
    """Return where the recipe's environments come from."""
    if not config.url:
        if config.dialect != "agentgym_rl":
            raise ConfigError(f"env.dialect={config.dialect} is of a server: set env.url as well")
        if config.workers:
            return WorkersEnvSource(
                config.name,
                num_workers=config.workers,
                options=config.options,
                timeout_s=config.timeout_s,
            )
        return LocalEnvSource(config.name, options=config.options, timeout_s=config.timeout_s)
    if config.workers:
        raise ConfigError(
            f"env.workers={config.workers} are of this machine, and env.url={config.url} has its "
            "own: remove one of the two"
        )
    token = _read_token(config.token_file) if config.token_file else None
    if config.dialect == "openenv":
        return OpenEnvSource(
            config.url,
            env=config.name,
            token=token,
            timeout_s=config.timeout_s,
            options=_openenv_options(config.options),
        )
    if config.options:
        raise ConfigError("env.options are set on the server when env.url is given; remove them")
    if config.dialect == "agentgym":
        return AgentGymEnvSource(
            config.url, env=config.name, token=token, timeout_s=config.timeout_s
        )
    return HttpEnvSource(config.url, token=token, timeout_s=config.timeout_s)


def _read_token(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"env.token_file: {error}") from error


def _openenv_options(options: Mapping[str, object]) -> OpenEnvOptions:
    known = [field.name for field in fields(OpenEnvOptions)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(
                f"env.options has no {name!r}{hint} for an OpenEnv server; it has "
                f"{', '.join(known)}"
            )
    try:
        return TypeAdapter(OpenEnvOptions).validate_python(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"env.options.{first['loc'][0]}: {first['msg']}") from None


def supervised_config(config: RunConfig) -> RunConfig:
    """Return the recipe of the warm start that precedes an online run."""
    warm_start = config.warm_start
    return config.model_copy(
        update={
            "algorithm": SFTConfig(
                num_demos=warm_start.num_demos, batch_size=warm_start.batch_size
            ),
            "training": config.training.model_copy(
                update={
                    "steps": warm_start.steps,
                    "lr": warm_start.lr,
                    "warmup_steps": warm_start.steps // 10,
                    "lr_schedule": "constant",
                    "min_lr_ratio": 0.0,
                    "updates_per_step": 1,
                    "epochs_per_step": 1,
                }
            ),
            "rollout": config.rollout.model_copy(update={"max_refills": 0, "max_staleness": 0}),
            "agent": config.agent.model_copy(update={"train": KindWeightsConfig()}),
            "credit": CreditConfig(),
            "policy_loss": PolicyLossConfig(),
            "kl": KLConfig(),
            "checkpoint": config.checkpoint.model_copy(
                update={"every": warm_start.steps, "keep": 1}
            ),
            "warm_start": type(warm_start)(),
            "lora": LoraConfig(),
        }
    )


class _Experiment:
    """The parts of one run while it goes on."""

    def __init__(
        self,
        config: RunConfig,
        run: RunFolder,
        source: EnvSource,
        spec: EnvSpec,
        progress: Progress,
    ) -> None:
        self._config, self._run, self._source = config, run, source
        self._spec, self._progress = spec, progress
        self._agent = make_agent(config.agent, spec)
        self._listeners = Listeners(progress.on_episode, progress.on_step)

    async def train(self) -> None:
        """Go on from the newest checkpoint to the last step."""
        config, tasks = self._config, await self._tasks(self._config.env.split)
        choose_device(config.model.device)  # a device that is missing is better found out now
        eval_tasks = await self._tasks(config.env.eval_split) if config.eval.tasks else []
        eval_tasks = evaluation_tasks(eval_tasks, config.eval.tasks, seed=config.seed)
        policy, demos = await self._policy(tasks)
        policy.save_tokenizer(self._run.tokenizer)
        engine = create_engine(policy, config.engine, folder=self._run.path / "engine")
        actors = Actors(self._source, engine, self._agent, policy.renderer)
        try:
            evaluate = self._evaluate_with(policy, actors, eval_tasks) if eval_tasks else None
            trainer = self._trainer(policy, actors, tasks, demos, evaluate)
            done = trainer.restore()
            self._run.forget_after(done)
            engine.publish(done)
            if evaluate is not None and not (self._run.eval / "step-000000.json").exists():
                await evaluate(0)
            self._progress.begin("train", config.training.steps, done=done)
            await trainer.train(after=done)
        finally:
            engine.close()

    def _trainer(
        self,
        policy: Policy,
        actors: Actors,
        tasks: Sequence[Task],
        demos: Sequence[Conversation],
        evaluate: Evaluate | None,
    ) -> OnlineTrainer | SFTTrainer | DPOTrainer:
        config, run, listeners = self._config, self._run, self._listeners
        if isinstance(config.algorithm, AgentEvolConfig):
            return AgentEvolTrainer(
                config,
                policy,
                run,
                actors=actors,
                tasks=tasks,
                demos=demos,
                evaluate=evaluate,
                listeners=listeners,
            )
        if isinstance(config.algorithm, DPOConfig):
            pairs = load_pairs(config.algorithm, policy, max_tokens=config.rollout.max_tokens)
            return DPOTrainer(config, policy, run, pairs, evaluate=evaluate, listeners=listeners)
        if isinstance(config.algorithm, SFTConfig):
            return SFTTrainer(config, policy, run, demos, evaluate=evaluate, listeners=listeners)
        return RLTrainer(
            config, policy, run, actors=actors, tasks=tasks, evaluate=evaluate, listeners=listeners
        )

    def _evaluate_with(self, policy: Policy, actors: Actors, tasks: Sequence[Task]) -> Evaluate:
        """Return the function that evaluates the present weights and gives the `eval/` metrics."""
        limits = episode_limits(self._config, policy, max_rounds=self._config.eval_max_rounds)
        evaluator = Evaluator(self._config, actors, limits, tasks, spec=self._spec)

        async def evaluate(step: int) -> Metrics:
            actors.engine.publish(step)
            self._progress.begin("evaluation", len(tasks))
            report = await evaluator.run(
                step,
                reports=self._run.eval,
                name=f"step-{step:06d}",
                episodes=self._run.episodes,
                on_episode=self._progress.on_episode,
            )
            actors.engine.rest()
            self._progress.on_report(report)
            return {
                f"eval/{report.env}/success_rate": report.overall.success_rate,
                f"eval/{report.env}/reward_mean": report.overall.reward_mean,
                f"eval/{report.env}/rounds_mean": report.overall.rounds_mean,
            }

        return evaluate

    async def _policy(self, tasks: Sequence[Task]) -> tuple[Policy, Sequence[Conversation]]:
        """Return the policy to go on with, and the demonstrations that its training needs."""
        config, algorithm = self._config, self._config.algorithm
        checkpoint, warm_start = self._run.latest_checkpoint(), RunFolder(self._run.warm_start)
        # A checkpoint with LoRA is an adapter to the weights that the run began with.
        is_whole = checkpoint is not None and not config.lora.rank
        saved = checkpoint / "model" if checkpoint is not None and is_whole else warm_start.model
        demos, first_demos = list[Conversation](), list[Conversation]()
        if isinstance(algorithm, SFTConfig) or (
            isinstance(algorithm, AgentEvolConfig) and (algorithm.num_demos or algorithm.data)
        ):
            demos = first_demos = self._demonstrations(
                tasks, algorithm.num_demos, data=algorithm.data
            )
        if (config.warm_start.steps or config.model.path == TINY) and not (
            saved.exists() or isinstance(algorithm, SFTConfig)
        ):
            first_demos = self._demonstrations(tasks, config.warm_start.num_demos)
        if saved.exists():
            policy = load_pretrained(saved, dtype=config.model.dtype, device=config.model.device)
        else:
            texts = partial(texts_of, first_demos)
            policy = load_policy(config.model, seed=config.seed, texts=texts)
        if config.training.gradient_checkpointing:
            enable_checkpointing(policy.model)
        if config.training.compile:
            enable_compilation(policy.model)
        if config.warm_start.steps and not saved.exists():
            await self._warm_up(warm_start, policy, first_demos)
        if config.lora.rank:
            self._adapt(policy, checkpoint)
        return policy, demos

    def _adapt(self, policy: Policy, checkpoint: Path | None) -> None:
        """Put the checkpoint's adapter into the policy, or a fresh one that changes nothing."""
        lora, seed = self._config.lora, self._config.seed
        if checkpoint is not None:
            load_adapter(policy.model, checkpoint / "model" / ADAPTER)
        else:
            add_lora(
                policy.model, rank=lora.rank, alpha=lora.alpha, targets=lora.targets, seed=seed
            )

    async def _warm_up(
        self, warm_start: RunFolder, policy: Policy, demos: Sequence[Conversation]
    ) -> None:
        """Learn from demonstrations, in a run folder of its own; an interrupted one begins anew."""
        config = supervised_config(self._config)
        shutil.rmtree(warm_start.path, ignore_errors=True)
        warm_start.create(dump_config(config))
        self._progress.begin("warm start", config.training.steps)
        await SFTTrainer(config, policy, warm_start, demos, listeners=self._listeners).train()

    def _demonstrations(
        self, tasks: Sequence[Task], num_demos: int, *, data: str = ""
    ) -> list[Conversation]:
        if data:
            return _read_demonstrations(Path(data), num_demos)
        config = self._config
        num_demos = num_demos or _NUM_DEMOS
        if config.env.url:
            raise ConfigError(
                "demonstrations come from the environment's expert, which a server does not offer: "
                "set warm_start.steps=0 (and model.path), leave env.url empty, or learn first from "
                "a file of `agentgym demos` with algorithm.type=sft algorithm.data=FILE"
            )
        # A limit in training alone must not decide what a warm start sees.
        max_rounds = max(config.longest_horizon, config.eval_max_rounds)
        demos = collect_demonstrations(
            config.env.name,
            EpochSampler(tasks, seed=config.seed).take(1, len(tasks)),
            num_demos=num_demos,
            max_rounds=max_rounds,
            options=config.env.options,
        )
        self._progress.begin("demonstrations", num_demos)
        conversations, num_found = list[Conversation](), 0
        for demo in demos:
            try:
                conversations += from_demonstration(demo, self._agent)
            except ValueError as error:
                logger.warning("%s: the demonstration is left out: %s", demo.task.id, error)
                continue
            num_found += 1
            self._progress.on_step({"step": num_found})
        if num_found < num_demos:
            logger.warning(
                "the expert gave %d demonstrations; %d were asked for", num_found, num_demos
            )
        if not conversations:
            raise ConfigError(
                f"{self._spec.name} has no expert that solves a task within "
                f"{max_rounds} rounds, and a warm start or a tiny model needs one: set "
                "warm_start.steps=0 and model.path to a model, or with algorithm.type=sft "
                "algorithm.data to a file of conversations"
            )
        return conversations

    async def _tasks(self, split: str) -> list[Task]:
        return select_tasks(self._config.env, self._spec, await self._source.tasks(split))


def _read_demonstrations(path: Path, num_demos: int) -> list[Conversation]:
    found = list(read_conversations(path))
    if not found:
        raise ConfigError(f"{path} has no conversations")
    if 0 < num_demos < len(found):
        logger.warning("%s: %d of %d conversations are used", path, num_demos, len(found))
        return found[:num_demos]
    return found
