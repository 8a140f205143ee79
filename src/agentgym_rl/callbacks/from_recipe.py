"""The callbacks that `[callbacks]` of a recipe asks for."""

from __future__ import annotations

from collections.abc import Iterator

from agentgym_rl.callbacks.base import Callback
from agentgym_rl.callbacks.early_stop import EarlyStop
from agentgym_rl.callbacks.keep_best import KeepBest
from agentgym_rl.callbacks.push_to_hub import PushToHub
from agentgym_rl.config import RunConfig


def recipe_callbacks(config: RunConfig) -> Iterator[Callback]:
    """Yield them; raises ConfigError for what cannot work."""
    asked = config.callbacks
    if asked.keep_best:
        yield KeepBest(asked.metric, mode=asked.mode)
    if asked.early_stop:
        yield EarlyStop(
            asked.metric,
            patience=asked.early_stop,
            min_change=asked.min_change,
            mode=asked.mode,
        )
    if asked.push_to_hub:
        yield PushToHub(asked.push_to_hub)
