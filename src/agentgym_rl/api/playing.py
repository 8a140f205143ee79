"""`agentgym_rl.evaluate` and `agentgym_rl.rollout`: a model plays tasks."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentgym_rl.api.arguments import (
    AgentArgument,
    EnvArgument,
    ModelArgument,
    RewardArgument,
    TokenizerArgument,
    loaded,
    names_and_objects,
    path_of,
)
from agentgym_rl.api.blocking import run_blocking
from agentgym_rl.api.eval_plan import (
    ALL_TASKS,
    check_env,
    default_folder,
    eval_config,
    refuse_a_run,
)
from agentgym_rl.api.model_names import model_directory
from agentgym_rl.api.progress_lines import ProgressLines
from agentgym_rl.api.task_choice import TaskChoice, TasksArgument, task_choice
from agentgym_rl.callbacks import Callback, Callbacks
from agentgym_rl.config import OpenAIEngineConfig, RunConfig
from agentgym_rl.config.overrides import Overrides, override_texts
from agentgym_rl.errors import RunError, RunFailedError
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.evaluation.run import evaluate as evaluate_env
from agentgym_rl.evaluation.run import open_policy
from agentgym_rl.evaluation.settings import Wanted, load_settings
from agentgym_rl.objects import Objects, name_of
from agentgym_rl.results import SavedModel
from agentgym_rl.rollout.chosen_tasks import named_tasks, tasks_of
from agentgym_rl.rollout.collect import collect
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.rollout.tasks import evaluation_tasks
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import Episode

logger = logging.getLogger(__name__)


def evaluate(  # noqa: PLR0913 - everything that a recipe names can be an object
    model: ModelArgument,
    env: EnvArgument = None,
    *,
    overrides: Overrides = (),
    tokenizer: TokenizerArgument = None,
    agent: AgentArgument = None,
    reward: RewardArgument = None,
    callbacks: Iterable[Callback] = (),
    split: str = "test",
    tasks: TasksArgument = 0,
    k: int = 1,
    max_rounds: int = 0,
    out: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> EvalReport:
    """Return how well a model does at the tasks of a split, `report.overall.success_rate`.

    model       `run.model`, a run folder, a model directory or hub name, or a loaded model of
                transformers with its `tokenizer`
    env         a name, "module:Class", or a class; None for the environment of the model's run
    overrides   settings beside those of the model's run, such as {"eval.temperature": 0.5}
    tasks       this many tasks, drawn by the seed, 0 for all; or a list of tasks or ids
                ("babyai_12", 12); or the path of a file of ids, as `agentgym eval --tasks`
    k           samples per task, for pass@k
    max_rounds  limit on rounds; 0 for the environment's own
    out         folder for the report and all episodes; default eval/<env>-<time>. A folder where
                the same evaluation was interrupted resumes it
    quiet       write no progress: otherwise, to standard error, how many tasks are played, and
                every ten seconds how many are done

    Blocks, also inside a running event loop. Episodes that the infrastructure failed are counted in
    `report.overall.failed`; raises RunError where no episode completed.
    """
    chosen = task_choice(tasks, smallest=0)
    wishes = {"env.eval_split": split, "eval.tasks": chosen.number or ALL_TASKS}
    wishes |= chosen.settings()
    wishes |= {"eval.max_rounds": max_rounds}
    request = _request(
        model,
        tokenizer,
        [*override_texts(wishes), *override_texts(overrides)],
        env=env,
        agent=agent,
        reward=reward,
    )
    hint = "" if tasks != 0 else " (all of the split; tasks=N plays N of them)"
    lines = Progress() if quiet else ProgressLines(k=k, hint=hint)
    heard = _Heard(Callbacks(callbacks), lines)
    check_env(request.config, request.objects, chosen.named)
    wanted = Wanted(request.model, k, (max_rounds,), tasks=chosen.named)
    folder = _out(None if out is None else Path(out), wanted, request)
    with RunFolder(folder).locked():
        work = evaluate_env(
            wanted, request.config, out=folder, progress=heard, objects=request.objects
        )
        report = run_blocking(work)[0]
    _check_result(report, heard.error)
    return report


def rollout(  # noqa: PLR0913 - everything that a recipe names can be an object
    model: ModelArgument,
    env: EnvArgument = None,
    *,
    overrides: Overrides = (),
    tokenizer: TokenizerArgument = None,
    agent: AgentArgument = None,
    reward: RewardArgument = None,
    callbacks: Iterable[Callback] = (),
    split: str = "test",
    tasks: TasksArgument = 1,
    k: int = 1,
    max_rounds: int = 0,
) -> list[Episode]:
    """Return the episodes that a model plays, with their texts and tokens; nothing is written.

    Arguments are as in `evaluate`. Replies are sampled at
    `rollout.temperature`, as in training. Episodes come task by task, `k` of each. One that the
    infrastructure failed has an `error` and no reward.

        episode.messages               what was said
        episode.rounds[0].action       what was done, and what came of it
        episode.samples[0].token_ids   the exact tokens, aligned with loss_mask, logprobs, rewards
    """
    chosen = task_choice(tasks, smallest=1)
    wishes = {"env.eval_split": split} | chosen.settings()
    request = _request(
        model,
        tokenizer,
        [*override_texts(wishes), *override_texts(overrides)],
        env=env,
        agent=agent,
        reward=reward,
    )
    if k < 1:
        raise ValueError(f"k={k}: give a number above 0")
    check_env(request.config, request.objects, chosen.named)
    heard = _Heard(Callbacks(callbacks), Progress())
    return run_blocking(_play(request, chosen, k=k, max_rounds=max_rounds, heard=heard))


@dataclass(frozen=True, slots=True)
class _Request:
    """Which model plays, under which settings, with which objects."""

    model: str
    config: RunConfig
    objects: Objects


def _request(
    model: ModelArgument,
    tokenizer: TokenizerArgument,
    texts: Sequence[str],
    *,
    env: EnvArgument,
    agent: AgentArgument,
    reward: RewardArgument,
) -> _Request:
    policy = loaded(model, tokenizer)
    names, objects = names_and_objects(env=env, policy=policy, agent=agent, reward=reward)
    name = path_of(model) or name_of(model)
    env_name = str(names.pop("env.name", ""))
    config = eval_config(name, env_name, [*override_texts(names), *texts], objects=objects)
    if policy is None and not isinstance(config.engine, OpenAIEngineConfig):
        name = model_directory(name)
    if isinstance(model, SavedModel) and _loads_as(model, config):
        objects = replace(objects, model=model.load())
    return _Request(name, config, objects)


def _loads_as(model: SavedModel, config: RunConfig) -> bool:
    """Whether the settings ask for the model as it loads itself."""
    return (model.dtype, model.device) == (config.model.dtype, config.model.device)


def _out(out: Path | None, wanted: Wanted, request: _Request) -> Path:
    """Return the folder of an evaluation, checked."""
    is_nameless = request.objects.model is not None and not Path(wanted.model).exists()
    if out is None:
        name = request.config.env.name
        folder = default_folder(wanted, {name: request.config}, is_suite=False)
        later = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
        is_taken = is_nameless and folder.exists()
        return next(path for path in later if not path.exists()) if is_taken else folder
    refuse_a_run(out)
    if is_nameless and load_settings(out) is not None:
        raise RunError(
            f"{out} holds an evaluation, perhaps of another model: this model is not in a "
            "folder, so the two cannot be compared. Choose another out"
        )
    return out


def _check_result(report: EvalReport, error: str) -> None:
    """Raise where every episode failed, and warn where some did; `error` is the first one's."""
    if not report.overall.episodes:
        raise RunFailedError(f"there is no result: every episode failed; the first with: {error}")
    if report.overall.failed:
        logger.warning("%d episodes failed, one with: %s", report.overall.failed, error)


async def _play(
    request: _Request, chosen: TaskChoice, *, k: int, max_rounds: int, heard: _Heard
) -> list[Episode]:
    config, objects = request.config, request.objects
    async with (
        open_policy(request.model, config, loaded=objects.model) as policy,
        objects.source(config.env) as source,
    ):
        spec = await source.spec()
        if chosen.named:
            tasks = await named_tasks(source, spec, chosen.named)
        else:
            known = await tasks_of(source, config.env, spec, tested=True)
            tasks = evaluation_tasks(known, chosen.number or len(known), seed=config.seed)
        agent = objects.make_agent(config.agent, spec)
        groups = await collect(
            tasks,
            policy.participants(source, agent, objects.rewards(config)),
            episode_limits(
                config,
                max_context=policy.max_context,
                max_rounds=max_rounds or config.eval.max_rounds or spec.max_rounds,
            ),
            group_size=k,
            noise=(config.seed, "rollout"),
            temperature=config.rollout.temperature,
            max_concurrency=config.rollout.max_concurrency,
            on_episode=heard.on_episode,
        )
    return [episode for group in groups for episode in group.episodes]


class _Heard(Progress):
    """Passes on to callbacks and to `lines` what happens, and keeps the first error."""

    def __init__(self, callbacks: Callbacks, lines: Progress) -> None:
        self._callbacks, self._lines = callbacks, lines
        self.error = ""

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        self._lines.begin(phase, total, done=done)

    def on_kept(self, episodes: Sequence[Episode]) -> None:
        self._lines.on_kept(episodes)

    def on_episode(self, episode: Episode) -> None:
        self._lines.on_episode(episode)
        self.error = self.error or episode.error or ""
        self._callbacks.on_episode(episode)

    def on_report(self, report: EvalReport) -> None:
        self._callbacks.on_evaluation(report)
