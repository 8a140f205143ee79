"""Reward functions for tests, reached by name: "reward_functions:of_parts"."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from agentgym_rl.types import Episode
from fakes import hang

THREADS: list[str] = []
"""Names of the threads that `on_its_thread` ran on."""

NOT_A_FUNCTION = 3


def by_length(episode: Episode) -> float:
    """The environment's own reward, less a quarter for each round."""
    return (episode.reward or 0.0) - 0.25 * len(episode.rounds)


def of_parts(episode: Episode) -> Mapping[str, float]:
    """Named parts, made of all that a function can see."""
    assert episode.messages and episode.rounds[0].observation
    return {
        "own": episode.reward or 0.0,
        "rounds": -0.125 * len(episode.rounds),
        "goal": float(str(episode.task.payload.get("goal", 0))),
    }


async def judged(episode: Episode) -> float:
    """An async function, as one that asks a judge."""
    await asyncio.sleep(0)
    return 0.5 + float(episode.success)


def on_its_thread(episode: Episode) -> float:
    THREADS.append(threading.current_thread().name)
    return 1.0


def hanging(episode: Episode) -> float:
    hang()
    return 1.0


def broken(episode: Episode) -> float:
    raise KeyError("no such answer")


def not_a_number(episode: Episode) -> float:
    return float("nan")


def a_text(episode: Episode) -> float:
    return "1.0"  # type: ignore[return-value]  # what it is here to do
