"""A run from its settings to its model: policy, warm start, trainer, evaluations."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote

from agentgym_rl.callbacks import Callbacks
from agentgym_rl.callbacks.from_recipe import recipe_callbacks
from agentgym_rl.callbacks.model_card import write_card
from agentgym_rl.config import (
    TINY,
    AgentEvolConfig,
    CallbacksConfig,
    LoraConfig,
    ModelConfig,
    RunConfig,
    SFTConfig,
    dump_config,
    reset_ignored,
)
from agentgym_rl.engines.base import EngineDiedError
from agentgym_rl.engines.create import check_engine
from agentgym_rl.errors import LearnerDiedError, RunFailedError
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.experiment.demonstrations import demonstrations, read_demonstrations
from agentgym_rl.experiment.environments import OpenedEnv, opened_envs, with_shared_tools
from agentgym_rl.experiment.evaluations import EvaluatedEnv, RunEvaluation
from agentgym_rl.experiment.places import Places, places_of
from agentgym_rl.experiment.recovery import Recovery
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.forward import enable_checkpointing
from agentgym_rl.models.loading import ADAPTER, Policy, load_policy, load_pretrained
from agentgym_rl.models.lora import add_lora, load_adapter
from agentgym_rl.objects import Objects
from agentgym_rl.preflight import check_before_start
from agentgym_rl.results import Run
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.tracking.trackers import Trackers
from agentgym_rl.training.data.conversations import Conversation, texts_of
from agentgym_rl.training.make import Trainer, make_algorithm, make_trainer, rl_trainer, sft_trainer
from agentgym_rl.training.run_parts import (
    CountsMetrics,
    Evaluate,
    Listeners,
    RunEnv,
    RunParts,
)
from agentgym_rl.training.setbacks import Setbacks
from agentgym_rl.types import Episode


async def train(
    config: RunConfig,
    run: RunFolder,
    *,
    progress: Progress | None = None,
    objects: Objects | None = None,
    callbacks: Callbacks | None = None,
) -> None:
    """Train from where the run's folder stands; a new folder starts at the beginning.

    The folder holds the settings already (`api.plan.opened`). `objects` stand for what the settings
    name.
    """
    objects = objects or Objects()
    rewards = objects.rewards(config)
    check_before_start(config, run)
    await check_engine(config.engine)
    async with AsyncExitStack() as stack:
        places = stack.enter_context(places_of(config, run.path))
        envs = await stack.enter_async_context(opened_envs(config, objects, places.start_server))
        heard = Callbacks([*recipe_callbacks(config), *(callbacks or ())])
        trackers = Trackers(config.tracking, run.path)
        audience = _Audience(progress or Progress(), heard, trackers)
        experiment = _Experiment(
            config, run, objects, envs, places, audience=audience, rewards=rewards
        )
        try:
            with trackers:
                await experiment.train()
        except (EngineDiedError, LearnerDiedError) as error:
            raise RunFailedError(
                f"{error}. The log above says where. Resume from the newest checkpoint with: "
                f"agentgym train --run-dir {quote(str(run.path))} --resume (in Python resume=True)"
            ) from error


def supervised_config(config: RunConfig) -> RunConfig:
    """Return the recipe of the warm start that precedes an online run."""
    warm_start = config.warm_start
    config = reset_ignored(config, SFTConfig.ignores)
    return config.model_copy(
        update={
            "algorithm": SFTConfig(
                num_demos=warm_start.num_demos,
                data=warm_start.data,
                batch_size=warm_start.batch_size,
            ),
            "training": config.training.model_copy(
                update={
                    "steps": warm_start.steps,
                    "lr": warm_start.lr,
                    "warmup_steps": warm_start.steps // 10,
                    "lr_schedule": "constant",
                }
            ),
            "checkpoint": config.checkpoint.model_copy(
                update={"every": warm_start.steps, "keep": 1}
            ),
            "lora": LoraConfig() if config.model.path == TINY else config.lora,
            "tracking": (),
            "callbacks": CallbacksConfig(),
        }
    )


def model_here(config: RunConfig) -> ModelConfig:
    """Return the model of the run's own process.

    Where others learn and generate, it is only for saving, and stays in the CPU's memory; AgentEvol
    also computes with it.
    """
    cluster = config.cluster.type
    is_learner = config.training.shards == 1 and cluster != "ray"
    if cluster == "none" or is_learner or isinstance(config.algorithm, AgentEvolConfig):
        return config.model
    return config.model.model_copy(update={"device": "cpu"})


@dataclass(frozen=True, slots=True)
class _Audience:
    """Who hears of the run: a display of everything, callbacks of training and its evaluations."""

    progress: Progress
    callbacks: Callbacks
    trackers: Trackers

    def listeners(self) -> Listeners:
        return Listeners(
            self._on_episode, self._on_step, self._on_checkpoint, self.callbacks.stop_reason
        )

    def warm_start_listeners(self) -> Listeners:
        return Listeners(self.progress.on_episode, self.progress.on_step)

    def on_run_start(self, run: Run, *, done: int) -> None:
        self.trackers.start(done)
        self.callbacks.on_run_start(run)

    def on_report(self, report: EvalReport) -> None:
        self.progress.on_report(report)
        self.callbacks.on_evaluation(report)

    def _on_episode(self, episode: Episode) -> None:
        self.progress.on_episode(episode)
        self.callbacks.on_episode(episode)

    def _on_step(self, metrics: Metrics) -> None:
        self.progress.on_step(metrics)
        self.trackers.step(int(metrics["step"]))
        self.callbacks.on_step(metrics)

    def _on_checkpoint(self, path: Path, step: int) -> None:
        self.trackers.saved(step)
        self.callbacks.on_checkpoint(path, step)


class _Experiment:
    """The parts of one run while it trains."""

    def __init__(
        self,
        config: RunConfig,
        run: RunFolder,
        objects: Objects,
        envs: Sequence[OpenedEnv],
        places: Places,
        *,
        audience: _Audience,
        rewards: EpisodeRewards,
    ) -> None:
        self._config, self._run, self._objects = config, run, objects
        self._envs, self._places, self._rewards = envs, places, rewards
        self._audience, self._progress = audience, audience.progress
        self._setbacks = Setbacks()
        self._recovery = Recovery(config, self._setbacks)

    async def train(self) -> None:
        """Train from the newest checkpoint to the last step, whatever the learner loses."""
        config = self._config
        policy, demos = await self._policy()
        policy.save_tokenizer(self._run.tokenizer)
        async with AsyncExitStack() as stack:
            engine = self._places.make_engine(policy, config, self._run.path / "engine")
            stack.callback(engine.close)
            envs = [env.run_env(policy, engine, self._rewards) for env in self._envs]
            envs, workers = await self._with_workers(envs, stack)
            evaluate, heard = self._evaluation(policy, envs), self._audience.listeners()
            parts = RunParts(
                config,
                policy,
                self._run,
                envs,
                evaluate,
                heard,
                self._setbacks,
                make_ranks=self._places.make_ranks,
                workers=workers,
            )
            await self._recovery.outlive(
                partial(self._attempt, parts, demos), policy, newest=self._run.latest_checkpoint
            )
        write_card(Run(self._run.path, config))
        self._audience.callbacks.on_run_end(Run(self._run.path, config))

    async def _with_workers(
        self, envs: list[RunEnv], stack: AsyncExitStack
    ) -> tuple[list[RunEnv], CountsMetrics | None]:
        """Return the environments with episodes that rollout workers play, and these, if any."""
        if not self._config.cluster.rollout_workers:
            return envs, None
        # Start-up time: one process needs none of it.
        from agentgym_rl.experiment.workers import with_workers, workers_of

        workers = await workers_of(
            self._config,
            self._envs,
            envs,
            folder=self._run.path / "rollout",
            start=self._places.start_worker,
        )
        stack.callback(workers.close)
        return with_workers(envs, workers), workers

    async def _attempt(self, parts: RunParts, demos: Sequence[Conversation]) -> None:
        """Train from the newest checkpoint to the last step with one learner.

        The policy has the weights of the checkpoint.
        """
        config, run = self._config, self._run
        trainer = self._trainer(parts, demos)
        with contextlib.closing(trainer):
            done = trainer.restore()
            self._setbacks.forget(run.forget_after(done))
            parts.engine.publish(done)
            self._setbacks.stands_at(done)
            self._audience.on_run_start(Run(run.path, config), done=done)
            if parts.evaluate is not None and not (run.eval / "step-000000.json").exists():
                await parts.evaluate(0)
            self._audience.trackers.saved(done)
            self._progress.begin("train", config.training.steps, done=done)
            await trainer.train(after=done)

    def _trainer(self, parts: RunParts, demos: Sequence[Conversation]) -> Trainer:
        algorithm = self._objects.algorithm
        if isinstance(algorithm, type):
            algorithm = make_algorithm(parts.config, algorithm)
        return rl_trainer(parts, algorithm) if algorithm else make_trainer(parts, demos)

    def _evaluation(self, policy: Policy, envs: Sequence[RunEnv]) -> Evaluate | None:
        """Return what evaluates the present weights; None where the recipe asks for nothing."""
        if not self._config.eval.tasks:
            return None
        evaluated = [
            EvaluatedEnv(env, opened.spec, opened.eval_tasks)
            for env, opened in zip(envs, self._envs, strict=True)
        ]
        return RunEvaluation(
            evaluated,
            self._run,
            max_context=policy.max_context,
            progress=self._progress,
            on_report=self._audience.on_report,
        )

    async def _policy(self) -> tuple[Policy, Sequence[Conversation]]:
        """Return the policy to go on with, and the demonstrations that its training needs."""
        config, algorithm = self._config, self._config.algorithm
        checkpoint, warm_start = self._run.latest_checkpoint(), RunFolder(self._run.warm_start)
        # A checkpoint with LoRA is an adapter to the weights that the run began with: the recipe's,
        # or those of the warm start of a model made here, which had nothing to adapt before.
        is_adapted = config.lora.rank > 0 and config.model.path != TINY
        is_whole = checkpoint is not None and not config.lora.rank
        saved = checkpoint / "model" if checkpoint is not None and is_whole else warm_start.model
        is_warm = saved.exists() or (is_adapted and checkpoint is not None)
        policy = self._existing_policy(None if is_adapted else saved)
        demos, first_demos = list[Conversation](), list[Conversation]()
        if isinstance(algorithm, SFTConfig) or (
            isinstance(algorithm, AgentEvolConfig) and (algorithm.num_demos or algorithm.data)
        ):
            demos = first_demos = self._demonstrations(algorithm.num_demos, data=algorithm.data)
        if (config.warm_start.steps or config.model.path == TINY) and not (
            is_warm or isinstance(algorithm, SFTConfig)
        ):
            first_demos = self._demonstrations(
                config.warm_start.num_demos, data=config.warm_start.data
            )
        if policy is None:
            texts = partial(texts_of, first_demos)
            policy = load_policy(model_here(config), seed=config.seed, texts=texts)
        if config.training.gradient_checkpointing:
            enable_checkpointing(policy.model)
        if config.training.compile:
            enable_compilation(policy.model)
        latest = checkpoint / "model" if checkpoint is not None else None
        if is_adapted:
            self._adapt(policy, latest or (saved if is_warm else None))
        if config.warm_start.steps and not is_warm:
            await self._warm_up(warm_start, policy, first_demos)
        if config.lora.rank and not is_adapted:
            self._adapt(policy, latest)
        return policy, demos

    def _existing_policy(self, saved: Path | None) -> Policy | None:
        """Return the policy of `saved` or of the recipe; None if demonstrations are to make it.

        From here on agents and prompts are for this model's chat template.
        """
        config = model_here(self._config)
        if saved is not None and saved.exists():
            policy = load_pretrained(saved, dtype=config.dtype, device=config.device)
        elif self._objects.model is not None:
            policy = self._objects.model
        elif config.path != TINY:
            policy = load_policy(config, seed=self._config.seed, texts=tuple)
        else:
            return None
        shared = with_shared_tools(policy, self._envs)
        self._envs = [env.for_policy(policy) for env in self._envs]
        return shared

    def _adapt(self, policy: Policy, saved: Path | None) -> None:
        """Put a saved model's adapter into the policy, or a fresh one that changes nothing."""
        lora, seed = self._config.lora, self._config.seed
        if saved is not None:
            load_adapter(policy.model, saved / ADAPTER)
        else:
            add_lora(policy.model, rank=lora.rank, alpha=lora.alpha, seed=seed)

    async def _warm_up(
        self, warm_start: RunFolder, policy: Policy, demos: Sequence[Conversation]
    ) -> None:
        """Learn from demonstrations, in a run folder of its own; an interrupted one begins anew."""
        config, listeners = (
            supervised_config(self._config),
            self._audience.warm_start_listeners(),
        )
        parts = RunParts(
            config,
            policy,
            warm_start,
            listeners=listeners,
            setbacks=self._setbacks,
            make_ranks=self._places.make_ranks,
        )

        async def attempt() -> None:
            self._setbacks.forget(warm_start.read_metrics())
            shutil.rmtree(warm_start.path, ignore_errors=True)
            warm_start.create(dump_config(config))
            self._progress.begin("warm start", config.training.steps)
            with contextlib.closing(sft_trainer(parts, demos)) as trainer:
                await trainer.train()

        await self._recovery.outlive(attempt, policy)

    def _demonstrations(self, num_demos: int, *, data: str = "") -> list[Conversation]:
        if data:
            return read_demonstrations(Path(data), num_demos)
        return demonstrations(self._envs, num_demos, progress=self._progress)
