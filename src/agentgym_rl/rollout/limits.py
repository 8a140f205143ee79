"""The limits that a recipe and the model's context set for an episode."""

from __future__ import annotations

from agentgym_rl.agents.limits import Limits
from agentgym_rl.config import RunConfig


def episode_limits(
    config: RunConfig, *, max_context: int | None, max_rounds: int, picture_share: float = 1.0
) -> Limits:
    """Return the recipe's limits, with at most the tokens that the model accepts, if known."""
    rollout = config.rollout
    return Limits(
        max_rounds=max_rounds,
        max_tokens_per_round=rollout.max_tokens_per_round,
        max_tokens=min(rollout.max_tokens, max_context or rollout.max_tokens),
        max_seconds=rollout.max_seconds,
        max_invalid_actions=rollout.max_invalid_actions,
        max_restarts=rollout.max_restarts,
        picture_share=picture_share,
    )
