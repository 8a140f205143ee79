"""What an algorithm is: advantages of groups, and the loss of tokens. The trainer knows no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from agentgym_rl.types import Group, Sample


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """A sample with what an algorithm made of it."""

    sample: Sample
    advantages: tuple[float, ...]
    """One for each action token of the sample, in order."""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """What a loss sees: one entry for each action token, samples one after another."""

    logprobs_A: Tensor
    """Under the present weights; carries the gradient."""
    old_logprobs_A: Tensor
    """Under the weights that sampled the token."""
    advantages_A: Tensor
    entropies_A: Tensor


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The loss of each token, and what to report as means over tokens."""

    loss_A: Tensor
    metrics: dict[str, Tensor]


class Algorithm(ABC):
    """An online algorithm."""

    @abstractmethod
    def advantages(self, groups: Sequence[Group]) -> list[list[TrainingSample]]:
        """Return the training samples of each group, in order."""

    @abstractmethod
    def loss(self, batch: TokenBatch) -> TokenLoss:
        """Return the loss of every token."""
