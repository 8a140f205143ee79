"""Attention over packed tokens, for any transformers decoder, in training and in generation.

Sequences are packed one after another in a single row, without padding. The model runs with
`attn_implementation="agentgym"` and gets a `layout`, which knows where the sequences are. The
layout for training is here; that of a key-value cache is in engines/native/kv_cache.py.

Shape legend: H heads, T packed tokens, D head size, B sequences.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel

from agentgym_rl.errors import ConfigError
from agentgym_rl.models.device import on_device
from agentgym_rl.models.flash4 import attend_flash4, has_flash4

ATTENTION = "agentgym"


class CachedLayout(Protocol):
    """Where the sequences of a packed batch are, and their cached past."""

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
        """Return the attention output, (H, T, D); `window` limits how far back a token sees."""
        ...


AttentionLayout: TypeAlias = "PackedSequences | CachedLayout"


class PackedSequences:
    """Independent causal sequences of the given lengths, one after another.

    They are computed all at once if torch has a kernel for it (`has_varlen_kernel`), otherwise one
    by one. The former is the same program for every batch, with `borders` and `max_length` as its
    data, so a compiled layer contains it.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device) -> None:
        self._lengths = list(lengths)
        self.max_length = max(self._lengths)
        starts = list(itertools.accumulate(self._lengths, initial=0))
        self.borders = on_device(starts, device=device, dtype=torch.int32)
        """Where each sequence begins and the last one ends, (B + 1)."""

    def attend(
        self,
        query_HTD: Tensor,
        key_HTD: Tensor,
        value_HTD: Tensor,
        *,
        scale: float,
        window: int | None,
    ) -> Tensor:
        """Return the attention output, (H, T, D)."""
        has_kernel = has_varlen_kernel(query_HTD.device, query_HTD.dtype, query_HTD.shape[-1])
        attend = self._attend_all if has_kernel else self._attend_each
        return attend(query_HTD, key_HTD, value_HTD, scale=scale, window=window)

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
            key_HTD,
            value_HTD,
            (self.borders, self.borders),
            max_lengths=(self.max_length, self.max_length),
            scale=scale,
            window=window,
        )

    @torch.compiler.disable  # a different program for every batch
    def _attend_each(self, *tokens: Tensor, scale: float, window: int | None) -> Tensor:
        parts = zip(*(one.split(self._lengths, dim=1) for one in tokens), strict=True)
        return torch.cat(
            [attend_causal(q, k, v, scale=scale, window=window) for q, k, v in parts], dim=1
        )


@torch.compiler.assume_constant_result
def has_varlen_kernel(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Return whether torch's flash attention over packed sequences supports such tensors."""
    return (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and head_dim % 8 == 0
        and head_dim <= 256
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


_varlen_attn = varlen_attn
if "enable_gqa" in inspect.signature(varlen_attn).parameters:
    # Fewer key than query heads must be declared; torch 2.11 accepts them as they are.
    _varlen_attn = partial(varlen_attn, enable_gqa=True)


def attend_varlen(
    query_HTD: Tensor,
    key_HTD: Tensor,
    value_HTD: Tensor,
    borders: tuple[Tensor, Tensor],
    *,
    max_lengths: tuple[int, int],
    scale: float,
    window: int | None,
) -> Tensor:
    """Return causal attention of all sequences between the borders, in one call.

    Borders and greatest lengths are those of queries and of keys. Queries are the last tokens of
    their sequence: the kernels align them with the keys at the end.
    """
    query_THD, key_THD, value_THD = (
        tensor.transpose(0, 1).contiguous() for tensor in (query_HTD, key_HTD, value_HTD)
    )
    if window is None and has_flash4(query_THD.device, query_THD.dtype, query_THD.shape[-1]):
        return attend_flash4(
            query_THD, key_THD, value_THD, borders, max_lengths=max_lengths, scale=scale
        ).transpose(0, 1)
    out_THD = _varlen_attn(
        query_THD,
        key_THD,
        value_THD,
        *borders,
        *max_lengths,
        scale=scale,
        # Our window includes the token itself, the kernel's only those before it; -1 is no limit.
        window_size=(-1 if window is None else window - 1, 0),
    )
    assert isinstance(out_THD, Tensor), "no auxiliary output was asked for"
    return out_THD.transpose(0, 1)


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
    num_shares = query_HTD.shape[0] // key_HTD.shape[0]
    if query_HTD.is_cuda and num_shares > 1:
        # For shared heads with float32 or a mask, torch would write all scores to GPU memory.
        key_HTD = key_HTD.repeat_interleave(num_shares, dim=0)
        value_HTD = value_HTD.repeat_interleave(num_shares, dim=0)
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
    """Return which keys each query sees, (queries, keys); the queries are the last tokens."""
    key_positions = torch.arange(num_keys, device=device)
    query_positions = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
    mask = key_positions <= query_positions
    return mask if window is None else mask & (key_positions > query_positions - window)


def head_size(config: PretrainedConfig) -> int:
    """Return the width of an attention head, which not every architecture names."""
    named = getattr(config, "head_dim", None)
    return int(named or config.hidden_size // config.num_attention_heads)


def check_only_attention(model: PreTrainedModel, *, setting: str, off: str) -> None:
    """Raise ConfigError for a model whose tokens do not see one another by our attention alone.

    `setting` is what needs it, and `off` the setting of `training` that does without.
    """
    config, name = model.config.get_text_config(), type(model).__name__
    found = config._attn_implementation
    if found != ATTENTION:
        raise ConfigError(
            f"{setting} needs our own attention, and {name} has {found!r}: "
            f"load it with attn_implementation={ATTENTION!r}, or set training.{off}"
        )
    kinds = getattr(config, "layer_types", None) or ()  # few architectures name them
    other = set(kinds) - {"full_attention", "sliding_attention"}
    if other:
        raise ConfigError(
            f"{setting} works in attention only, and {name} also mixes tokens in layers of "
            f"the kind {', '.join(sorted(other))}: set training.{off}"
        )


def refuse_softcap(module: nn.Module, softcap: float | None) -> None:
    """Raise for a model whose attention our kernels do not support."""
    if softcap is not None:
        raise ValueError(
            f"{type(module).__name__} caps attention logits, which is not supported: use another "
            "model"
        )


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
    refuse_softcap(module, softcap)
    tokens = query[0], key[0], value[0]
    if isinstance(layout, PackedSequences):
        # Without the layer's number, which would make each layer a different program.
        out_HTD = layout.attend(*tokens, scale=scaling, window=sliding_window)
    else:
        layer = module.layer_idx
        assert isinstance(layer, int), "transformers numbers its attention modules"
        out_HTD = layout.attend(layer, *tokens, scale=scaling, window=sliding_window)
    return out_HTD.transpose(0, 1)[None], None


AttentionInterface.register(ATTENTION, _packed_attention)
