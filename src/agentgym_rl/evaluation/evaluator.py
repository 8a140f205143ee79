"""Evaluation of a policy on tasks it was not trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from agentgym_rl.evaluation.report import EvalReport, score
from agentgym_rl.rollout.collect import collect
from agentgym_rl.rollout.episode import Actors, Limits
from agentgym_rl.types import Episode, Group, Task


async def evaluate(
    tasks: Sequence[Task],
    actors: Actors,
    limits: Limits,
    *,
    seed: int,
    step: int,
    temperature: float,
    max_concurrency: int,
    on_episode: Callable[[Episode], None] | None = None,
) -> tuple[EvalReport, list[Group]]:
    """Attempt every task once; return the report and the episodes.

    The sampling noise does not depend on the step: two evaluations differ by their policies alone.
    """
    groups = await collect(
        tasks,
        actors,
        limits,
        group_size=1,
        noise=(seed, "eval"),
        temperature=temperature,
        max_concurrency=max_concurrency,
        on_episode=on_episode,
    )
    episodes = [episode for group in groups for episode in group.episodes]
    categories = list(dict.fromkeys(task.category for task in tasks))
    report = EvalReport(
        env=tasks[0].env,
        split=tasks[0].split,
        step=step,
        max_rounds=limits.max_rounds,
        temperature=temperature,
        overall=score(episodes),
        categories={
            name: score([e for e in episodes if e.task.category == name]) for name in categories
        },
        stop_reasons=dict(Counter(str(episode.stop_reason) for episode in episodes).most_common()),
    )
    return report, groups
