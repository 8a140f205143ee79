"""Evaluation of a policy on tasks it was not trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from agentgym_rl.config import RunConfig
from agentgym_rl.evaluation.report import EvalReport, score
from agentgym_rl.rollout.collect import collect
from agentgym_rl.rollout.episode import Actors, Limits
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.types import Episode, Group, Task


class Evaluator:
    """Attempts every task once with the present weights.

    The sampling noise does not depend on the step: two evaluations differ by their policies alone.
    """

    def __init__(
        self, config: RunConfig, actors: Actors, limits: Limits, tasks: Sequence[Task]
    ) -> None:
        if not tasks:
            raise ValueError("there are no tasks to evaluate on")
        self._config, self._actors, self._limits = config, actors, limits
        self.tasks = tasks

    async def run(
        self,
        step: int,
        *,
        reports: Path,
        name: str,
        episodes: Path,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> EvalReport:
        """Return the report; it is saved as `name` in `reports`, the episodes in `episodes`."""
        groups = await collect(
            self.tasks,
            self._actors,
            self._limits,
            group_size=1,
            noise=(self._config.seed, "eval"),
            temperature=self._config.eval.temperature,
            max_concurrency=self._config.rollout.max_concurrency,
            on_episode=on_episode,
        )
        report = self._report(groups, step)
        write_episodes(episodes, [group.episodes for group in groups], phase="eval", step=step)
        report.save(reports, name)
        return report

    def _report(self, groups: Sequence[Group], step: int) -> EvalReport:
        episodes = [episode for group in groups for episode in group.episodes]
        names = dict.fromkeys(task.category for task in self.tasks)
        reasons = Counter(str(episode.stop_reason) for episode in episodes)
        return EvalReport(
            env=self.tasks[0].env,
            split=self.tasks[0].split,
            step=step,
            max_rounds=self._limits.max_rounds,
            temperature=self._config.eval.temperature,
            overall=score(episodes),
            categories={
                name: score([e for e in episodes if e.task.category == name]) for name in names
            },
            stop_reasons=dict(reasons.most_common()),
        )
