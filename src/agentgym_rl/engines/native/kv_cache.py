"""Keys and values of many sessions, kept across rounds, and the attention that uses them.

Every session has a slot, a row of the buffers. A batch packs the new tokens of its sessions one
after another. Sessions with one new token (decoding) are computed together over all slots, those
with more (a prompt or an observation) one by one.

The attention of a session does not depend on the rest of the batch: new prompts are computed
separately, and keys are padded only if that changes nothing (decode_attention.py).

Shape legend: S slots, H heads, L cached tokens, T packed new tokens, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PretrainedConfig

from agentgym_rl.engines.native.decode_attention import (
    LENGTH_STEP,
    AgreeingLengths,
    HeadShape,
    attend_last,
    sees,
)
from agentgym_rl.engines.native.safe_rows import rung
from agentgym_rl.models.attention import attend_causal, head_size


@dataclass(frozen=True, slots=True)
class CacheSpan:
    """New tokens of one session: at `start` of the packed batch, after `past` cached ones."""

    slot: int
    start: int
    length: int
    past: int


class KeyValueCache:
    """Buffers of shape (S, H, L, D) for each layer, grown when more slots or tokens are needed."""

    def __init__(
        self, config: PretrainedConfig, *, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._num_layers = int(config.num_hidden_layers)
        self._num_heads = int(config.num_key_value_heads)
        self._head_dim = head_size(config)
        self._dtype, self._device = dtype, device
        self.lengths = AgreeingLengths(
            HeadShape(int(config.num_attention_heads), self._num_heads, self._head_dim, dtype)
        )
        self._free: list[int] = []
        self._num_slots = self._max_length = 0
        self.keys = [torch.empty(0) for _ in range(self._num_layers)]
        self.values = [torch.empty(0) for _ in range(self._num_layers)]

    def take_slot(self) -> int:
        if not self._free:
            self._grow(max(8, 2 * self._num_slots), self._max_length)
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        self._free.append(slot)
        # Lowest slots first: decoding reads all slots up to the highest in use.
        self._free.sort(reverse=True)

    def make_room(self, length: int) -> None:
        """Let every slot hold `length` tokens."""
        if length > self._max_length:
            length = rung(length, step=LENGTH_STEP)  # as far as decoding may read
            self._grow(self._num_slots, max(length, 2 * self._max_length))

    def _grow(self, num_slots: int, max_length: int) -> None:
        shape = (num_slots, self._num_heads, max_length, self._head_dim)
        for buffers in (self.keys, self.values):
            for layer in range(self._num_layers):
                # Zeros, because masked keys are still multiplied, by weights of zero.
                grown = torch.zeros(shape, dtype=self._dtype, device=self._device)
                if buffers[layer].numel():
                    grown[: self._num_slots, :, : self._max_length] = buffers[layer]
                buffers[layer] = grown
        self._free.extend(range(num_slots - 1, self._num_slots - 1, -1))
        self._free.sort(reverse=True)
        self._num_slots, self._max_length = num_slots, max_length


class _DecodeGroup:
    """Sessions with one new token that are computed together."""

    def __init__(self, spans: Sequence[CacheSpan], length: int) -> None:
        self._length = length
        # At least two (see decode_attention.py); the buffers always have more.
        self._num_slots = max(2, 1 + max(span.slot for span in spans))
        self._slots = torch.tensor([span.slot for span in spans])
        self.starts = torch.tensor([span.start for span in spans])
        self._past_S = torch.zeros(self._num_slots, dtype=torch.long)
        self._past_S[self._slots] = torch.tensor([span.past for span in spans])
        self._masks: dict[int | None, Tensor] = {}

    def attend(
        self, query_HTD: Tensor, keys: Tensor, values: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        """Return the output (H, sessions, D)."""
        query_SHD = query_HTD.new_zeros(self._num_slots, query_HTD.shape[0], query_HTD.shape[2])
        query_SHD[self._slots] = query_HTD[:, self.starts].transpose(0, 1)
        out_SHD = attend_last(
            query_SHD,
            keys[: self._num_slots, :, : self._length],
            values[: self._num_slots, :, : self._length],
            self._mask(window),
            scale=scale,
        )
        return out_SHD[self._slots].transpose(0, 1)

    def _mask(self, window: int | None) -> Tensor:
        """Return the mask, which is the same for all layers with this window."""
        if window not in self._masks:
            self._masks[window] = sees(self._past_S, self._length, window=window)
        return self._masks[window]


class CachedBatch:
    """The layout (models/attention.py) of a packed batch of new tokens whose past is cached."""

    def __init__(self, cache: KeyValueCache, spans: Sequence[CacheSpan]) -> None:
        self._cache = cache
        self._prefilling = [span for span in spans if span.length > 1]
        slots = [span.slot for span in spans for _ in range(span.length)]
        places = [span.past + offset for span in spans for offset in range(span.length)]
        self._slots_T, self._places_T = torch.tensor(slots), torch.tensor(places)
        decoding = [span for span in spans if span.length == 1]
        self._groups = [
            _DecodeGroup([decoding[place] for place in members], length)
            for length, members in cache.lengths.groups([span.past for span in decoding])
        ]

    def attend(
        self,
        layer: int,
        query_HTD: Tensor,
        key_HTD: Tensor,
        value_HTD: Tensor,
        *,
        scale: float,
        window: int | None,
    ) -> Tensor:
        keys, values = self._cache.keys[layer], self._cache.values[layer]
        num_new = len(self._slots_T)  # tokens beyond are padding of the batch
        keys[self._slots_T, :, self._places_T] = key_HTD[:, :num_new].transpose(0, 1)
        values[self._slots_T, :, self._places_T] = value_HTD[:, :num_new].transpose(0, 1)
        out_HTD = torch.zeros_like(query_HTD)
        for group in self._groups:
            out_HTD[:, group.starts] = group.attend(
                query_HTD, keys, values, scale=scale, window=window
            )
        for span in self._prefilling:
            rows, end = slice(span.start, span.start + span.length), span.past + span.length
            out_HTD[:, rows] = attend_causal(
                # Copied: its alignment must not depend on its place in the batch.
                query_HTD[:, rows].contiguous(),
                keys[span.slot, :, :end],
                values[span.slot, :, :end],
                scale=scale,
                window=window,
            )
        return out_HTD
