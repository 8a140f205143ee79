"""One run put together: environment, agent, model, engine, trainer and evaluator from a recipe.

The command line calls `train`; so can a program. Nothing here decides anything that the recipe
does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import EnvConfig, RunConfig, SFTConfig, dump_config
from agentgym_rl.engines.native import NativeEngine
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client.base import EnvSource
from agentgym_rl.envs.client.http import HttpEnvSource
from agentgym_rl.envs.client.local import LocalEnvSource
from agentgym_rl.envs.demos import collect_demonstrations
from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.evaluator import evaluate
from agentgym_rl.evaluation.report import EvalReport, load_report
from agentgym_rl.models.loading import TINY, Policy, load_policy, load_pretrained
from agentgym_rl.rollout.episode import Actors
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.tasks import EpochSampler, evaluation_tasks, select_tasks
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import Metrics, RunFolder, step_of
from agentgym_rl.training.conversations import (
    Conversation,
    from_demonstration,
    read_conversations,
    texts_of,
)
from agentgym_rl.training.sft import SFTTrainer
from agentgym_rl.training.trainer import Listeners, RLTrainer
from agentgym_rl.types import Episode, Task


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
        experiment = _Experiment(config, run, source, await source.spec(), progress or Progress())
        if isinstance(config.algorithm, SFTConfig):
            await experiment.train_supervised(config.algorithm)
        else:
            await experiment.train_online()


async def evaluate_model(
    path: str,
    config: RunConfig,
    *,
    out: Path,
    on_start: Callable[[int], None],
    on_episode: Callable[[Episode], None],
) -> EvalReport:
    """Evaluate a saved model on tasks of `env.eval_split`; keep report and episodes."""
    policy = load_pretrained(path)
    engine = NativeEngine(policy, config.engine)
    try:
        async with make_source(config.env) as source:
            spec = await source.spec()
            all_tasks = select_tasks(config.env, spec, await source.tasks(config.env.eval_split))
            tasks = evaluation_tasks(all_tasks, config.eval.tasks, seed=config.seed)
            on_start(len(tasks))
            report, groups = await evaluate(
                tasks,
                Actors(source, engine, Agent(config.agent, spec), policy.renderer),
                episode_limits(
                    config, policy, max_rounds=config.eval.max_rounds or spec.max_rounds
                ),
                seed=config.seed,
                step=0,
                temperature=config.eval.temperature,
                max_concurrency=config.rollout.max_concurrency,
                on_episode=on_episode,
            )
    finally:
        engine.close()
    write_episodes(out, [group.episodes for group in groups], phase="eval", step=0)
    report.save(out, "report")
    return report


def make_source(config: EnvConfig) -> EnvSource:
    """Return where the recipe's environments come from."""
    if not config.url:
        return LocalEnvSource(config.name, options=config.options, timeout_s=config.timeout_s)
    if config.options:
        raise ConfigError(
            "env.options are set on the server when env.url is given; remove them here"
        )
    token = (
        Path(config.token_file).read_text(encoding="utf-8").strip() if config.token_file else None
    )
    return HttpEnvSource(config.url, token=token, timeout_s=config.timeout_s)


def read_reports(run: RunFolder) -> list[EvalReport]:
    """Return the evaluations of a run in the order of their steps."""
    files = sorted(run.eval.glob("step-*.json"), key=lambda file: step_of(file.stem))
    return [load_report(file) for file in files]


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
        self._config, self._run, self._source, self._spec, self._progress = (
            config,
            run,
            source,
            spec,
            progress,
        )
        self._agent = Agent(config.agent, spec)
        self._demos: list[Conversation] | None = None

    async def train_online(self) -> None:
        config, tasks = self._config, await self._tasks(self._config.env.split)
        policy = self._resumed_policy() or await self._first_policy(tasks)
        engine = NativeEngine(policy, config.engine)
        actors = Actors(self._source, engine, self._agent, policy.renderer)
        evaluator = _Evaluator(
            config, self._run, policy, actors, await self._eval_tasks(), self._progress
        )
        try:
            trainer = RLTrainer(
                config,
                policy,
                self._run,
                actors=actors,
                tasks=tasks,
                evaluate=evaluator.run if evaluator.tasks else None,
                listeners=Listeners(self._progress.on_episode, self._progress.on_step),
            )
            done = trainer.restore()
            self._run.forget_after(done)
            engine.publish(done)
            if evaluator.tasks and not evaluator.has_report(0):
                await evaluator.run(0)
            self._progress.begin("train", config.training.steps, done=done)
            await trainer.train(after=done)
        finally:
            engine.close()

    async def train_supervised(self, algorithm: SFTConfig) -> None:
        config, tasks = self._config, await self._tasks(self._config.env.split)
        demos = self._conversations(tasks, algorithm.num_demos, data=algorithm.data)
        policy = self._resumed_policy() or load_policy(
            config.model, seed=config.seed, texts=lambda: texts_of(demos)
        )
        engine = NativeEngine(policy, config.engine)
        actors = Actors(self._source, engine, self._agent, policy.renderer)
        evaluator = _Evaluator(
            config, self._run, policy, actors, await self._eval_tasks(), self._progress
        )
        try:
            trainer = SFTTrainer(config, policy, self._run, demos, batch_size=algorithm.batch_size)
            done = trainer.restore()
            self._run.forget_after(done)
            if evaluator.tasks and not evaluator.has_report(0):
                await evaluator.run(0)
            self._progress.begin("train", config.training.steps, done=done)
            trainer.train(after=done, on_step=self._progress.on_step)
            engine.publish(config.training.steps)
            if evaluator.tasks:
                await evaluator.run(config.training.steps)
        finally:
            engine.close()

    def _resumed_policy(self) -> Policy | None:
        checkpoint = self._run.latest_checkpoint()
        return load_pretrained(checkpoint / "model") if checkpoint is not None else None

    async def _first_policy(self, tasks: Sequence[Task]) -> Policy:
        """Return the policy that reinforcement learning begins with."""
        config, warm_start = self._config, RunFolder(self._run.warm_start)
        if warm_start.model.exists():
            return load_pretrained(warm_start.model)
        needs_demos = config.warm_start.steps or config.model.path == TINY
        demos = self._conversations(tasks, config.warm_start.num_demos) if needs_demos else []
        policy = load_policy(config.model, seed=config.seed, texts=lambda: texts_of(demos))
        if config.warm_start.steps:
            self._warm_up(warm_start, policy, demos)
        return policy

    def _warm_up(
        self, warm_start: RunFolder, policy: Policy, demos: Sequence[Conversation]
    ) -> None:
        """Learn from demonstrations, in a run folder of its own; an interrupted one begins anew."""
        config = supervised_config(self._config)
        warm_start.metrics_file.unlink(missing_ok=True)
        warm_start.config_file.unlink(missing_ok=True)
        warm_start.create(dump_config(config))
        assert isinstance(config.algorithm, SFTConfig), "made so just now"
        trainer = SFTTrainer(
            config, policy, warm_start, demos, batch_size=config.algorithm.batch_size
        )
        self._progress.begin("warm start", config.training.steps)
        trainer.train(on_step=self._progress.on_step)

    def _conversations(
        self, tasks: Sequence[Task], num_demos: int, *, data: str = ""
    ) -> list[Conversation]:
        if data:
            return list(read_conversations(Path(data)))[:num_demos]
        if self._config.env.url:
            raise ConfigError(
                "demonstrations come from the environment's expert, which a server does not offer; "
                "write them with `agentgym demos` and set algorithm.data, or leave env.url empty"
            )
        order = EpochSampler(tasks, seed=self._config.seed).take(1, len(tasks))
        demos = collect_demonstrations(
            self._config.env.name,
            order,
            num_demos=num_demos,
            max_rounds=self._config.longest_horizon,
            options=self._config.env.options,
        )
        self._progress.begin("demonstrations", num_demos)
        conversations = []
        for demo in demos:
            conversations.append(from_demonstration(demo, self._agent))
            self._progress.on_step({"step": len(conversations)})
        if not conversations:
            raise ConfigError(
                f"{self._spec.name} has no expert; set algorithm.data to a file of conversations"
            )
        return conversations

    async def _tasks(self, split: str) -> list[Task]:
        return select_tasks(self._config.env, self._spec, await self._source.tasks(split))

    async def _eval_tasks(self) -> list[Task]:
        config = self._config
        if config.eval.tasks == 0:
            return []
        return evaluation_tasks(
            await self._tasks(config.env.eval_split), config.eval.tasks, seed=config.seed
        )


class _Evaluator:
    """Evaluates the policy at a step and keeps the report and the episodes."""

    def __init__(
        self,
        config: RunConfig,
        run: RunFolder,
        policy: Policy,
        actors: Actors,
        tasks: Sequence[Task],
        progress: Progress,
    ) -> None:
        self._config, self._run, self._actors, self._progress = config, run, actors, progress
        self._limits = episode_limits(config, policy, max_rounds=config.eval_max_rounds)
        self.tasks = tasks

    def has_report(self, step: int) -> bool:
        return (self._run.eval / f"{self._name(step)}.json").exists()

    async def run(self, step: int) -> Metrics:
        """Return the `eval/` metrics of the present weights."""
        self._progress.begin("evaluation", len(self.tasks))
        report, groups = await evaluate(
            self.tasks,
            self._actors,
            self._limits,
            seed=self._config.seed,
            step=step,
            temperature=self._config.eval.temperature,
            max_concurrency=self._config.rollout.max_concurrency,
            on_episode=self._progress.on_episode,
        )
        write_episodes(
            self._run.episodes, [group.episodes for group in groups], phase="eval", step=step
        )
        report.save(self._run.eval, self._name(step))
        self._progress.on_report(report)
        return {
            f"eval/{report.env}/success_rate": report.overall.success_rate,
            f"eval/{report.env}/reward_mean": report.overall.reward_mean,
            f"eval/{report.env}/rounds_mean": report.overall.rounds_mean,
        }

    @staticmethod
    def _name(step: int) -> str:
        return f"step-{step:06d}"


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
                }
            ),
            "checkpoint": config.checkpoint.model_copy(
                update={"every": warm_start.steps, "keep": 1}
            ),
            "warm_start": type(warm_start)(),
        }
    )
