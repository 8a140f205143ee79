"""What a trainer asks of its learner, wherever it runs: the seam between controller and learner.

`Learner` is one process, the controller's own; `ShardedLearner` is several, on this machine. Where
several are, any method raises LearnerDiedError if one of them has died; then all have been ended,
and another group, from the newest checkpoint, takes its place (experiment/recovery.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from agentgym_rl.training.algorithms.base import ScoredEpisode, ScoredSample, TrainingSample
from agentgym_rl.training.learner.learner import LossFunction, Observer
from agentgym_rl.training.learner.update_report import UpdateReport
from agentgym_rl.types import Group, Sample


class LearnerGroup(Protocol):
    """Scores and updates the weights of a run; the methods are documented at `Learner`."""

    def score(self, groups: Sequence[Group]) -> list[list[ScoredEpisode]]: ...

    def score_samples(self, samples: Sequence[Sample]) -> list[ScoredSample]: ...

    def update(
        self,
        samples: Sequence[TrainingSample],
        loss: LossFunction,
        *,
        updates_policy: bool = True,
        kept_share: float = 1.0,
        observe: Observer | None = None,
    ) -> UpdateReport: ...

    def fetch_weights(self) -> None: ...

    def schedule_after(self, num_updates: int) -> None: ...

    def take_rates(self) -> dict[str, float]: ...

    def restart(self) -> None: ...

    def save_state(self, folder: Path) -> Callable[[], None]: ...

    def restore_state(self, folder: Path) -> None: ...

    def check(self) -> None: ...

    def close(self) -> None: ...
