"""Attention over a paged key-value cache, for packed new tokens of many rows.

A pass (`PagedPass`) gives the row and position of each packed token. The keys and values of all its
tokens are first written into the rows' pages; then every token attends to its row up to its own
position. One definition serves prompts (many tokens per row) and decoding (one token per row).

Models call it through transformers' attention interface, as `PAGED_ATTENTION`. For torch.compile it
is one opaque operator, `agentgym::attend_pages`. It finds the pass in this module rather than among
its arguments, so that one compiled layer serves every pass, and takes the number of the layer as a
tensor (see generation_model.py), so that it serves every layer.

Triton kernels compute on a GPU (attention_kernels.py); elsewhere `attend_reference` does, which
also tests the kernels.

Shape legend: K key-value heads, H query heads, T packed tokens, L keys, P pages, D head size.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from agentgym_rl.engines.paged.batch_pass import PagedPass
from agentgym_rl.engines.paged.pages import PAGE_SIZE, SCRAP_PAGE
from agentgym_rl.models.attention import refuse_softcap

PAGED_ATTENTION = "agentgym_paged"


class _Current(threading.local):
    paged: PagedPass | None = None


_current = _Current()


@contextlib.contextmanager
def running_pass(paged: PagedPass) -> Iterator[None]:
    """Make `attend_pages` in this thread work on this pass."""
    _current.paged = paged
    try:
        yield
    finally:
        _current.paged = None


# The operator changes none of its arguments: the pages are not among them.
@torch.library.custom_op("agentgym::attend_pages", mutates_args=())
def attend_pages(
    query_HTD: Tensor,
    key_HTD: Tensor,
    value_HTD: Tensor,
    layer: Tensor,
    scale: float,
    window: int,
) -> Tensor:
    """Write keys and values into the pages and return the attention output, (T, H, D)."""
    paged = _current.paged
    assert paged is not None, "attention over pages runs within `running_pass`"
    tokens = (query_HTD.transpose(0, 1), key_HTD.transpose(0, 1), value_HTD.transpose(0, 1))
    if query_HTD.is_cuda:
        # Triton comes only with GPU builds of torch.
        from agentgym_rl.engines.paged.attention_kernels import attend_paged

        return attend_paged(paged, layer, *tokens, scale=scale, window=window)
    return attend_reference(paged, layer, *tokens, scale=scale, window=window)


@attend_pages.register_fake
def _(
    query_HTD: Tensor,
    key_HTD: Tensor,
    value_HTD: Tensor,
    layer: Tensor,
    scale: float,
    window: int,
) -> Tensor:
    num_heads, num_tokens, head_dim = query_HTD.shape
    return query_HTD.new_empty(num_tokens, num_heads, head_dim)


def attend_reference(
    paged: PagedPass,
    layer: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    *,
    scale: float,
    window: int,
) -> Tensor:
    """Do what the kernels do, row by row in plain torch; padding tokens give zeros."""
    index = int(layer)
    _write_reference(paged, index, key_TKD, value_TKD)
    out_THD = torch.zeros(query_THD.shape, dtype=query_THD.dtype, device=query_THD.device)
    tokens_of: dict[int, list[int]] = {}
    positions = paged.positions_T.tolist()
    for token, (row, position) in enumerate(zip(paged.rows_T.tolist(), positions, strict=True)):
        if position >= 0:
            tokens_of.setdefault(row, []).append(token)
    for row, tokens in tokens_of.items():
        num_keys = 1 + max(positions[token] for token in tokens)
        pages_P = paged.table_RP[row, : -(-num_keys // PAGE_SIZE)].long()
        keys, values = paged.pages[pages_P, index].permute(1, 2, 0, 3, 4).flatten(2, 3)
        places_T = paged.positions_T[tokens, None]
        places_L = torch.arange(num_keys, device=places_T.device)
        mask = places_L <= places_T
        if window:
            mask &= places_L > places_T - window
        out_THD[tokens] = F.scaled_dot_product_attention(
            query_THD[tokens].transpose(0, 1)[None],
            keys[None, :, :num_keys],
            values[None, :, :num_keys],
            attn_mask=mask,
            scale=scale,
            enable_gqa=query_THD.shape[1] != key_TKD.shape[1],
        )[0].transpose(0, 1)
    return out_THD


def _write_reference(paged: PagedPass, layer: int, key_TKD: Tensor, value_TKD: Tensor) -> None:
    places_T = paged.positions_T.clamp(min=0)
    pages_T = paged.table_RP[paged.rows_T, places_T // PAGE_SIZE].long()
    pages_T = torch.where(paged.positions_T < 0, SCRAP_PAGE, pages_T)
    paged.pages[pages_T, layer, 0, :, places_T % PAGE_SIZE] = key_TKD
    paged.pages[pages_T, layer, 1, :, places_T % PAGE_SIZE] = value_TKD


def _paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: object,  # transformers passes every attention the union of what any attention takes
) -> tuple[Tensor, None]:
    """Answer transformers' attention interface: (1, H, T, D) in, (1, T, H, D) out."""
    assert attention_mask is None, "a pass says what its tokens see, not a mask"
    refuse_softcap(module, softcap)
    layer = module.layer_idx
    assert isinstance(layer, Tensor), "the model's copy for generation numbers with tensors"
    out_THD = attend_pages(query[0], key[0], value[0], layer, scaling, sliding_window or 0)
    return out_THD[None], None


AttentionInterface.register(PAGED_ATTENTION, _paged_attention)
