"""Schedules of the limit on rounds (ScalingInter-RL, arXiv:2509.08755, and beyond)."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, WrapValidator

from agentgym_rl.config.base import BaseConfig, or_own


def _must_grow(rounds: tuple[int, ...]) -> tuple[int, ...]:
    grows = all(later > earlier for earlier, later in itertools.pairwise(rounds))
    if rounds[0] < 1 or not grows:
        raise ValueError(
            f"must start at 1 or more and grow from stage to stage, got {list(rounds)}; "
            "for one limit throughout use rounds.type=fixed"
        )
    return rounds


GrowingRounds = Annotated[tuple[int, ...], AfterValidator(_must_grow)]


class RoundsBaseConfig(BaseConfig):
    """What every schedule of the limit on rounds has."""

    type: str

    rounds: int | tuple[int, ...] = 20
    """The limit, or the limits in order."""

    @property
    def longest(self) -> int:
        """The largest limit that the schedule reaches."""
        return self.rounds if isinstance(self.rounds, int) else max(self.rounds)


class FixedRoundsConfig(RoundsBaseConfig):
    """The same limit on rounds throughout."""

    type: Literal["fixed"] = "fixed"

    rounds: int = Field(default=20, ge=1)
    """Limit on rounds of an episode."""


class StepRoundsConfig(RoundsBaseConfig):
    """Raise the limit on rounds in stages (ScalingInter-RL, arXiv:2509.08755)."""

    type: Literal["scaling_inter_stepwise"] = "scaling_inter_stepwise"

    rounds: GrowingRounds = Field(min_length=1)
    """Limit on rounds of each stage, in order; must grow."""

    steps_per_stage: int = Field(gt=0)
    """Training steps before the next stage begins. The last stage never ends."""


class AdaptiveRoundsConfig(RoundsBaseConfig):
    """Raise the limit on rounds when the current one has nothing more to teach."""

    type: Literal["adaptive"] = "adaptive"

    rounds: GrowingRounds = Field(min_length=2)
    """Limit on rounds of each stage, in order; must grow."""

    window: int = Field(default=10, ge=1)
    """Steps over which success and truncation are averaged; a stage lasts at least this many."""


RoundsConfig = Annotated[
    FixedRoundsConfig | StepRoundsConfig | AdaptiveRoundsConfig,
    Field(discriminator="type"),
    WrapValidator(or_own(RoundsBaseConfig)),
    SerializeAsAny(),
]
