"""Keys and values of many sessions, kept across rounds, and the attention that uses them.

Every session has a slot, a row of the buffers. A batch packs the new tokens of its sessions one
after another. Sessions with one new token (decoding) are computed together over all slots, those
with more (a prompt or an observation) one by one.

The attention of a session does not depend on the rest of the batch: new prompts are computed
separately, and keys are padded only if that changes nothing (decode_attention.py).

Shape legend: S slots, H heads, L cached tokens, T packed new tokens, W tokens to write, D head
size.
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
    copies: tuple[int, ...] = ()
    """Slots of sessions of the same history, which get the same keys and values."""


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


class _Writes:
    """Where the new tokens of a batch go: those of a session to its slot and to its copies'."""

    def __init__(self, spans: Sequence[CacheSpan]) -> None:
        slots, places, rows = list[int](), list[int](), list[int]()
        for span in spans:
            for slot in (span.slot, *span.copies):
                slots += [slot] * span.length
                places += range(span.past, span.past + span.length)
                rows += range(span.start, span.start + span.length)
        self._slots_W, self._places_W, self._rows_W = map(torch.tensor, (slots, places, rows))

    def put(self, buffer: Tensor, new_HTD: Tensor) -> None:
        buffer[self._slots_W, :, self._places_W] = new_HTD.transpose(0, 1)[self._rows_W]


class _DecodeGroup:
    """Sessions with one new token that are computed together."""

    def __init__(self, spans: Sequence[CacheSpan], length: int) -> None:
        self._length = length
        self.starts = torch.tensor([span.start for span in spans])
        slots, pasts = [span.slot for span in spans], [span.past for span in spans]
        # At least two (see decode_attention.py); the buffers always have more.
        num_slots = max(2, 1 + max(slots))
        self._is_sparse = 2 * len(spans) <= num_slots
        """Whether copying the keys of these slots is faster than attending over all slots."""
        if self._is_sparse:
            num_more = max(0, 2 - len(spans))
            self._slots = torch.tensor(slots + slots[:num_more])
            self._places = torch.arange(len(spans))
            self._past_S = torch.tensor(pasts + pasts[:num_more])
        else:
            self._slots = torch.arange(num_slots)
            self._places = torch.tensor(slots)
            self._past_S = torch.zeros(num_slots, dtype=torch.long)
            self._past_S[self._places] = torch.tensor(pasts)
        self._masks: dict[int | None, Tensor] = {}

    def attend(
        self, query_HTD: Tensor, keys: Tensor, values: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        """Return the output (H, sessions, D)."""
        query_SHD = query_HTD.new_zeros(len(self._slots), query_HTD.shape[0], query_HTD.shape[2])
        query_SHD[self._places] = query_HTD[:, self.starts].transpose(0, 1)
        out_SHD = attend_last(
            query_SHD, self._own(keys), self._own(values), self._mask(window), scale=scale
        )
        return out_SHD[self._places].transpose(0, 1)

    def _own(self, buffer: Tensor) -> Tensor:
        """Return what the slots of this group have, (S, H, L, D)."""
        cut = buffer[:, :, : self._length]
        return cut.index_select(0, self._slots) if self._is_sparse else cut[: len(self._slots)]

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
        self._writes = _Writes(spans)
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
        self._writes.put(keys, key_HTD)
        self._writes.put(values, value_HTD)
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
