"""Kinds of tokens in the loss: the weight of each kind, and means over one kind.

Shape legend: A action tokens of a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from torch import Tensor

from agentgym_rl.config import TokenKind
from agentgym_rl.models.device import on_device
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.types import Sample, SegmentKind

KindWeights = dict[SegmentKind, float]
ENTROPIES = {kind: f"train/entropy_{kind}" for kind in SegmentKind}
"""The metric of each kind's entropy."""


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


def entropy_sums(entropies_A: Tensor, batch: Sequence[TrainingSample]) -> dict[str, Tensor]:
    """Return the sum of entropies over the tokens of each kind, by the metric's name."""
    kinds = _kinds(batch)
    return {
        ENTROPIES[kind]: (
            entropies_A * per_token([float(own is kind) for own in kinds], entropies_A)
        ).sum()
        for kind in dict.fromkeys(kinds)
    }


def mean_entropies(
    totals: Mapping[str, float], batch: Sequence[TrainingSample]
) -> dict[str, float]:
    """Return the sums of `entropy_sums` as means over the tokens of each kind.

    Empty if all tokens are actions: the mean over all tokens is the same.
    """
    counts = Counter(_kinds(batch))
    if counts.keys() == {SegmentKind.ACTION}:
        return {}
    return {ENTROPIES[kind]: totals[ENTROPIES[kind]] / num for kind, num in counts.items()}


def per_token(numbers: Sequence[float], like: Tensor) -> Tensor:
    """Return one number per token, with the device and type of another tensor."""
    return on_device(numbers, device=like.device, dtype=like.dtype)


def _kinds(batch: Sequence[TrainingSample]) -> list[SegmentKind]:
    return [kind for item in batch for kind in kinds_of_actions(item.sample)]
