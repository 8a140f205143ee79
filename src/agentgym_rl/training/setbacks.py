"""What a run has lost to processes that died, until a line of metrics reports it.

Lines that are forgotten, because a run goes back to a checkpoint, leave their counts to the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from agentgym_rl.runs.folder import Metrics

_RESTARTS = "cluster/restarts_"
_LEARNER = f"{_RESTARTS}learner"
_TIME_LOST = "cluster/time_lost_s"
_COUNTED = ("cluster/episodes_lost", _TIME_LOST)


class Setbacks:
    """Counts since the last line of metrics, by their names."""

    def __init__(self) -> None:
        self._counts: Metrics = {}
        self._reached: dict[int, float] = {}
        """When the run stood at a step that it could go back to."""
        self._is_back = False
        """Whether it goes back to a step now."""

    @property
    def has_begun(self) -> bool:
        """Whether the learner has ever stood at a step, so that it can work at all."""
        return bool(self._reached)

    def begin(self, *, has_ranks: bool) -> None:
        """A training begins, with a learner that may lose a process (`has_ranks`) or not."""
        self._reached = {}
        if has_ranks:
            self.hold({_LEARNER: 0.0, _TIME_LOST: 0.0})

    def hold(self, metrics: Metrics) -> Metrics:
        """Keep the counts among the metrics for the next line; return the others."""
        others: Metrics = {}
        for name, number in metrics.items():
            if name.startswith(_RESTARTS) or name in _COUNTED:
                self._counts[name] = self._counts.get(name, 0.0) + number
            else:
                others[name] = number
        return others

    def forget(self, lines: Iterable[Metrics]) -> None:
        """Keep the counts of lines that are removed."""
        for line in lines:
            self.hold(line)

    def take(self) -> Metrics:
        """Return the counts since the last call."""
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0.0)
        return counts

    def learner_died(self) -> None:
        """The run goes back to a step."""
        self.hold({_LEARNER: 1.0})
        self._is_back = True

    def stands_at(self, step: int) -> None:
        """The run stands at the end of a step, in a state that is whole."""
        now = time.monotonic()
        if self._is_back:
            since = self._reached.get(step, min(self._reached.values(), default=now))
            self.hold({_TIME_LOST: now - since})
            self._is_back = False
        self._reached[step] = now
