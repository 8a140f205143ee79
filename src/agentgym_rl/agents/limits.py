"""What an episode may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on one episode: an interaction enforces those on rounds, a transcript on tokens."""

    max_rounds: int
    """The horizon: rounds of one try."""
    max_tokens_per_round: int
    """Of one reply."""
    max_tokens: int
    """Of one context."""
    max_seconds: float
    max_invalid_actions: int = 0
    """Invalid actions in a row that end the try; 0 for no limit."""
    max_restarts: int = 0
    """How often an episode is restarted after an infrastructure failure."""
    picture_share: float = 0.0
    """Share of episodes that keep a picture per round, where the environment has pictures."""
