"""Callbacks: how a program, or a recipe, follows a run while it trains.

The class to derive from is also `agentgym_rl.Callback`. Built in are `EarlyStop`, `KeepBest` and
`PushToHub`, from Python or by `[callbacks]` of a recipe.
"""

from agentgym_rl.callbacks.base import Callback, Callbacks
from agentgym_rl.callbacks.early_stop import EarlyStop
from agentgym_rl.callbacks.keep_best import KeepBest
from agentgym_rl.callbacks.push_to_hub import PushToHub

__all__ = ["Callback", "Callbacks", "EarlyStop", "KeepBest", "PushToHub"]
