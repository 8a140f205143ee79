"""Classes of a user's own, as recipes name them: "own_classes:Class"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.formats import ParsedReply
from agentgym_rl.agents.formats.plain import DirectFormat
from agentgym_rl.agents.interaction import Interaction
from agentgym_rl.config import (
    EngineBaseConfig,
    GRPOConfig,
    NativeEngineConfig,
    OnlineConfig,
    RoundsBaseConfig,
)
from agentgym_rl.engines.base import EngineSession
from agentgym_rl.engines.create import OwnEngine
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.training.algorithms.episode_tokens import EpisodeTokens
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.algorithms.online import Estimate, OnlineAlgorithm
from agentgym_rl.training.rounds import RoundScheduler


class SilentAgent(Agent):
    """Never asks the policy for anything."""

    async def play(self, interaction: Interaction) -> None:
        await interaction.reset()


class ScaledConfig(GRPOConfig):
    """Settings of `Scaled`."""

    scale: float = 1.0
    """What every advantage is multiplied by."""


class Scaled(GRPO):
    """GRPO with scaled advantages."""

    config_class = ScaledConfig

    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        assert isinstance(self.config, ScaledConfig), "validated by `config_class`"
        scale = self.config.scale
        return [Estimate(scale * item.advantages_A) for item in super().estimate(group)]


class Inheriting(GRPO):
    """Takes the settings of GRPO."""


class Plain(OnlineAlgorithm[OnlineConfig]):
    """Takes the settings that every algorithm has; every token counts the same."""

    def estimate(self, group: Sequence[EpisodeTokens]) -> list[Estimate]:
        return [Estimate(item.rewards_A.new_ones(item.num_tokens)) for item in group]


class OtherMaker(GRPO):
    """Cannot be made as algorithms are."""

    def __init__(self) -> None: ...


class LinearConfig(RoundsBaseConfig):
    """Settings of `Linear`."""

    rounds: tuple[int, int] = (1, 2)
    """The first and the last limit."""

    steps: int = 10
    """Training steps over which the limit grows."""


class Linear(RoundScheduler):
    """A limit that grows evenly."""

    config_class = LinearConfig

    def __init__(self, config: LinearConfig) -> None:
        super().__init__(config)
        self._config = config

    def max_rounds(self, step: int, history: Sequence[Metrics] = ()) -> int:
        first, last = self._config.rounds
        return min(last, first + (last - first) * (step - 1) // max(1, self._config.steps - 1))


class Shouting(DirectFormat):
    """Actions in capitals."""

    name = "shouting"

    def read(self, reply: str) -> ParsedReply:
        return super().read(reply.lower())

    def write(self, action: str, thought: str = "") -> str:
        return super().write(action).upper()


class Wrapped(OwnEngine):
    """The native engine behind a class of one's own."""

    def __init__(
        self, policy: Policy, config: EngineBaseConfig, *, folder: Path | None = None
    ) -> None:
        super().__init__(policy, config, folder=folder)
        self._inner = NativeEngine(policy, NativeEngineConfig(), folder=folder)

    def session(self, key: int) -> EngineSession:
        return self._inner.session(key)

    def publish(self, version: int) -> None:
        self._inner.publish(version)

    def close(self) -> None:
        self._inner.close()
