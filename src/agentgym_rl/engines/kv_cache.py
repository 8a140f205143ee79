"""Keys and values of many sessions, kept across rounds, and the attention that uses them.

Every session has a slot, a row of the buffers. A batch packs the new tokens of its sessions one
after another; sessions with one new token (decoding) are computed together over all slots, those
with more (a prompt or an observation) one by one.

What attention gives a session does not depend on the others in the batch: rows are computed
apart, and padding keys to a multiple of 64 adds exact zeros to sums whose order it keeps.

Shape legend: S slots, H heads, L cached tokens, T packed new tokens, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PretrainedConfig

from agentgym_rl.models.attention import attend_causal

_LENGTH_STEP = 64


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
        head_dim = getattr(config, "head_dim", None)  # not every architecture names it
        self._num_layers = int(config.num_hidden_layers)
        self._num_heads = int(config.num_key_value_heads)
        self._head_dim = int(head_dim or config.hidden_size // config.num_attention_heads)
        self._dtype, self._device = dtype, device
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
            self._grow(self._num_slots, max(_round_up(length), 2 * self._max_length))

    def _grow(self, num_slots: int, max_length: int) -> None:
        shape = (num_slots, self._num_heads, max_length, self._head_dim)
        for buffers in (self.keys, self.values):
            for layer in range(self._num_layers):
                # Zeros, because masked keys are still multiplied by weights of zero.
                grown = torch.zeros(shape, dtype=self._dtype, device=self._device)
                if buffers[layer].numel():
                    grown[: self._num_slots, :, : self._max_length] = buffers[layer]
                buffers[layer] = grown
        self._free.extend(range(num_slots - 1, self._num_slots - 1, -1))
        self._free.sort(reverse=True)
        self._num_slots, self._max_length = num_slots, max_length


class CachedBatch:
    """The layout (models/attention.py) of a packed batch of new tokens whose past is cached."""

    def __init__(self, cache: KeyValueCache, spans: Sequence[CacheSpan]) -> None:
        self._cache = cache
        self._decoding = [span for span in spans if span.length == 1]
        self._prefilling = [span for span in spans if span.length > 1]
        slots = [span.slot for span in spans for _ in range(span.length)]
        places = [span.past + offset for span in spans for offset in range(span.length)]
        self._slots_T, self._places_T = torch.tensor(slots), torch.tensor(places)
        self._decode_slots = torch.tensor([span.slot for span in self._decoding])
        self._decode_starts = torch.tensor([span.start for span in self._decoding])
        self._decode_masks: dict[int | None, Tensor] = {}

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
        if self._decoding:
            out_HTD[:, self._decode_starts] = self._decode(
                query_HTD, keys, values, scale=scale, window=window
            )
        for span in self._prefilling:
            rows, end = slice(span.start, span.start + span.length), span.past + span.length
            out_HTD[:, rows] = attend_causal(
                query_HTD[:, rows],
                keys[span.slot, :, :end],
                values[span.slot, :, :end],
                scale=scale,
                window=window,
            )
        return out_HTD

    def _decode(
        self, query_HTD: Tensor, keys: Tensor, values: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        """Return the output (H, decoding, D) of one new token for each decoding session."""
        mask = self._decode_mask(window)
        num_slots, length = mask.shape[0], mask.shape[-1]
        query_SHD = query_HTD.new_zeros(num_slots, query_HTD.shape[0], query_HTD.shape[2])
        query_SHD[self._decode_slots] = query_HTD[:, self._decode_starts].transpose(0, 1)
        out_SHD = F.scaled_dot_product_attention(
            query_SHD[:, :, None],
            keys[:num_slots, :, :length],
            values[:num_slots, :, :length],
            attn_mask=mask,
            scale=scale,
            enable_gqa=query_HTD.shape[0] != keys.shape[1],
        )[:, :, 0]
        return out_SHD[self._decode_slots].transpose(0, 1)

    def _decode_mask(self, window: int | None) -> Tensor:
        """Return which cached tokens each slot sees, (S, 1, 1, L); the same for all layers."""
        if window not in self._decode_masks:
            num_slots = 1 + max(span.slot for span in self._decoding)
            length = _round_up(1 + max(span.past for span in self._decoding))
            past_S = torch.zeros(num_slots, dtype=torch.long)
            past_S[self._decode_slots] = torch.tensor([span.past for span in self._decoding])
            places_L = torch.arange(length)
            mask = places_L <= past_S[:, None]
            if window is not None:
                mask &= places_L > past_S[:, None] - window
            self._decode_masks[window] = mask[:, None, None]
        return self._decode_masks[window]


def _round_up(length: int) -> int:
    return -(-length // _LENGTH_STEP) * _LENGTH_STEP
