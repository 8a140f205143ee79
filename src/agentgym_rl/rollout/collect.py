"""Collecting groups: every episode is a coroutine of its own, none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agentgym_rl.rollout.episode import Actors, EpisodeRequest, run_episode
from agentgym_rl.rollout.limits import Limits
from agentgym_rl.types import Episode, Group, Task


async def collect(
    tasks: Sequence[Task],
    actors: Actors,
    limits: Limits,
    *,
    group_size: int,
    noise: tuple[str | int, ...],
    temperature: float,
    max_concurrency: int,
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Group]:
    """Return one group for each task, in the order of the tasks, failed episodes included.

    A task that occurs twice gets episodes that differ: its place in the list is part of the noise.
    """
    places = asyncio.Semaphore(max_concurrency)

    async def run(place: int, task: Task, sample_index: int) -> Episode:
        request = EpisodeRequest(task, sample_index, (*noise, place), temperature)
        async with places:
            episode = await run_episode(request, actors, limits)
        if on_episode is not None:
            on_episode(episode)
        return episode

    episodes = await asyncio.gather(
        *(
            run(place, task, index)
            for place, task in enumerate(tasks)
            for index in range(group_size)
        )
    )
    return [
        Group(task, tuple(episodes[place * group_size : (place + 1) * group_size]))
        for place, task in enumerate(tasks)
    ]


def keep_groups(groups: Sequence[Group], *, min_size: int) -> list[Group]:
    """Return the groups with at least `min_size` completed episodes, without the failed ones."""
    return [
        Group(group.task, group.completed) for group in groups if len(group.completed) >= min_size
    ]
