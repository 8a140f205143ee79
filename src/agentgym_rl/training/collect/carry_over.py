"""Groups that carry over: a step ends when it has enough groups; the others continue in the next.

A quarter more groups than a step needs are under way, so that the slowest hold up nothing. Each
step takes as many complete groups as it learns from, the oldest first; which are complete depends
on time, so such a run cannot be repeated exactly.

A group that begins in step n is learned from in step n + `rollout.max_staleness` at the latest:
that step waits for it. Between steps a gate keeps replies from beginning; environments may answer.
When it opens, episodes continue with the limits that they began with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym_rl.garbage import rare_collections
from agentgym_rl.rollout.episode import Participants
from agentgym_rl.rollout.gate import GatedEngine, ReplyGate
from agentgym_rl.rollout.statistics import staleness_metrics
from agentgym_rl.training.collect.collection import (
    PAUSES_S,
    Collected,
    Collector,
    Horizons,
    all_failed,
    warn_of_failure,
)
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.types import Group, Task

logger = logging.getLogger(__name__)

GroupPlace = tuple[int, int]
"""The step that a group was planned for, from 1, and its place among that step's, from 0."""


@dataclass(frozen=True, slots=True)
class _BegunGroup:
    """A group that no step has taken yet."""

    number: int
    """Its place among all groups of the run, from 0; decides its noise."""
    task: Task
    step: int
    """In which it began."""
    work: asyncio.Task[Group]


class CarryOverCollector(Collector):
    """Collects the groups of one step after another; see the top of the file."""

    carries_over = True

    def __init__(self, parts: RunParts) -> None:
        super().__init__(parts)
        self._gate = ReplyGate()
        self._gated = GatedEngine(parts.engine, self._gate)
        # By Little's law the mean group is learned from this fraction of a step late. More groups
        # would hardly shorten the wait for heavy tails, and fewer would lengthen it noticeably.
        self._num_ahead = -(-self._num_groups // 4)
        """Groups that have begun and are left to later steps."""
        self._begun: list[_BegunGroup] = []
        self._to_repeat: dict[int, Task] = {}
        """The groups that the run had begun when it was stopped, by number."""
        self._next = 0
        """The first number that has never begun."""

    async def collect(self, step: int, max_rounds: Horizons) -> Collected:
        self._start(step, max_rounds)
        taken: list[_BegunGroup] = []
        for pause_s in (*PAUSES_S, None):
            with rare_collections():
                taken += await self._take(step, self._num_groups - len(taken))
            failed = self._failed_envs([item.work.result() for item in taken])
            if not failed:
                break
            again = [item for item in taken if item.task.env in failed]
            if pause_s is None:
                raise all_failed(step, [item.work.result() for item in again])
            warn_of_failure(step, failed, pause_s)
            await asyncio.sleep(pause_s)
            taken = [item for item in taken if item not in again]
            self._begin({item.number: item.task for item in again}, step, max_rounds)
        await self._end()
        return self._collected(step, sorted(taken, key=_age))

    def _start(self, step: int, max_rounds: Horizons) -> None:
        """Let replies begin, and as many groups as the step and those after it need now."""
        self._gate.open()
        num_begun = step * self._num_groups + self._num_ahead
        self._begin(self._groups_to_begin(num_begun), step, max_rounds)

    async def _end(self) -> None:
        """Return when the learner may change the weights."""
        await self._gate.close()

    def _collected(self, step: int, taken: Sequence[_BegunGroup]) -> Collected:
        groups = [item.work.result() for item in taken]
        self._tasks.learn_from(groups, min_size=self._min_group_size)
        complete = self._keep(groups)
        kept = self._to_learn_from(complete)
        metrics = staleness_metrics(complete, version=step - 1)
        metrics["rollout/groups_carried"] = float(sum(it.step < step for it in taken))
        metrics |= self._tasks.metrics()
        share = self._kept_share(len(complete), len(kept))
        return Collected(groups, kept, metrics=metrics, kept_share=share)

    def state(self) -> dict[str, object]:
        """Return also the names of the groups that have begun and belong to no step yet."""
        begun = {item.number: item.task for item in self._begun} | self._to_repeat
        carried = [[*self._place_of(number), begun[number].id] for number in sorted(begun)]
        return super().state() | ({"carried": carried} if carried else {})

    def resume(self, step: int, state: Mapping[str, Any]) -> None:
        """Resume after `step`; groups that had begun begin again, so that no task is lost."""
        size, carried = self._num_groups, state.get("carried", [])
        self._next = step * size + len(carried)
        self._tasks.resume(state, num_taken=self._next)
        for planned, place, *task_id in carried:  # older checkpoints do not name the task
            number = (int(planned) - 1) * size + int(place)
            self._to_repeat[number] = self._tasks.find(*task_id, number=number)

    async def aclose(self) -> None:
        works = [item.work for item in self._begun]
        num_cancelled = sum(work.cancel() for work in works)
        if num_cancelled:
            logger.warning("%d groups that were under way are given up", num_cancelled)
        await asyncio.gather(*works, return_exceptions=True)
        self._begun = []

    def _groups_to_begin(self, num_begun: int) -> dict[int, Task]:
        """Return the groups to begin until this many of the run's have begun, by number.

        Those that are to be repeated come first; fewer are returned at the end of the run.
        """
        num_in_all = self._config.training.steps * self._num_groups
        num = max(0, min(num_begun, num_in_all) - (self._next - len(self._to_repeat)))
        repeated = list(self._to_repeat)[:num]
        groups = {number: self._to_repeat.pop(number) for number in repeated}
        numbers = range(self._next, self._next + num - len(repeated))
        self._next = numbers.stop
        return groups | dict(zip(numbers, self._tasks.take(len(numbers)), strict=True))

    def _participants_of(self, env: RunEnv) -> Participants:
        return env.participants.with_engine(self._gated)

    def _place_of(self, number: int) -> GroupPlace:
        steps, place = divmod(number, self._num_groups)
        return steps + 1, place

    def _begin(self, tasks: Mapping[int, Task], step: int, max_rounds: Horizons) -> None:
        for number, task in tasks.items():
            work = self._group(task, ("train", *self._place_of(number)), max_rounds)
            begun = _BegunGroup(number, task, step, asyncio.create_task(work))
            begun.work.add_done_callback(self._on_group)
            self._begun.append(begun)

    def _on_group(self, work: asyncio.Task[Group]) -> None:
        """Take note that a group is complete."""

    async def _take(self, step: int, num_groups: int) -> list[_BegunGroup]:
        """Wait for enough groups, and for all that must not wait longer; take the oldest."""
        while True:
            complete = [item for item in self._begun if item.work.done()]
            for item in complete:
                item.work.result()  # a failure outside of episodes ends the run
            taken = sorted(complete, key=_age)[:num_groups]
            left = [item for item in self._begun if item not in taken]
            if len(taken) == num_groups and self._is_in_time(left, step):
                break
            works = [item.work for item in self._begun if not item.work.done()]
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        self._begun = left
        return taken

    def _is_in_time(self, left: Sequence[_BegunGroup], step: int) -> bool:
        """Return whether the steps after `step` can take all groups before they are too old."""
        latest = step - self._config.rollout.max_staleness
        return all(
            sum(item.step <= latest + later for item in left) <= later * self._num_groups
            for later in range(step - latest)
        )


def _age(item: _BegunGroup) -> tuple[int, int]:
    """Return a key by which the oldest comes first."""
    return item.step, item.number
