"""How the losses of tokens become one number, however an update is split into passes.

The loss of an update is  sum over its tokens of weight * loss  /  divisor.  Weights and divisor
belong to the whole update, so each pass simply adds its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["token_mean", "episode_mean", "constant"]


class Countable(Protocol):
    """A sample that knows the action tokens of itself and of its whole episode."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_episode_tokens(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Weights:
    """Of one update."""

    samples: tuple[float, ...]
    """The weight of every token of each sample."""
    divisor: float


@dataclass(frozen=True, slots=True)
class Aggregation:
    """`token_mean`: over the tokens of the update. `episode_mean`: over its episodes, of the mean
    over the tokens of each. `constant`: sum over tokens by (episodes * `constant_tokens`), which
    favours neither short nor long episodes (Dr.GRPO, arXiv:2503.20783).

    If groups without spread were dropped, `constant` still divides by the planned episodes, so that
    the other tasks keep their weight. The means are over the remaining episodes."""

    kind: Kind = "token_mean"
    constant_tokens: int = 1

    def weights(self, samples: Sequence[Countable], *, kept_share: float = 1.0) -> Weights:
        """Return the weights of an update; samples without action tokens count for nothing.

        `kept_share` is the part of the planned groups that was not dropped.
        """
        if self.kind == "token_mean":
            return Weights((1.0,) * len(samples), float(sum(item.num_tokens for item in samples)))
        # An episode whose context was edited has several samples, which share it by their tokens.
        shares = [item.num_tokens / max(1, item.num_episode_tokens) for item in samples]
        if self.kind == "constant":
            planned = sum(shares) / kept_share
            return Weights((1.0,) * len(samples), planned * self.constant_tokens)
        weights = tuple(1.0 / max(1, item.num_episode_tokens) for item in samples)
        return Weights(weights, sum(shares))
