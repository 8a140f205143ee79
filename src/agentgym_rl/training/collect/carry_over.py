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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentgym_rl.garbage import rare_collections
from agentgym_rl.rollout.collect import collect_group
from agentgym_rl.rollout.gate import GatedEngine, ReplyGate
from agentgym_rl.rollout.statistics import staleness_metrics
from agentgym_rl.training.collect.collection import PAUSES_S, Collected, Collector, all_failed
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.types import Group

logger = logging.getLogger(__name__)

GroupPlace = tuple[int, int]
"""The step that a group was planned for, from 1, and its place among that step's, from 0."""


@dataclass(frozen=True, slots=True)
class _BegunGroup:
    """A group that no step has taken yet."""

    number: int
    """Its place among all groups of the run, from 0; decides task and noise."""
    step: int
    """In which it began."""
    work: asyncio.Task[Group]


class CarryOverCollector(Collector):
    """Collects the groups of one step after another; see the top of the file."""

    carries_over = True

    def __init__(self, parts: RunParts) -> None:
        super().__init__(parts)
        self._gate = ReplyGate()
        gated = GatedEngine(parts.engine, self._gate)
        self._participants = self._participants.with_engine(gated)
        # By Little's law the mean group is learned from this fraction of a step late. More groups
        # would hardly shorten the wait for heavy tails, and fewer would lengthen it noticeably.
        self._num_ahead = -(-self._num_groups // 4)
        """Groups that have begun and are left to later steps."""
        self._places = asyncio.Semaphore(self._config.rollout.max_concurrency)
        self._begun: list[_BegunGroup] = []
        self._to_repeat: list[int] = []
        """Numbers of groups that the run had begun when it was stopped."""
        self._next = 0
        """The first number that has never begun."""

    async def collect(self, step: int, *, max_rounds: int) -> Collected:
        self._gate.open()
        self._begin(self._numbers_to_begin(step), step, max_rounds)
        groups: list[Group] = []
        for pause_s in (*PAUSES_S, None):
            with rare_collections():
                taken = await self._take(step)
            groups = [item.work.result() for item in taken]
            if complete := self._keep(groups):
                await self._gate.close()
                metrics = staleness_metrics(complete, version=step - 1)
                metrics["rollout/groups_carried"] = float(sum(it.step < step for it in taken))
                kept = self._to_learn_from(complete)
                share = self._kept_share(len(complete), len(kept))
                return Collected(groups, kept, metrics=metrics, kept_share=share)
            if pause_s is not None:
                logger.warning("every group of step %d failed; again in %g s", step, pause_s)
                await asyncio.sleep(pause_s)
                self._begin([item.number for item in taken], step, max_rounds)
        raise all_failed(step, groups)

    def state(self) -> dict[str, object]:
        """Return the names of the groups that have begun and belong to no step yet."""
        return {"carried": self.carried} if self._begun else {}

    @property
    def carried(self) -> list[GroupPlace]:
        return [self._place_of(number) for number in sorted(item.number for item in self._begun)]

    def resume(self, step: int, state: Mapping[str, Any]) -> None:
        """Resume after `step`; groups that had begun begin again, so that no task is lost."""
        size, carried = self._num_groups, state.get("carried", [])
        self._to_repeat = [(int(planned) - 1) * size + int(place) for planned, place in carried]
        self._next = step * size + len(carried)

    async def aclose(self) -> None:
        works = [item.work for item in self._begun]
        num_cancelled = sum(work.cancel() for work in works)
        if num_cancelled:
            logger.warning("%d groups that were under way are given up", num_cancelled)
        await asyncio.gather(*works, return_exceptions=True)
        self._begun = []

    def _numbers_to_begin(self, step: int) -> list[int]:
        """Return the groups to begin for a step, and ahead of later ones as far as any is left."""
        num_in_all = self._config.training.steps * self._num_groups
        end = min(step * self._num_groups + self._num_ahead, num_in_all)
        numbers = [*self._to_repeat, *range(self._next, end)]
        self._to_repeat.clear()
        self._next = max(end, self._next)
        return numbers

    def _place_of(self, number: int) -> GroupPlace:
        steps, place = divmod(number, self._num_groups)
        return steps + 1, place

    def _begin(self, numbers: Iterable[int], step: int, max_rounds: int) -> None:
        config, limits = self._config, self._limits(max_rounds)
        places = {number: self._place_of(number) for number in numbers}
        tasks = {
            planned: self._tasks.take(planned, self._num_groups)
            for planned in {planned for planned, _ in places.values()}
        }
        for number, (planned, place) in places.items():
            work = collect_group(
                tasks[planned][place],
                self._participants,
                limits,
                group_size=self._group_size,
                noise=(config.seed, "train", planned, place),
                temperature=config.rollout.temperature,
                places=self._places,
                on_episode=self._on_episode,
            )
            self._begun.append(_BegunGroup(number, step, asyncio.create_task(work)))

    async def _take(self, step: int) -> list[_BegunGroup]:
        """Wait for enough groups, and for all that must not wait longer; take the oldest."""
        latest = step - self._config.rollout.max_staleness
        while True:
            complete = [item for item in self._begun if item.work.done()]
            for item in complete:
                item.work.result()  # a failure outside of episodes ends the run
            waited_for = [item for item in self._begun if not item.work.done()]
            is_enough = len(complete) >= self._num_groups
            if is_enough and all(item.step > latest for item in waited_for):
                break
            works = [item.work for item in waited_for]
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        taken = sorted(complete, key=lambda item: (item.step, item.number))[: self._num_groups]
        self._begun = [item for item in self._begun if item not in taken]
        return taken
