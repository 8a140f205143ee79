"""How a step of a Gymnasium environment went, and what counts as success."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a success rule may look at, after each step."""

    reward: float
    """Of this step, as the environment gave it."""
    total_reward: float
    """Of the episode so far."""
    terminated: bool
    truncated: bool
    info: Mapping[str, object]


def ended(outcome: Outcome) -> bool:
    """Success where the environment ends only when its goal is reached."""
    return outcome.terminated


def ended_well(outcome: Outcome) -> bool:
    """Success as far as an environment reports it: its own word for it, or an end that pays.

    Right for rewards at a goal; an environment that pays for surviving, or only ever takes away,
    needs another rule.
    """
    for key in ("is_success", "success"):
        if key in outcome.info:
            return bool(outcome.info[key])
    return outcome.terminated and outcome.reward > 0


def reaches(total_reward: float) -> Callable[[Outcome], bool]:
    """Return the rule that an episode ends with at least this much."""

    def rule(outcome: Outcome) -> bool:
        is_over = outcome.terminated or outcome.truncated
        return is_over and outcome.total_reward >= total_reward

    return rule
