"""Evaluation of a policy on tasks it was not trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from agentgym_rl.config import RunConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.attempts import score_attempts
from agentgym_rl.evaluation.report import EvalReport, score_groups
from agentgym_rl.rollout.collect import collect
from agentgym_rl.rollout.episode import Actors
from agentgym_rl.rollout.limits import Limits
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.types import Episode, Group, Task


class Evaluator:
    """Attempts every task with the present weights, once or several times.

    The sampling noise does not depend on the step: two evaluations differ by their policies alone.
    """

    def __init__(
        self,
        config: RunConfig,
        actors: Actors,
        limits: Limits,
        tasks: Sequence[Task],
        *,
        spec: EnvSpec,
        attempts: int = 1,
    ) -> None:
        if not tasks:
            raise ValueError("there are no tasks to evaluate on")
        check_attempts(attempts, temperature=config.eval.temperature)
        self._config, self._actors, self._limits = config, actors, limits
        self._spec, self._attempts = spec, attempts
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
            group_size=self._attempts,
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
            overall=score_groups(groups),
            categories={
                name: score_groups([group for group in groups if group.task.category == name])
                for name in names
            },
            stop_reasons=dict(reasons.most_common()),
            attempts=self._attempts,
            several=score_attempts(groups, self._spec, attempts=self._attempts)
            if self._attempts > 1
            else None,
        )


def check_attempts(attempts: int, *, temperature: float) -> None:
    """Refuse attempts that would all be the same."""
    if attempts < 1:
        raise ConfigError(f"a task needs at least one attempt, got {attempts}")
    if attempts > 1 and temperature == 0:
        raise ConfigError(
            f"{attempts} attempts with eval.temperature=0 are the same attempt {attempts} times; "
            "set eval.temperature above 0 (1 is usual), or make one attempt"
        )
