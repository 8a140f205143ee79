"""Gymnasium's toy-text games in words: names of actions, goals and rules.

They publish numbers only. What is here is used where a user gives nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentgym_rl.envs.adapters.outcome import Outcome, ended, ended_well


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """What a game's numbers mean."""

    goal: str
    rules: str
    actions: tuple[str, ...]
    """By number."""
    describe: Callable[[object, object], str] | None = None
    """Puts an observation of a game into words; None where the game draws it in characters."""
    success: Callable[[Outcome], bool] = ended_well


def find_preset(env_id: str) -> Preset | None:
    """Return the preset of an id, whatever its version and variant: "FrozenLake8x8-v1"."""
    for name, preset in _PRESETS.items():
        if env_id.startswith(name):
            return preset
    return None


def _describe_blackjack(game: object, observation: object) -> str:
    assert isinstance(observation, tuple)
    total, dealer, has_ace = (int(part) for part in observation)
    ace = "with an ace that counts 11" if has_ace else "without an ace that counts 11"
    return f"Your cards add up to {total}, {ace}. The dealer shows {dealer}."


_PRESETS: Mapping[str, Preset] = {
    "FrozenLake": Preset(
        goal="Reach G without falling into a hole H.",
        rules="You walk over a frozen lake, seen from above: S is the start, F ice, H a hole, "
        "G the goal, and brackets mark where you stand. The ice may be slippery: you may slide "
        "to the left or right of where you wanted to go. A hole ends the walk.",
        actions=("left", "down", "right", "up"),
    ),
    "CliffWalking": Preset(
        goal="Reach T without stepping on the cliff C.",
        rules="You walk over a field, seen from above: x is you, o is safe ground, C a cliff "
        "and T the target. A step on the cliff takes you back to the start.",
        actions=("up", "right", "down", "left"),
        success=ended,
    ),
    "Taxi": Preset(
        goal="Take the passenger to where they want to go.",
        rules="You drive a taxi through a town, seen from above. R, G, Y and B are stops; "
        "<blue ...> is where the passenger waits, <magenta ...> where they want to go, and "
        "brackets mark the taxi, as [_] with the passenger inside. You can cross : but not |. "
        "Drive to the passenger, do pickup, drive to the destination, and do dropoff.",
        actions=("south", "north", "east", "west", "pickup", "dropoff"),
    ),
    "Blackjack": Preset(
        goal="Get closer to 21 than the dealer, but not above 21.",
        rules="You play Blackjack against a dealer. hit takes one more card, stick ends your "
        "turn; then the dealer draws up to 17 and the higher sum wins. Above 21 you lose.",
        actions=("stick", "hit"),
        describe=_describe_blackjack,
    ),
}
