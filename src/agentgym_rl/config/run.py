"""The configuration of one run, and the combinations that make no sense."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from agentgym_rl.config.base import BaseConfig
from agentgym_rl.config.sections import (
    AgentConfig,
    CheckpointConfig,
    EnvConfig,
    EvalConfig,
    FixedRoundsConfig,
    GRPOConfig,
    ModelConfig,
    NativeEngineConfig,
    RolloutConfig,
    SFTConfig,
    StepRoundsConfig,
    TrainingConfig,
    WarmStartConfig,
)

AlgorithmConfig = Annotated[GRPOConfig | SFTConfig, Field(discriminator="type")]
RoundsConfig = Annotated[FixedRoundsConfig | StepRoundsConfig, Field(discriminator="type")]


class RunConfig(BaseConfig):
    """Everything that decides a run, together with the code and the machine's arithmetic."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Decides the order of tasks, the noise of sampling and the weights of a new model."""

    env: EnvConfig = EnvConfig()
    model: ModelConfig = ModelConfig()
    agent: AgentConfig = AgentConfig()
    engine: NativeEngineConfig = NativeEngineConfig()
    rollout: RolloutConfig = RolloutConfig()
    rounds: RoundsConfig = FixedRoundsConfig()
    algorithm: AlgorithmConfig = GRPOConfig()
    training: TrainingConfig = TrainingConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    eval: EvalConfig = EvalConfig()

    @model_validator(mode="after")
    def _check_combinations(self) -> RunConfig:
        if isinstance(self.algorithm, GRPOConfig):
            self._check_online(self.algorithm)
        elif self.warm_start.steps:
            raise ValueError(
                f"warm_start.steps={self.warm_start.steps} precedes reinforcement learning only; "
                "with algorithm.type=sft set warm_start.steps=0 and use training.steps"
            )
        if self.rollout.max_tokens_per_round >= self.rollout.max_tokens:
            raise ValueError(
                f"rollout.max_tokens_per_round={self.rollout.max_tokens_per_round} leaves no room "
                f"for a prompt in rollout.max_tokens={self.rollout.max_tokens}; lower it or raise "
                "max_tokens"
            )
        return self

    def _check_online(self, algorithm: GRPOConfig) -> None:
        if self.rollout.temperature == 0:
            raise ValueError(
                "rollout.temperature=0 makes all episodes of a group the same, so nothing can be "
                "learned; set rollout.temperature=1"
            )
        if self.rollout.min_group_size > algorithm.group_size:
            raise ValueError(
                f"rollout.min_group_size={self.rollout.min_group_size} drops every group of "
                f"algorithm.group_size={algorithm.group_size}; lower min_group_size"
            )
        if self.training.updates_per_step > self.training.tasks_per_step:
            raise ValueError(
                f"training.updates_per_step={self.training.updates_per_step} needs at least as "
                f"many groups, but training.tasks_per_step={self.training.tasks_per_step}"
            )

    @property
    def longest_horizon(self) -> int:
        """The largest limit on rounds that the schedule reaches."""
        rounds = self.rounds.rounds
        return rounds if isinstance(rounds, int) else rounds[-1]

    @property
    def eval_max_rounds(self) -> int:
        return self.eval.max_rounds or self.longest_horizon
