"""What a paged key-value cache looks like, and the packed tokens of one pass over it.

Shape legend: P pages, L layers, K key-value heads, T packed tokens, N query blocks, R rows,
D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PretrainedConfig

from agentgym_rl.engines.paged.pages import PAGE_SIZE

_PREFILL_BLOCK = 64
"""Query heads times tokens that one program of a kernel computes together in a prompt."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a page of a model's cache holds."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    num_query_heads: int
    dtype: torch.dtype

    @classmethod
    def of(cls, config: PretrainedConfig, dtype: torch.dtype) -> CacheShape:
        head_dim = getattr(config, "head_dim", None)  # not every architecture names it
        return cls(
            num_layers=int(config.num_hidden_layers),
            num_kv_heads=int(config.num_key_value_heads),
            head_dim=int(head_dim or config.hidden_size // config.num_attention_heads),
            num_query_heads=int(config.num_attention_heads),
            dtype=dtype,
        )

    @property
    def page_bytes(self) -> int:
        """Bytes of one page, keys and values of all layers."""
        numbers = 2 * self.num_layers * self.num_kv_heads * PAGE_SIZE * self.head_dim
        return numbers * self.dtype.itemsize

    @property
    def prefill_block_tokens(self) -> int:
        """Tokens of one row that a query block of a prompt has at most."""
        return max(1, _PREFILL_BLOCK // (self.num_query_heads // self.num_kv_heads))

    def pages_in(self, memory: Tensor) -> Tensor:
        """Return bytes as pages (P, L, 2, K, PAGE_SIZE, D), keys before values."""
        shape = (self.num_layers, 2, self.num_kv_heads, PAGE_SIZE, self.head_dim)
        return memory.view(self.dtype).view(-1, *shape)


@dataclass(frozen=True, slots=True)
class PagedPass:
    """The packed new tokens of one pass; a padding token has position -1."""

    pages: Tensor
    """As `CacheShape.pages_in` shapes them."""
    table_RP: Tensor
    """The pages of each row, in order."""
    rows_T: Tensor
    positions_T: Tensor
    block_starts_N: Tensor
    """Query blocks: successive tokens of one row, from this packed token on,"""
    block_lengths_N: Tensor
    """and so many; a block may be empty."""
    block_tokens: int
    """The most tokens that a block has."""
    num_splits: int = 1
    """Into how many parts the keys of a block are divided, to be computed at the same time."""
