"""An evaluation put together: a model or an endpoint, environments, horizons, files.

The command line calls `evaluate`; so can a program. An evaluation that a folder holds a part of
is resumed: what is on disk is not played again, except episodes that the infrastructure ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import OpenAIEngineConfig, RunConfig
from agentgym_rl.engines.create import create_engine
from agentgym_rl.engines.openai.engine import OpenAIEngine
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvSource
from agentgym_rl.evaluation.evaluator import Evaluator, check_samples
from agentgym_rl.evaluation.horizons import save_horizons
from agentgym_rl.evaluation.journal import Journal
from agentgym_rl.evaluation.pictures import draw_horizons, draw_report, draw_suite
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.evaluation.settings import Wanted, begin_or_resume, model_name
from agentgym_rl.evaluation.suite import SuiteReport
from agentgym_rl.models.loading import Policy, load_pretrained
from agentgym_rl.objects import Objects
from agentgym_rl.rollout.chosen_tasks import named_tasks, tasks_of
from agentgym_rl.rollout.episode import Participants, TextPolicy, TokenPolicy
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.rewards import EpisodeRewards
from agentgym_rl.rollout.tasks import evaluation_tasks, tasks_per_category
from agentgym_rl.types import Episode, Task

NAME = "report"


@dataclass(frozen=True, slots=True)
class EvaluatedPolicy:
    """A loaded model with its engine, or an endpoint."""

    policy: TokenPolicy | TextPolicy
    max_context: int | None
    """None where it is not known."""

    def participants(
        self, source: EnvSource, agent: Agent, rewards: EpisodeRewards
    ) -> Participants:
        """Return who takes part in an evaluation on one environment."""
        policy = self.policy
        if isinstance(policy, TokenPolicy):
            renderer = policy.renderer.with_tools(agent.tools)
            policy, agent = replace(policy, renderer=renderer), agent.for_model(renderer)
        return Participants(source, agent, policy, rewards)


async def evaluate(
    wanted: Wanted,
    config: RunConfig,
    *,
    out: Path,
    progress: Progress | None = None,
    objects: Objects | None = None,
) -> list[EvalReport]:
    """Evaluate on tasks of `env.eval_split` of one environment; keep all in `out`.

    There is one report for each horizon. Several are evaluated one after another, with the same
    sampling noise, and have a folder each in `out` beside their table. `objects` stand for what the
    settings name.
    """
    objects = objects or Objects()
    check_samples(wanted.samples_per_task, temperature=config.eval.temperature)
    rewards = objects.rewards(config)
    begin_or_resume(out, wanted.settings(config))
    opening = open_policy(wanted.model, config, folder=out / "engine", loaded=objects.model)
    async with opening as policy:
        hosts = _Hosts(objects, rewards, out, progress or Progress())
        return await _evaluate_env(policy, wanted, config, hosts)


async def evaluate_suite(
    wanted: Wanted,
    configs: Mapping[str, RunConfig],
    *,
    out: Path,
    missing: Mapping[str, str],
    progress: Progress | None = None,
) -> SuiteReport:
    """Evaluate on several environments, each in a folder of its name; `missing` is reported."""
    progress, first = progress or Progress(), next(iter(configs.values()))
    check_samples(wanted.samples_per_task, temperature=first.eval.temperature)
    objects = Objects()
    rewards = objects.rewards(first)  # which are the same for all
    for env, config in configs.items():
        begin_or_resume(out / folder_name(env), wanted.settings(config))
    reports: dict[str, Sequence[EvalReport]] = {}
    async with open_policy(wanted.model, first, folder=out / "engine") as policy:
        for env, config in configs.items():
            hosts = _Hosts(objects, rewards, out / folder_name(env), progress)
            reports[env] = await _evaluate_env(policy, wanted, config, hosts)
    suite = SuiteReport(reports, missing)
    draw_suite(out / f"{NAME}.png", suite)
    suite.save(out, NAME)
    return suite


def folder_name(env: str) -> str:
    """Return a name for a folder: "gymnasium/Taxi-v4" and "module:Class" are none."""
    return env.replace("/", "-").replace(":", "-")


@asynccontextmanager
async def open_policy(
    model: str, config: RunConfig, *, folder: Path | None = None, loaded: Policy | None = None
) -> AsyncIterator[EvaluatedPolicy]:
    """Load a model, unless it is there as `loaded`, or get ready to ask an endpoint.

    `folder` is for the log of a server.
    """
    if isinstance(config.engine, OpenAIEngineConfig):
        endpoint = OpenAIEngine(model, config.engine)
        try:
            yield EvaluatedPolicy(TextPolicy(endpoint), None)
        finally:
            await endpoint.close()
        return
    policy = loaded or load_pretrained(model, dtype=config.model.dtype, device=config.model.device)
    engine = create_engine(policy, config.engine, folder=folder)
    try:
        yield EvaluatedPolicy(TokenPolicy(engine, policy.renderer), policy.max_context)
    finally:
        engine.close()


@dataclass(frozen=True, slots=True)
class _Hosts:
    """What the evaluation on one environment is given beside its settings."""

    objects: Objects
    rewards: EpisodeRewards
    out: Path
    progress: Progress


async def _evaluate_env(
    policy: EvaluatedPolicy, wanted: Wanted, config: RunConfig, hosts: _Hosts
) -> list[EvalReport]:
    objects, out, progress = hosts.objects, hosts.out, hosts.progress
    async with objects.source(config.env) as source:
        spec = await source.spec()
        tasks = await _tasks(source, config, spec, wanted)
        agent = objects.make_agent(config.agent, spec)
        participants = policy.participants(source, agent, hosts.rewards)
        horizons = [
            rounds or config.eval.max_rounds or spec.max_rounds for rounds in wanted.horizons
        ]
        reports: list[EvalReport] = []
        for max_rounds in horizons:
            limits = episode_limits(config, max_context=policy.max_context, max_rounds=max_rounds)
            evaluator = Evaluator(
                config,
                participants,
                limits,
                tasks,
                spec=spec,
                samples_per_task=wanted.samples_per_task,
                model=model_name(wanted.model),
            )
            folder = out if len(horizons) == 1 else out / f"rounds-{max_rounds}"
            total = len(tasks) * wanted.samples_per_task
            progress.begin(f"{spec.name}, at most {max_rounds} rounds", total)
            reports.append(await _evaluate_horizon(evaluator, folder, progress))
    if len(reports) > 1:
        draw_horizons(out / f"{NAME}.png", reports)
        save_horizons(out, NAME, reports)
    return reports


async def _tasks(source: EnvSource, config: RunConfig, spec: EnvSpec, wanted: Wanted) -> list[Task]:
    if wanted.tasks:
        return await named_tasks(source, spec, wanted.tasks)
    tasks = await tasks_of(source, config.env, spec, tested=True)
    if wanted.per_category:
        return tasks_per_category(tasks, wanted.per_category, seed=config.seed)
    return evaluation_tasks(tasks, config.eval.tasks, seed=config.seed)


async def _evaluate_horizon(evaluator: Evaluator, folder: Path, progress: Progress) -> EvalReport:
    journal = Journal(folder)
    kept = journal.read()
    progress.on_kept(list(kept.values()))

    def on_episode(episode: Episode) -> None:
        journal.add(episode)
        progress.on_episode(episode)

    try:
        report, groups = await evaluator.play(0, on_episode=on_episode, kept=kept)
    finally:
        journal.flush()
    journal.finish([group.episodes for group in groups])
    draw_report(folder / f"{NAME}.png", report)
    report.save(folder, NAME)
    progress.on_report(report)
    return report
