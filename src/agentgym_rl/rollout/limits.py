"""What a recipe's settings and the model's context let an episode use."""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.config import RunConfig


@dataclass(frozen=True, slots=True)
class Limits:
    """What an episode may use."""

    max_rounds: int
    """Of one attempt of the agent."""
    max_tokens_per_round: int
    """Of one reply."""
    max_tokens: int
    """Of one context."""
    max_seconds: float
    max_invalid_actions: int = 0
    """Invalid actions in a row that end the attempt; 0 for no limit."""
    max_attempts: int = 1
    """How often an episode is started that the infrastructure fails."""


def episode_limits(config: RunConfig, *, max_context: int | None, max_rounds: int) -> Limits:
    """Return the limits of the recipe, the token limit cut to what the model accepts, if known."""
    rollout = config.rollout
    return Limits(
        max_rounds=max_rounds,
        max_tokens_per_round=rollout.max_tokens_per_round,
        max_tokens=min(rollout.max_tokens, max_context or rollout.max_tokens),
        max_seconds=rollout.max_seconds,
        max_invalid_actions=rollout.max_invalid_actions,
        max_attempts=rollout.max_attempts,
    )
