"""Attention over a tree of sequences whose common beginnings are computed once.

The tokens of a stretch (prefix_tree.py) are the last tokens of a sequence: they see all stretches
on the way to them, and one another causally. So each stretch is causal attention with fewer queries
than keys, aligned at the end, which every kernel for packed sequences offers; windows included.
Its keys and values are those of its way, put together. Their gradients, one for each stretch that
sees a token, are summed in float32.

Shape legend: H heads, T packed tokens, D head size, B stretches, K keys of all stretches.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from agentgym_rl.models.attention import PackedSequences, attend_causal, attend_varlen
from agentgym_rl.models.device import on_device


class PackedTree(PackedSequences):
    """Stretches of the given lengths, one after another, and what each of them sees."""

    def __init__(
        self, lengths: Sequence[int], paths: Sequence[Sequence[int]], device: torch.device
    ) -> None:
        """A path has the numbers of the stretches that one sees, from the first to itself."""
        super().__init__(lengths, device)
        self._paths = paths
        num_keys = [sum(lengths[number] for number in path) for path in paths]
        self.max_keys = max(num_keys)
        borders = list(itertools.accumulate(num_keys, initial=0))
        self.key_borders = on_device(borders, device=device, dtype=torch.int32)
        """Where the keys of each stretch begin and those of the last one end, (B + 1)."""
        rows = torch.arange(sum(lengths)).split(list(lengths))
        places_K = torch.cat([rows[number] for path in paths for number in path])
        self.places_K = on_device(places_K, device=device, dtype=torch.long)
        """Where the keys of all stretches are, one stretch after another."""

    def _attend_all(
        self,
        query_HTD: Tensor,
        key_HTD: Tensor,
        value_HTD: Tensor,
        *,
        scale: float,
        window: int | None,
    ) -> Tensor:
        return attend_varlen(
            query_HTD,
            self._keys(key_HTD),
            self._keys(value_HTD),
            (self.borders, self.key_borders),
            max_lengths=(self.max_length, self.max_keys),
            scale=scale,
            window=window,
        )

    def _keys(self, key_HTD: Tensor) -> Tensor:
        """Return the keys that the stretches see, (H, K, D)."""
        # The gradients of a key from all stretches would lose bits if they were added in bfloat16.
        wide = torch.promote_types(key_HTD.dtype, torch.float32)
        found_KHD = key_HTD.transpose(0, 1).to(wide).index_select(0, self.places_K)
        return found_KHD.to(key_HTD.dtype).transpose(0, 1)

    @torch.compiler.disable  # a different program for every batch
    def _attend_each(self, *tokens: Tensor, scale: float, window: int | None) -> Tensor:
        query, key, value = (one.split(self._lengths, dim=1) for one in tokens)
        return torch.cat(
            [
                attend_causal(
                    part, _joined(key, path), _joined(value, path), scale=scale, window=window
                )
                for part, path in zip(query, self._paths, strict=True)
            ],
            dim=1,
        )


def _joined(parts: Sequence[Tensor], path: Sequence[int]) -> Tensor:
    if len(path) == 1:
        return parts[path[0]]
    return torch.cat([parts[number] for number in path], dim=1)
