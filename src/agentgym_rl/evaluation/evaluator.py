"""Evaluation of a policy on tasks it was not trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from agentgym_rl.agents.limits import Limits
from agentgym_rl.config import RunConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.own_figures import metric_figures, reward_part_figures
from agentgym_rl.evaluation.report import EvalReport, score_groups
from agentgym_rl.evaluation.samples import score_reflection, score_task_samples
from agentgym_rl.rollout.collect import EpisodeName, collect
from agentgym_rl.rollout.episode import Participants
from agentgym_rl.types import Episode, Group, Task


class Evaluator:
    """Plays every task with the present weights, once or several times.

    The sampling noise does not depend on the step: two evaluations differ only by their policies.
    """

    def __init__(
        self,
        config: RunConfig,
        participants: Participants,
        limits: Limits,
        tasks: Sequence[Task],
        *,
        spec: EnvSpec,
        samples_per_task: int = 1,
        model: str = "",
    ) -> None:
        if not tasks:
            raise ValueError("there are no tasks to evaluate on")
        check_samples(samples_per_task, temperature=config.eval.temperature)
        self._config, self._participants, self._limits = config, participants, limits
        self._spec, self._samples_per_task, self._model = spec, samples_per_task, model
        self.tasks = tasks

    async def play(
        self,
        step: int,
        *,
        on_episode: Callable[[Episode], None] | None = None,
        kept: Mapping[EpisodeName, Episode] | None = None,
    ) -> tuple[EvalReport, Sequence[Group]]:
        """Play all episodes that are not in `kept`; return the report and what it is of."""
        groups = await collect(
            self.tasks,
            self._participants,
            self._limits,
            group_size=self._samples_per_task,
            noise=(self._config.seed, "eval"),
            temperature=self._config.eval.temperature,
            max_concurrency=self._config.rollout.max_concurrency,
            on_episode=on_episode,
            kept=kept,
        )
        return self._report(groups, step), groups

    def _report(self, groups: Sequence[Group], step: int) -> EvalReport:
        episodes = [episode for group in groups for episode in group.episodes]
        names = dict.fromkeys(task.category for task in self.tasks)
        ordered = [name for name in self._spec.categories if name in names]
        levels = sorted({task.level for task in self.tasks})
        reasons = Counter(str(episode.stop_reason) for episode in episodes)
        num_tries = self._config.agent.reflection.tries
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
            samples_per_task=self._samples_per_task,
            several=score_task_samples(groups, self._spec, samples_per_task=self._samples_per_task)
            if self._samples_per_task > 1
            else None,
            reflection=score_reflection(groups, tries=num_tries) if num_tries > 1 else None,
            model=self._model,
            success=self._spec.success,
            metrics=metric_figures(groups),
            reward_parts=reward_part_figures(groups),
            reward_function=self._config.reward.function,
            env_reward_mean=fmean(own_rewards) if own_rewards else None,
            levels={
                level: score_groups([group for group in groups if group.task.level == level])
                for level in (levels if len(levels) > 1 else ())
            },
        )


def check_samples(samples_per_task: int, *, temperature: float) -> None:
    """Refuse samples of a task that would all be the same."""
    if samples_per_task < 1:
        raise ConfigError(f"k={samples_per_task}: a task needs at least one sample")
    if samples_per_task > 1 and temperature == 0:
        raise ConfigError(
            f"{samples_per_task} samples per task with eval.temperature=0 would all be the same; "
            "set eval.temperature above 0 (1 is usual), or take one sample"
        )
