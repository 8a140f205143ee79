"""One run put together, from a recipe or from objects, and trained.

The command line and `agentgym_rl.train` both call `train`. Nothing here decides anything that
neither the recipe says nor an object is.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from agentgym_rl.callbacks import Callbacks
from agentgym_rl.config import (
    AgentEvolConfig,
    LoraConfig,
    OnlineConfig,
    RunConfig,
    SFTConfig,
    dump_config,
    reset_ignored,
)
from agentgym_rl.engines.base import EngineDiedError
from agentgym_rl.engines.create import check_engine, create_engine
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.envs.demos import collect_demonstrations
from agentgym_rl.errors import ConfigError, RunError
from agentgym_rl.evaluation.evaluator import Evaluator
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.forward import enable_checkpointing
from agentgym_rl.models.loading import ADAPTER, TINY, Policy, load_policy, load_pretrained
from agentgym_rl.models.lora import add_lora, load_adapter
from agentgym_rl.objects import Objects
from agentgym_rl.preflight import check_before_start
from agentgym_rl.results import Run
from agentgym_rl.rollout.episode import Participants, TokenPolicy
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.rollout.tasks import evaluation_tasks, select_tasks, spread_tasks
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.data.conversation_files import read_conversations
from agentgym_rl.training.data.conversations import Conversation, from_demonstration, texts_of
from agentgym_rl.training.make import Trainer, make_algorithm, make_trainer, rl_trainer, sft_trainer
from agentgym_rl.training.run_parts import Evaluate, Listeners, RunParts
from agentgym_rl.types import Episode, Task

logger = logging.getLogger(__name__)

_NUM_DEMOS = 256
"""How many the expert is asked for where a recipe does not say."""


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
    async with objects.source(config.env) as source:
        spec = await source.spec()
        if config.env.url and ":" not in config.env.name and config.env.name != spec.name:
            raise ConfigError(
                f"the server at {config.env.url} serves {spec.name!r}, not {config.env.name!r}: "
                f"set env.name={spec.name}, or env.url to another server"
            )
        audience = _Audience(progress or Progress(), callbacks or Callbacks())
        experiment = _Experiment(
            config, run, objects, source, spec, audience=audience, rewards=rewards
        )
        try:
            await experiment.train()
        except EngineDiedError as error:
            raise RunError(
                f"{error}. The log above says where. Resume from the newest checkpoint with: "
                f"agentgym train --run-dir {run.path} --resume (in Python resume=True)"
            ) from error


def supervised_config(config: RunConfig) -> RunConfig:
    """Return the recipe of the warm start that precedes an online run."""
    warm_start = config.warm_start
    config = reset_ignored(config, SFTConfig.ignores)
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
                }
            ),
            "checkpoint": config.checkpoint.model_copy(
                update={"every": warm_start.steps, "keep": 1}
            ),
            "lora": LoraConfig() if config.model.path == TINY else config.lora,
        }
    )


@dataclass(frozen=True, slots=True)
class _Audience:
    """Who hears of the run: a display of everything, callbacks of training and its evaluations."""

    progress: Progress
    callbacks: Callbacks

    def listeners(self) -> Listeners:
        return Listeners(self._on_episode, self._on_step, self.callbacks.stop_reason)

    def warm_start_listeners(self) -> Listeners:
        return Listeners(self.progress.on_episode, self.progress.on_step)

    def on_report(self, report: EvalReport) -> None:
        self.progress.on_report(report)
        self.callbacks.on_evaluation(report)

    def _on_episode(self, episode: Episode) -> None:
        self.progress.on_episode(episode)
        self.callbacks.on_episode(episode)

    def _on_step(self, metrics: Metrics) -> None:
        self.progress.on_step(metrics)
        self.callbacks.on_step(metrics)


class _Experiment:
    """The parts of one run while it trains."""

    def __init__(
        self,
        config: RunConfig,
        run: RunFolder,
        objects: Objects,
        source: EnvSource,
        spec: EnvSpec,
        *,
        audience: _Audience,
        rewards: EpisodeRewards,
    ) -> None:
        self._config, self._run, self._objects = config, run, objects
        self._source, self._spec, self._rewards = source, spec, rewards
        self._audience, self._progress = audience, audience.progress
        self._agent = objects.make_agent(config.agent, spec)

    async def train(self) -> None:
        """Train from the newest checkpoint to the last step."""
        config, tasks = self._config, await self._tasks(self._config.env.split)
        tested = await self._tasks(config.env.eval_split) if config.eval.tasks else []
        eval_tasks = evaluation_tasks(tested, config.eval.tasks, seed=config.seed)
        # Demonstrations show what will be tested, in its proportions.
        policy, demos = await self._policy(spread_tasks(tasks, tested or tasks, seed=config.seed))
        policy.save_tokenizer(self._run.tokenizer)
        engine = create_engine(policy, config.engine, folder=self._run.path / "engine")
        participants = Participants(
            self._source, self._agent, TokenPolicy(engine, policy.renderer), self._rewards
        )
        try:
            evaluate = self._evaluate_with(policy, participants, eval_tasks) if eval_tasks else None
            parts = RunParts(
                config, policy, self._run, participants, tasks, evaluate, self._audience.listeners()
            )
            trainer = self._trainer(parts, demos)
            done = trainer.restore()
            self._run.forget_after(done)
            engine.publish(done)
            self._audience.callbacks.on_run_start(Run(self._run.path, config))
            if evaluate is not None and not (self._run.eval / "step-000000.json").exists():
                await evaluate(0)
            self._progress.begin("train", config.training.steps, done=done)
            await trainer.train(after=done)
        finally:
            engine.close()
        self._audience.callbacks.on_run_end(Run(self._run.path, config))

    def _trainer(self, parts: RunParts, demos: Sequence[Conversation]) -> Trainer:
        algorithm = self._objects.algorithm
        if isinstance(algorithm, type):
            algorithm = make_algorithm(parts.config, algorithm)
        return rl_trainer(parts, algorithm) if algorithm else make_trainer(parts, demos)

    def _evaluate_with(
        self, policy: Policy, participants: Participants, tasks: Sequence[Task]
    ) -> Evaluate:
        """Return the function that evaluates the present weights and gives the `eval/` metrics."""
        limits = episode_limits(
            self._config,
            max_context=policy.max_context,
            max_rounds=self._config.eval_max_rounds,
        )
        evaluator = Evaluator(self._config, participants, limits, tasks, spec=self._spec)
        # Trainers that learn from their own episodes publish; the others know of no engine.
        is_published = isinstance(self._config.algorithm, OnlineConfig)

        async def evaluate(step: int) -> Metrics:
            if not is_published:
                participants.engine.publish(step)
            self._progress.begin("evaluation", len(tasks))
            report = await evaluator.run(
                step,
                reports=self._run.eval,
                name=f"step-{step:06d}",
                episodes=self._run.episodes,
                on_episode=self._progress.on_episode,
            )
            participants.engine.rest()
            self._audience.on_report(report)
            return {
                f"eval/{report.env}/success_rate": report.overall.success_rate,
                f"eval/{report.env}/reward_mean": report.overall.reward_mean,
                f"eval/{report.env}/rounds_mean": report.overall.rounds_mean,
                **{f"eval/{report.env}/env/{k}": item.mean for k, item in report.metrics.items()},
                **{
                    f"eval/{report.env}/reward/{k}": item.mean
                    for k, item in report.reward_parts.items()
                },
            }

        return evaluate

    async def _policy(self, tasks: Sequence[Task]) -> tuple[Policy, Sequence[Conversation]]:
        """Return the policy to go on with, and the demonstrations that its training needs.

        The expert is asked for the `tasks` in their order.
        """
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
            demos = first_demos = self._demonstrations(
                tasks, algorithm.num_demos, data=algorithm.data
            )
        if (config.warm_start.steps or config.model.path == TINY) and not (
            is_warm or isinstance(algorithm, SFTConfig)
        ):
            first_demos = self._demonstrations(tasks, config.warm_start.num_demos)
        if policy is None:
            texts = partial(texts_of, first_demos)
            policy = load_policy(config.model, seed=config.seed, texts=texts)
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

        From here on the agent and the prompts are for this model's chat template.
        """
        config = self._config.model
        if saved is not None and saved.exists():
            policy = load_pretrained(saved, dtype=config.dtype, device=config.device)
        elif self._objects.model is not None:
            policy = self._objects.model
        elif config.path != TINY:
            policy = load_policy(config, seed=self._config.seed, texts=tuple)
        else:
            return None
        policy = policy.with_tools(self._agent.tools)
        self._agent = self._agent.for_model(policy.renderer)
        return policy

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
        config = supervised_config(self._config)
        shutil.rmtree(warm_start.path, ignore_errors=True)
        warm_start.create(dump_config(config))
        self._progress.begin("warm start", config.training.steps)
        parts = RunParts(
            config, policy, warm_start, listeners=self._audience.warm_start_listeners()
        )
        await sft_trainer(parts, demos).train()

    def _demonstrations(
        self, tasks: Sequence[Task], num_demos: int, *, data: str = ""
    ) -> list[Conversation]:
        if data:
            return _read_demonstrations(Path(data), num_demos)
        config = self._config
        num_demos = num_demos or _NUM_DEMOS
        if config.env.url:
            raise ConfigError(
                "demonstrations come from the environment's expert, which a server does not offer, "
                "and a warm start or a tiny model needs them: set warm_start.steps=0 and "
                "model.path to a model, leave env.url empty, or learn first from a file of "
                "`agentgym demos` with algorithm.type=sft algorithm.data=FILE"
            )
        # A limit in training alone must not decide what a warm start sees.
        max_rounds = max(config.rounds.longest, config.eval_max_rounds)
        demos = collect_demonstrations(
            self._objects.env or config.env.name,
            tasks,
            num_demos=num_demos,
            max_rounds=max_rounds,
            options=config.env.options,
        )
        self._progress.begin("demonstrations", num_demos)
        conversations, num_found, num_left_out = list[Conversation](), 0, 0
        with closing(demos):
            for demo in demos:
                try:
                    conversations += from_demonstration(demo, self._agent)
                except ValueError as error:
                    logger.warning("%s: the demonstration is left out: %s", demo.task.id, error)
                    num_left_out += 1
                    continue
                num_found += 1
                self._progress.on_step({"step": num_found})
        if num_found < num_demos:
            logger.warning(
                "the expert gave %d demonstrations; %d were asked for", num_found, num_demos
            )
        if not conversations and num_left_out:
            raise ConfigError(
                f"none of the {num_left_out} demonstrations of {self._spec.name} is one for "
                f"{self._agent.name}: the warnings above say why; set warm_start.steps=0 and "
                "model.path to a model, or mend the agent"
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
