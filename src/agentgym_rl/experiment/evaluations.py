"""Evaluations between the steps of a run: each of its environments, and the mean over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentgym_rl.config import OnlineConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.evaluation.evaluator import Evaluator
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.evaluation.report import EvalReport, eval_metrics
from agentgym_rl.evaluation.suite import SuiteReport
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.run_parts import RunEnv
from agentgym_rl.types import Group, Task


@dataclass(frozen=True, slots=True)
class EvaluatedEnv:
    """An environment, and the tasks of it that a run is evaluated on."""

    env: RunEnv
    spec: EnvSpec
    tasks: Sequence[Task]

    def evaluator(self, max_context: int) -> Evaluator:
        config = self.env.config
        limits = episode_limits(config, max_context=max_context, max_rounds=config.eval_max_rounds)
        return Evaluator(config, self.env.participants, limits, self.tasks, spec=self.spec)


class RunEvaluation:
    """Evaluates the weights of a step; the call returns the `eval/` metrics."""

    def __init__(
        self,
        envs: Sequence[EvaluatedEnv],
        run: RunFolder,
        *,
        max_context: int,
        progress: Progress,
        on_report: Callable[[EvalReport], None],
    ) -> None:
        self._evaluators = {item.env.label: item.evaluator(max_context) for item in envs}
        self._run, self._progress, self._on_report = run, progress, on_report
        env = envs[0].env
        self._engine = env.participants.engine
        # Trainers that learn from their own episodes publish; the others know of no engine.
        self._is_published = isinstance(env.config.algorithm, OnlineConfig)
        self._may_rest = not env.config.rollout.overlap
        """Whether no replies of training are under way."""

    async def __call__(self, step: int) -> Metrics:
        if not self._is_published:
            self._engine.publish(step)
        total = sum(len(evaluator.tasks) for evaluator in self._evaluators.values())
        self._progress.begin("evaluation", total)
        reports, groups = dict[str, EvalReport](), list[Group]()
        for label, evaluator in self._evaluators.items():
            reports[label], played = await evaluator.play(
                step, on_episode=self._progress.on_episode
            )
            groups += played
        write_episodes(
            self._run.episodes, [group.episodes for group in groups], phase="eval", step=step
        )
        self._save(step, reports)
        if self._may_rest:
            self._engine.rest()
        for report in reports.values():
            self._on_report(report)
        return eval_metrics(list(reports.values()))

    def _save(self, step: int, reports: dict[str, EvalReport]) -> None:
        name, folder = f"step-{step:06d}", self._run.eval
        if len(reports) == 1:
            next(iter(reports.values())).save(folder, name)
        else:
            SuiteReport({label: [report] for label, report in reports.items()}, {}).save(
                folder, name
            )
