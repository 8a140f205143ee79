"""A checksum of a model's weights, computed where they are.

It is for accidents: a piece that is lost, sent twice or out of place, or an update that one engine
has not got. The bits of each weight are summed by rows and by columns, and each sum counts by its
place, so a device reads the weights twice and sends home eight bytes for each tensor.

Shape legend: N bytes, R rows, C columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

_NUM_COLUMNS = 1024
_ODD = 0x9E3779B1
"""Makes neighbouring places count very differently."""
_MASK = (1 << 64) - 1


class WeightChecksum:
    """Adds up weights in a fixed order; two models are equal if their values are."""

    def __init__(self) -> None:
        self._sums: list[Tensor] = []

    def add(self, weight: Tensor) -> None:
        self._sums.append(_sum_of(weight.detach()))

    @property
    def value(self) -> int:
        """64 bits."""
        total = 0
        if self._sums:
            for part in torch.stack(self._sums).tolist():
                total = (total * _ODD + part + 1) & _MASK
        return total


def _sum_of(weight: Tensor) -> Tensor:
    """Return a sum that depends on every bit and, nearly always, on every place."""
    bytes_N = weight.contiguous().view(-1).view(torch.uint8)
    num_whole = len(bytes_N) // (4 * _NUM_COLUMNS) * _NUM_COLUMNS
    words_RC = bytes_N[: 4 * num_whole].view(torch.int32).view(-1, _NUM_COLUMNS)
    rest = bytes_N[4 * num_whole :]
    # Sums of 32 bits wrap around, whatever their order, and are ten times as fast as wider ones.
    parts = (words_RC.sum(dim=1, dtype=torch.int32), words_RC.sum(dim=0, dtype=torch.int32), rest)
    total = torch.zeros((), dtype=torch.int64, device=weight.device)
    for number, part in enumerate(parts):
        places = torch.arange(1, len(part) + 1, device=weight.device)
        total = total + (part.long() * (places * _ODD + number)).sum()
    return total
