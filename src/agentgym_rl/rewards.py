"""Reward functions of a user's own: how one is found, and an episode under what it returns.

    def shorter_is_better(episode: Episode) -> float:
        return float(episode.success) - 0.01 * len(episode.rounds)

A function gets a finished episode (task with payload, rounds, messages, the environment's own
reward and metrics) and returns one of

    0.7                              the episode's reward, which goes to the last round
    {"answer": 1.0, "style": -0.3}   named parts; the reward is their weighted sum
    [0.0, 0.5, 0.2]                  one reward for each round

It may be `async`. What it returns takes the place of the environment's reward, which is kept as
`Episode.env_reward`; success stays what the environment said. Who calls it, when, and what a
failure becomes is in rollout/rewards.py (runs) and runs/rescoring.py (stored episodes).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from agentgym_rl.errors import ConfigError
from agentgym_rl.frozen import NOTHING, named_numbers
from agentgym_rl.lookup import load_object
from agentgym_rl.types import Episode, Sample, SegmentKind

Rewarding = float | Mapping[str, float] | Sequence[float]
"""What a reward function returns."""
RewardFunction = Callable[[Episode], Rewarding | Awaitable[Rewarding]]


def load_function(name: str, *, setting: str) -> RewardFunction:
    """Return the function behind "module:function"; imports the module.

    `setting` is where the name was given, for the message. Raises ConfigError.
    """
    given = f"{setting}={name!r}"
    try:
        found = load_object(name, given=given, form="module:function")
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not callable(found):
        raise ConfigError(f"{given} is not a function: it is {found!r}")
    check_arguments(found, given=given)
    return found


def check_arguments(function: RewardFunction, *, given: str) -> None:
    """Refuse a function that cannot be called with an episode alone. Raises ConfigError."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # one written in C may tell nothing
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{given} takes {signature}, and is called with the episode alone: {error}"
        ) from error


def weighted(parts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Return the sum of the parts, each times its weight; a part without one has weight 1."""
    return math.fsum(value * weights.get(name, 1.0) for name, value in parts.items())


def with_rewards(
    episode: Episode, given: Rewarding, *, weights: Mapping[str, float] = NOTHING
) -> Episode:
    """Return a completed episode under what a reward function gave it.

    Rewards count only in the last try, each on the last token of its round's action. Raises
    TypeError or ValueError for what is no reward.
    """
    parts = named_numbers(given, "the reward") if isinstance(given, Mapping) else NOTHING
    rewards = _rewards(episode, weighted(parts, weights) if isinstance(given, Mapping) else given)
    last = episode.rounds[-1].try_index if episode.rounds else 0
    rewards = [
        value if round_.try_index == last else 0.0
        for value, round_ in zip(rewards, episode.rounds, strict=True)
    ]
    rounds = [
        replace(round_, reward=value, reward_parts=NOTHING)
        for round_, value in zip(episode.rounds, rewards, strict=True)
    ]
    if rounds:
        rounds[-1] = replace(rounds[-1], reward_parts=parts)
    own = episode.reward if episode.env_reward is None else episode.env_reward
    return replace(
        episode,
        reward=math.fsum(rewards),
        env_reward=own,
        rounds=tuple(rounds),
        samples=tuple(_with_token_rewards(sample, rewards) for sample in episode.samples),
    )


def _rewards(episode: Episode, given: float | Sequence[float]) -> list[float]:
    """Return one number per round, checked."""
    num = len(episode.rounds)
    if given is None or isinstance(given, str | bytes):
        raise TypeError(f"a reward is a number, not {given!r}")
    if isinstance(given, Sequence):
        values = [float(value) for value in given]
    else:
        values = [*[0.0] * (num - 1), float(given)]
    if len(values) != num or not all(map(math.isfinite, values)):
        raise ValueError(
            f"the reward of {episode.task.id} must be a finite number, named parts, or one number "
            f"for each of its {num} rounds; got {given!r}"
        )
    return values


def _with_token_rewards(sample: Sample, rewards: Sequence[float]) -> Sample:
    """Return the sample with each round's reward on the last token of the action sampled in it."""
    tokens = [0.0] * len(sample.token_ids)
    for segment in sample.segments:
        is_learned = segment.kind is SegmentKind.ACTION and sample.loss_mask[segment.end - 1]
        if is_learned and segment.round_index < len(rewards):
            tokens[segment.end - 1] = rewards[segment.round_index]
    return replace(sample, rewards=tuple(tokens))
