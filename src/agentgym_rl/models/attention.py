"""Attention over packed tokens, for any transformers decoder, in training and in generation.

Sequences are laid one after another in a single row, without padding. The model runs with
`attn_implementation="agentgym"` and gets a `layout`, which knows where the sequences are: here the
one for training; engines/kv_cache.py has the one that reads and writes a key-value cache.

Shape legend: H heads, T packed tokens, D head size.
"""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

ATTENTION = "agentgym"


class AttentionLayout(Protocol):
    """Where the sequences of a packed batch are."""

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
        """Return the attention output, (H, T, D); `window` limits how far back a token looks."""
        ...


class PackedSequences:
    """Independent causal sequences of the given lengths, one after another."""

    def __init__(self, lengths: list[int]) -> None:
        self._lengths = lengths

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
        parts = zip(
            query_HTD.split(self._lengths, dim=1),
            key_HTD.split(self._lengths, dim=1),
            value_HTD.split(self._lengths, dim=1),
            strict=True,
        )
        return torch.cat(
            [attend_causal(q, k, v, scale=scale, window=window) for q, k, v in parts], dim=1
        )


def attend_causal(
    query_HTD: Tensor, key_HTD: Tensor, value_HTD: Tensor, *, scale: float, window: int | None
) -> Tensor:
    """Return causal attention of one sequence; the queries are its last tokens."""
    num_queries, num_keys = query_HTD.shape[1], key_HTD.shape[1]
    needs_window = window is not None and num_keys > window
    is_whole = num_queries == num_keys and not needs_window
    mask = (
        None
        if is_whole
        else causal_mask(num_queries, num_keys, window=window, device=query_HTD.device)
    )
    return F.scaled_dot_product_attention(
        query_HTD[None],
        key_HTD[None],
        value_HTD[None],
        attn_mask=mask,
        is_causal=is_whole,
        scale=scale,
        enable_gqa=query_HTD.shape[0] != key_HTD.shape[0],
    )[0]


def causal_mask(
    num_queries: int, num_keys: int, *, window: int | None, device: torch.device
) -> Tensor:
    """Return which key each query sees, (queries, keys), the queries being the last tokens."""
    key_positions = torch.arange(num_keys, device=device)
    query_positions = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
    mask = key_positions <= query_positions
    return mask if window is None else mask & (key_positions > query_positions - window)


def _packed_attention(  # noqa: PLR0913 - the signature is transformers'
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    layout: AttentionLayout,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,  # transformers passes every attention the union of what any attention takes
) -> tuple[Tensor, None]:
    """Answer transformers' attention interface: (1, H, T, D) in, (1, T, H, D) out."""
    assert attention_mask is None, "packed batches carry a layout, not a mask"
    if softcap is not None:
        raise ValueError(
            f"{type(module).__name__} caps attention logits, which is not supported yet"
        )
    layer = module.layer_idx
    assert isinstance(layer, int), "transformers numbers its attention modules"
    out_HTD = layout.attend(layer, query[0], key[0], value[0], scale=scaling, window=sliding_window)
    return out_HTD.transpose(0, 1)[None], None


AttentionInterface.register(ATTENTION, _packed_attention)
