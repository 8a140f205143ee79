"""Groups that are collected while the learner updates: `rollout.overlap`.

No gate closes. As soon as a group is complete another one begins, also during the update, so that
about as many are under way all the time: those of a step, and a quarter more for each step of
`rollout.max_staleness`.

How old a group gets is counted, not timed. A group that begins at any time from the start of step n
to that of step n + 1 counts as begun in step n; the weights of step n - 1 have been published by
then, so no token of it is older. Of the groups that have begun by the end of step n at most
`max_staleness` steps' worth are left to later steps, and a step takes the oldest first and waits
where later ones could not take the rest in time.
"""

from __future__ import annotations

import asyncio

from agentgym_rl.rollout.episode import Participants
from agentgym_rl.training.collect.carry_over import CarryOverCollector
from agentgym_rl.training.collect.collection import Horizons
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.types import Group


class OverlapCollector(CarryOverCollector):
    """Collects without a pause; the engine takes weights between replies."""

    overlaps = True

    def __init__(self, parts: RunParts) -> None:
        super().__init__(parts)
        self._max_staleness = parts.config.rollout.max_staleness
        self._num_under_way = self._num_groups + self._max_staleness * self._num_ahead
        """The most groups that are not complete."""
        self._step = 0
        """The step that began last; 0 before the first and after the last."""
        self._max_rounds: Horizons = {}
        """Its horizons."""

    async def aclose(self) -> None:
        self._step = 0
        await super().aclose()

    def _start(self, step: int, max_rounds: Horizons) -> None:
        self._step, self._max_rounds = step, max_rounds
        self._begin_more()

    async def _end(self) -> None:
        """Replies continue."""

    def _participants_of(self, env: RunEnv) -> Participants:
        return env.participants

    def _on_group(self, work: asyncio.Task[Group]) -> None:
        if self._step:
            self._begin_more()

    def _begin_more(self) -> None:
        """Begin groups until enough are under way, as far as they can be learned from in time."""
        most = (self._step + self._max_staleness) * self._num_groups
        room = self._num_under_way - sum(not item.work.done() for item in self._begun)
        num_begun = self._next - len(self._to_repeat)
        groups = self._groups_to_begin(min(most, num_begun + room))
        self._begin(groups, self._step, self._max_rounds)
