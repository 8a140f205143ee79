"""What a recipe's settings and the model's context let an episode use."""

from __future__ import annotations

from agentgym_rl.config import RunConfig
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.episode import Limits


def episode_limits(config: RunConfig, policy: Policy, *, max_rounds: int) -> Limits:
    """Return the limits of the recipe, the token limit cut to what the model accepts."""
    rollout = config.rollout
    return Limits(
        max_rounds=max_rounds,
        max_tokens_per_round=rollout.max_tokens_per_round,
        max_tokens=min(rollout.max_tokens, policy.max_context),
        max_seconds=rollout.max_seconds,
        max_invalid_actions=rollout.max_invalid_actions,
        max_attempts=rollout.max_attempts,
    )
