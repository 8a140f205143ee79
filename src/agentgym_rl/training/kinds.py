"""Kinds of tokens in the loss: what each weighs, and means over one kind.

Shape legend: A action tokens of a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from agentgym_rl.config import KindWeightsConfig
from agentgym_rl.types import Sample, SegmentKind

KindWeights = dict[SegmentKind, float]


def kind_weights(config: KindWeightsConfig) -> KindWeights:
    """Return the weight of each kind; empty where all weigh 1."""
    weights = {SegmentKind(name): weight for name, weight in config.model_dump().items()}
    return {} if all(weight == 1.0 for weight in weights.values()) else weights


def kinds_of_actions(sample: Sample) -> Iterator[SegmentKind]:
    """Yield the kind of each action token; without segments all are actions."""
    if not sample.segments:
        yield from [SegmentKind.ACTION] * sample.num_action_tokens
    for segment in sample.segments:
        yield from [segment.kind] * sum(sample.loss_mask[segment.start : segment.end])


def sums_by_kind(values_A: Tensor, kinds: Sequence[SegmentKind]) -> dict[SegmentKind, Tensor]:
    """Return the sum over the tokens of each kind; nothing where there are only actions."""
    found = sorted(set(kinds))
    if found in ([], [SegmentKind.ACTION]):
        return {}
    marks = values_A.new_tensor([found.index(kind) for kind in kinds])
    return {kind: values_A[marks == place].sum() for place, kind in enumerate(found)}
