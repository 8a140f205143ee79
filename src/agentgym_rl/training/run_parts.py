"""What a run consists of: one record, made by experiment/ and handed to every trainer.

Beside this record a trainer is handed its learner, algorithm and collector, as far as it has them
(`training/make.py` makes the usual ones); it builds none of them itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentgym_rl.config import RunConfig
from agentgym_rl.engines.base import Engine
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.episode import Participants
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.setbacks import Setbacks
from agentgym_rl.types import Episode, Task

if TYPE_CHECKING:  # start-up time: one process needs no torch.distributed
    from agentgym_rl.training.learner.sharded.sharded_learner import ShardedLearner

Evaluate = Callable[[int], Awaitable[Metrics]]
"""Evaluates the weights of a step and returns its `eval/` metrics."""


class CountsMetrics(Protocol):
    """What counts as a run goes on."""

    def take_metrics(self) -> dict[str, float]:
        """Return counts since the last call, by the names of metrics."""
        ...


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears of progress; all are called from the trainer's thread. Lists every event that a
    trainer reports."""

    on_episode: Callable[[Episode], None] | None = None
    on_step: Callable[[Metrics], None] = lambda _: None
    on_checkpoint: Callable[[Path, int], None] = lambda _path, _step: None
    """A checkpoint is complete; after `on_step` of its step."""
    stop_reason: Callable[[], str | None] = lambda: None
    """Asked after every step; where not None, the run ends as if the step had been its last."""


@dataclass(frozen=True, slots=True)
class RunEnv:
    """One environment of a run."""

    label: str
    """What its tasks, metrics and reports call it."""
    config: RunConfig
    """The run's settings, as they hold for it."""
    participants: Participants
    """Who plays its episodes; the policy is that of the run."""
    tasks: Sequence[Task]
    """What episodes are about, in the order of the environment, under its label."""
    weight: float = 1.0
    """Its share of tasks, relative to the others."""


@dataclass(frozen=True, slots=True)
class RunParts:
    """The parts of one run, the same for every method of training."""

    config: RunConfig
    policy: Policy
    folder: RunFolder
    envs: Sequence[RunEnv] = ()
    """Empty where no episode is collected (a warm start)."""
    evaluate: Evaluate | None = None
    """None: the run is not evaluated."""
    listeners: Listeners = Listeners()
    setbacks: Setbacks = field(default_factory=Setbacks)
    make_ranks: Callable[..., ShardedLearner] | None = None
    """Makes the learner on processes elsewhere, with the arguments of `Learner`; None: it is in
    this process, or on `training.shards` processes of this machine."""
    workers: CountsMetrics | None = None
    """The processes that play the episodes; None: this one does."""

    @property
    def engine(self) -> Engine:
        """What samples the replies of a run that collects episodes."""
        assert self.envs, "an online run has environments"
        return self.envs[0].participants.engine

    def take_env_metrics(self) -> Metrics:
        """Return what the sources of environments and the rollout workers have counted since the
        last call, added up."""
        metrics: Metrics = {}
        counting: list[CountsMetrics] = [env.participants.source for env in self.envs]
        for counts in [*counting, *([self.workers] if self.workers else [])]:
            for name, number in counts.take_metrics().items():
                metrics[name] = metrics.get(name, 0.0) + number
        return metrics
