"""Collecting groups: every episode is a separate coroutine, none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TypeVar

from agentgym_rl.agents.limits import Limits
from agentgym_rl.garbage import rare_collections
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, play_episode
from agentgym_rl.types import Episode, Group, Task

_Result = TypeVar("_Result")

EpisodeName = tuple[str, int]
"""`Task.id` and `Episode.sample_index`: which episode of a collection it is."""


async def collect(  # noqa: PLR0913 - all of these decide a collection
    tasks: Sequence[Task],
    participants: Participants,
    limits: Limits,
    *,
    group_size: int,
    noise: tuple[str | int, ...],
    temperature: float,
    max_concurrency: int,
    on_episode: Callable[[Episode], None] | None = None,
    kept: Mapping[EpisodeName, Episode] | None = None,
) -> list[Group]:
    """Return one group for each task, in the order of the tasks, failed episodes included.

    A task that occurs twice gets episodes that differ: its place in the list is part of the noise.
    Episodes of `kept` are taken as they are, and not played.
    """
    places = asyncio.Semaphore(max_concurrency)
    works = (
        collect_group(
            task,
            participants,
            limits,
            group_size=group_size,
            noise=(*noise, place),
            temperature=temperature,
            places=[places],
            on_episode=on_episode,
            kept=kept,
        )
        for place, task in enumerate(tasks)
    )
    with rare_collections():
        return await all_of(works)


async def collect_group(  # noqa: PLR0913 - as above
    task: Task,
    participants: Participants,
    limits: Limits,
    *,
    group_size: int,
    noise: tuple[str | int, ...],
    temperature: float,
    places: Sequence[asyncio.Semaphore],
    on_episode: Callable[[Episode], None] | None = None,
    kept: Mapping[EpisodeName, Episode] | None = None,
) -> Group:
    """Return the group of a task, failed episodes included.

    An episode waits for a free place in each of `places`, in their order.
    """

    async def run(sample_index: int) -> Episode:
        if kept is not None and (task.id, sample_index) in kept:
            return kept[task.id, sample_index]
        spec = EpisodeSpec(task, sample_index, noise, temperature)
        async with AsyncExitStack() as taken:
            for place in places:
                await taken.enter_async_context(place)
            episode = await play_episode(spec, participants, limits)
        if on_episode is not None:
            on_episode(episode)
        return episode

    return Group(task, tuple(await all_of(map(run, range(group_size)))))


def keep_groups(groups: Sequence[Group], *, min_size: int) -> list[Group]:
    """Return the groups with at least `min_size` completed episodes, without the failed ones."""
    return [
        Group(group.task, group.completed) for group in groups if len(group.completed) >= min_size
    ]


async def all_of(works: Iterable[Coroutine[object, object, _Result]]) -> list[_Result]:
    """Return all results in order; the first failure cancels the others, then rises."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in works]
    except BaseExceptionGroup as failures:
        failure = failures.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise failure
