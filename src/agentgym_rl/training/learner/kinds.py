"""Kinds of tokens in the loss: what each weighs, and means over one kind.

Shape legend: A action tokens of a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, get_args

from torch import Tensor

from agentgym_rl.config import TokenKind
from agentgym_rl.models.device import on_device
from agentgym_rl.types import Sample, SegmentKind

KindWeights = dict[SegmentKind, float]


class HasSample(Protocol):
    """A sample with anything else."""

    @property
    def sample(self) -> Sample: ...


def kind_weights(weights: Mapping[TokenKind, float]) -> KindWeights:
    """Return the weight of each kind (`agent.train`); empty where all weigh 1."""
    if not weights:
        return {}
    return {SegmentKind(kind): weights.get(kind, 1.0) for kind in get_args(TokenKind)}


def kinds_of_actions(sample: Sample) -> Iterator[SegmentKind]:
    """Yield the kind of each action token; without segments all are actions."""
    if not sample.segments:
        yield from [SegmentKind.ACTION] * sample.num_action_tokens
    for segment in sample.segments:
        yield from [segment.kind] * sum(sample.loss_mask[segment.start : segment.end])


def entropy_sums(entropies_A: Tensor, batch: Sequence[HasSample]) -> dict[str, Tensor]:
    """Return the sum of entropies over the tokens of each kind, by the metric's name."""
    kinds = _kinds(batch)
    return {
        _entropy(kind): (
            entropies_A * per_token([float(own is kind) for own in kinds], entropies_A)
        ).sum()
        for kind in dict.fromkeys(kinds)
    }


def mean_by_kind(totals: dict[str, float], batch: Sequence[HasSample]) -> dict[str, float]:
    """Take the sums by kind out of `totals` and return them as means.

    Where all tokens are actions there are none: the mean over all tokens says the same.
    """
    counts = Counter(_kinds(batch))
    means = {_entropy(kind): totals.pop(_entropy(kind)) / num for kind, num in counts.items()}
    return {} if counts.keys() == {SegmentKind.ACTION} else means


def per_token(numbers: Sequence[float], like: Tensor) -> Tensor:
    """Return one number a token where, and of the type that, another tensor is."""
    return on_device(numbers, device=like.device, dtype=like.dtype)


def _kinds(batch: Sequence[HasSample]) -> list[SegmentKind]:
    return [kind for item in batch for kind in kinds_of_actions(item.sample)]


def _entropy(kind: SegmentKind) -> str:
    return f"train/entropy_{kind}"
