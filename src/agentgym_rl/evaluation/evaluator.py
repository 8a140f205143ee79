"""Evaluation of a policy on tasks it was not trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from agentgym_rl.config import RunConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.attempts import score_attempts, score_reflection
from agentgym_rl.evaluation.own_figures import metric_figures, reward_part_figures
from agentgym_rl.evaluation.report import EvalReport, score_groups
from agentgym_rl.rollout.collect import EpisodeName, collect
from agentgym_rl.rollout.episode import Cast
from agentgym_rl.rollout.limits import Limits
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.types import Episode, Group, Task


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The report of an evaluation and what it is of."""

    report: EvalReport
    groups: Sequence[Group]


class Evaluator:
    """Attempts every task with the present weights, once or several times.

    The sampling noise does not depend on the step: two evaluations differ by their policies alone.
    """

    def __init__(
        self,
        config: RunConfig,
        cast: Cast,
        limits: Limits,
        tasks: Sequence[Task],
        *,
        spec: EnvSpec,
        attempts: int = 1,
        model: str = "",
    ) -> None:
        if not tasks:
            raise ValueError("there are no tasks to evaluate on")
        check_attempts(attempts, temperature=config.eval.temperature)
        self._config, self._cast, self._limits = config, cast, limits
        self._spec, self._attempts, self._model = spec, attempts, model
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
        done = await self.play(step, on_episode=on_episode)
        write_episodes(episodes, [group.episodes for group in done.groups], phase="eval", step=step)
        done.report.save(reports, name)
        return done.report

    async def play(
        self,
        step: int,
        *,
        on_episode: Callable[[Episode], None] | None = None,
        kept: Mapping[EpisodeName, Episode] | None = None,
    ) -> Evaluated:
        """Play all episodes but those of `kept`, and return the report; nothing is written."""
        groups = await collect(
            self.tasks,
            self._cast,
            self._limits,
            group_size=self._attempts,
            noise=(self._config.seed, "eval"),
            temperature=self._config.eval.temperature,
            max_concurrency=self._config.rollout.max_concurrency,
            on_episode=on_episode,
            kept=kept,
        )
        return Evaluated(self._report(groups, step), groups)

    def _report(self, groups: Sequence[Group], step: int) -> EvalReport:
        episodes = [episode for group in groups for episode in group.episodes]
        names = dict.fromkeys(task.category for task in self.tasks)
        ordered = [name for name in self._spec.categories if name in names]
        reasons = Counter(str(episode.stop_reason) for episode in episodes)
        num_tries = self._config.agent.reflection.attempts
        own_rewards = [
            e.env_reward for e in episodes if e.env_reward is not None and not e.is_failed
        ]
        return EvalReport(
            env=self.tasks[0].env,
            split=self.tasks[0].split,
            step=step,
            max_rounds=self._limits.max_rounds,
            temperature=self._config.eval.temperature,
            overall=score_groups(groups),
            categories={
                name: score_groups([group for group in groups if group.task.category == name])
                for name in dict.fromkeys([*ordered, *names])
            },
            stop_reasons=dict(reasons.most_common()),
            attempts=self._attempts,
            several=score_attempts(groups, self._spec, attempts=self._attempts)
            if self._attempts > 1
            else None,
            reflection=score_reflection(groups, tries=num_tries) if num_tries > 1 else None,
            model=self._model,
            success=self._spec.success,
            metrics=metric_figures(groups),
            reward_parts=reward_part_figures(groups),
            reward_function=self._config.reward.function,
            env_reward_mean=fmean(own_rewards) if own_rewards else None,
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
