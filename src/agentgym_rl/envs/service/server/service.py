"""The episodes of one environment as every dialect of a server sees them.

A dialect (app.py, agentgym, openenv) turns its own requests into these calls and the answers
and errors back into its own shapes. Where the episodes run is the affair of who implements it.

What a call raises: `EnvBusyError` (no free place), `EnvGoneError` (no such episode any more),
`EnvTimeoutError`, `EnvError` (the environment failed; the episode is then gone),
`EpisodeStateError` (a step before the reset or after the end; the episode is as it was) and
`ProtocolError` (e.g. a wrong round).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.types import StepResult, Task


class EpisodeService(ABC):
    """Creates episodes and plays them. Episode ids are opaque and cannot be guessed."""

    spec: EnvSpec

    @abstractmethod
    async def tasks(self, split: str) -> tuple[Task, ...]:
        """Return every task of a split, in order. Raises ValueError for no such split."""

    @abstractmethod
    async def create(self) -> str:
        """Take a place and return the id of its episode; a reset comes next."""

    @abstractmethod
    async def reset(self, episode: str, task: Task) -> str:
        """Start the task anew and return the first observation."""

    @abstractmethod
    async def step(self, episode: str, round_index: int, action: str) -> StepResult:
        """Do round `round_index` (from 0 after each reset), or answer the latest one again."""

    @abstractmethod
    async def observation(self, episode: str) -> str:
        """Return the latest observation again."""

    @abstractmethod
    async def available_actions(self, episode: str) -> tuple[str, ...]:
        """Return the actions that make sense now; empty after the end and where unlisted."""

    @abstractmethod
    async def details(self, episode: str) -> Mapping[str, JsonValue]:
        """Return the environment's facts beyond the observation."""

    @abstractmethod
    async def render(self, episode: str) -> bytes | None:
        """Return a picture of the present state as PNG; None where there is none."""

    @abstractmethod
    async def close(self, episode: str) -> None:
        """Give the place back, also in the middle of a call. Safe to repeat, for any id."""
