"""Samples on their way to a rank: a few arrays instead of a Python number for each token.

Only what a pass needs travels. Numbers are float64, so nothing is rounded on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from agentgym_rl.training.algorithms.base import Scores, TrainingSample
from agentgym_rl.training.algorithms.episode_tokens import actions_of
from agentgym_rl.types import Sample, Segment

_Kind = TypeVar("_Kind", bound=np.generic)
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PackedSamples:
    """Training samples, one after another."""

    token_ids: npt.NDArray[np.int64]
    loss_mask: npt.NDArray[np.int8]
    lengths: npt.NDArray[np.int64]
    segments: tuple[tuple[Segment, ...], ...]
    columns: tuple[Numbers | None, ...]
    """One number for each action token: log-probabilities of the engine, advantages, the scores,
    returns; None where the samples have none."""


def pack(items: Sequence[TrainingSample]) -> PackedSamples:
    """Return the samples as arrays."""
    samples = [item.sample for item in items]
    return PackedSamples(
        token_ids=_joined([sample.token_ids for sample in samples], np.int64),
        loss_mask=_joined([sample.loss_mask for sample in samples], np.int8),
        lengths=np.array([item.length for item in items], dtype=np.int64),
        segments=tuple(sample.segments for sample in samples),
        columns=(
            _joined([actions_of(sample, sample.logprobs) for sample in samples], np.float64),
            _joined([item.advantages for item in items], np.float64),
            _column([item.scores.logprobs for item in items]),
            _column([item.scores.ref_logprobs for item in items]),
            _column([item.scores.values for item in items]),
            _column([item.returns for item in items]),
        ),
    )


def unpack(packed: PackedSamples) -> list[TrainingSample]:
    """Return the samples; rewards and versions, which no pass needs, are 0."""
    borders = packed.lengths.cumsum()[:-1]
    ids, masks = np.split(packed.token_ids, borders), np.split(packed.loss_mask, borders)
    if not len(packed.lengths):
        return []
    counts = np.array([mask.sum(dtype=np.int64) for mask in masks]).cumsum()[:-1]
    columns = [
        [None] * len(ids) if column is None else np.split(column, counts)
        for column in packed.columns
    ]
    return [
        _sample(own_ids, own_mask, segments, own)
        for own_ids, own_mask, segments, own in zip(
            ids, masks, packed.segments, zip(*columns, strict=True), strict=True
        )
    ]


def _sample(
    ids: npt.NDArray[np.int64],
    mask: npt.NDArray[np.int8],
    segments: tuple[Segment, ...],
    columns: Sequence[Numbers | None],
) -> TrainingSample:
    zeros = np.zeros(len(ids))
    logprobs = zeros.copy()
    logprobs[mask == 1] = columns[0]
    sample = Sample(
        token_ids=tuple(ids.tolist()),
        loss_mask=tuple(mask.tolist()),
        logprobs=tuple(logprobs.tolist()),
        rewards=tuple(zeros.tolist()),
        segments=segments,
        version=0,
    )
    advantages, *scores, returns = (
        None if column is None else tuple(column.tolist()) for column in columns[1:]
    )
    assert advantages is not None, "every training sample has them"
    return TrainingSample(sample, advantages, Scores(*scores), returns)


def _joined(parts: Sequence[Sequence[float]], kind: type[_Kind]) -> npt.NDArray[_Kind]:
    arrays = [np.array(part, dtype=kind) for part in parts]
    return np.concatenate([np.zeros(0, dtype=kind), *arrays])


def _column(parts: Sequence[Sequence[float] | None]) -> Numbers | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if len(known) != len(parts):
        raise ValueError(
            f"{len(parts) - len(known)} of {len(parts)} samples of one update lack a score that "
            "the others have; score all of them, or none"
        )
    return _joined(known, np.float64)
