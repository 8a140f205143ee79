"""From a recipe to its algorithm: the only place that knows them all."""

from __future__ import annotations

from agentgym_rl.config import (
    GiGPOConfig,
    GRPOConfig,
    PPOConfig,
    ReinforcePPConfig,
    RLOOConfig,
    RunConfig,
)
from agentgym_rl.training.algorithms.base import Algorithm
from agentgym_rl.training.algorithms.gigpo import GiGPO
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.algorithms.online import SharedSettings
from agentgym_rl.training.algorithms.ppo import PPO
from agentgym_rl.training.algorithms.reinforce_pp import ReinforcePP
from agentgym_rl.training.algorithms.rloo import RLOO


def make_algorithm(config: RunConfig) -> Algorithm:
    """Return the online algorithm that the recipe describes."""
    shared = SharedSettings(
        config.credit, config.policy_loss, config.kl, max_tokens=config.rollout.max_tokens
    )
    match config.algorithm:
        case GRPOConfig():
            return GRPO(config.algorithm, shared)
        case RLOOConfig():
            return RLOO(config.algorithm, shared)
        case ReinforcePPConfig():
            return ReinforcePP(config.algorithm, shared)
        case GiGPOConfig():
            return GiGPO(config.algorithm, shared)
        case PPOConfig():
            return PPO(config.algorithm, shared)
    raise ValueError(f"algorithm.type={config.algorithm.type} is no online algorithm")
