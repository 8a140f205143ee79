"""What runs and evaluations report while they are under way."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.evaluation.report import EvalReport
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.types import Episode


class Progress:
    """What a run reports while it is under way; override what is wanted."""

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        """A phase of `total` steps (or episodes) begins, `done` of them already behind."""

    def on_episode(self, episode: Episode) -> None:
        """An episode ended."""

    def on_kept(self, episodes: Sequence[Episode]) -> None:
        """These episodes are there already, from an earlier call."""

    def on_step(self, metrics: Metrics) -> None:
        """A training step ended."""

    def on_report(self, report: EvalReport) -> None:
        """An evaluation ended."""
