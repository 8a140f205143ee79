"""The layout of a paged key-value cache, and the packed tokens of one pass over it.

Shape legend: P pages, L layers, K key-value heads, T packed tokens, N query blocks, R rows,
D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PretrainedConfig

from agentgym_rl.engines.paged.pages import PAGE_SIZE
from agentgym_rl.models.attention import head_size

_PREFILL_BLOCK = 64
"""Query heads times tokens that one program of a kernel computes in a prompt."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The contents of a page of a model's cache."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    num_query_heads: int
    dtype: torch.dtype

    @classmethod
    def of(cls, config: PretrainedConfig, dtype: torch.dtype) -> CacheShape:
        return cls(
            num_layers=int(config.num_hidden_layers),
            num_kv_heads=int(config.num_key_value_heads),
            head_dim=head_size(config),
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
        """The most tokens of one row in a query block of a prompt."""
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
    """The first packed token of each query block (successive tokens of one row)."""
    block_lengths_N: Tensor
    """The number of its tokens; a block may be empty."""
    block_tokens: int
    """The most tokens in a block."""
    num_splits: int = 1
    """Parts of a block's keys that are computed in parallel."""
