"""Triton kernels of attention over pages: writing keys and values, attending, joining parts.

One kernel attends, for prompts and for decoding. A program has one query block (successive tokens
of one row) and one key-value head. The rows of its matrix products are the tokens times the query
heads that share the key-value head, so that keys and values are read once for all of them. If there
are few blocks, several programs share the keys of each, and a second kernel joins their results.

Everything that varies between passes is read from tensors, so that launches can be recorded.

Inside the kernels: M query rows (tokens times heads), N keys, D head size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from agentgym_rl.engines.paged.batch_pass import PagedPass
from agentgym_rl.engines.paged.pages import PAGE_SIZE, SCRAP_PAGE

_FEWEST_ROWS = 16
"""Of a matrix product."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """How the work of one program is divided; it affects results only by rounding."""

    block_keys: int
    """Keys to read at a time."""
    num_warps: int = 4
    num_stages: int = 2


def default_tuning(head_dim: int, dtype: torch.dtype) -> Tuning:
    """Return a tuning that fits the registers and shared memory of one multiprocessor."""
    is_wide = head_dim > 128 or dtype == torch.float32
    return Tuning(block_keys=32 if is_wide else 64)


def attend_paged(
    paged: PagedPass,
    layer: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    *,
    scale: float,
    window: int,
    tuning: Tuning | None = None,
) -> Tensor:
    """Do what `attend_reference` does; the output of tokens outside all blocks is undefined."""
    query_THD, key_TKD, value_TKD = map(_with_dense_heads, (query_THD, key_TKD, value_TKD))
    num_tokens, num_heads, head_dim = query_THD.shape
    num_kv_heads = key_TKD.shape[1]
    page_strides = paged.pages.stride()
    block_dim = max(_FEWEST_ROWS, triton.next_power_of_2(head_dim))
    _write_kernel[(num_tokens, num_kv_heads)](
        key_TKD, value_TKD, paged.pages, paged.table_RP, paged.rows_T, paged.positions_T, layer,
        key_TKD.stride(0), key_TKD.stride(1), value_TKD.stride(0), value_TKD.stride(1),
        paged.table_RP.stride(0), *page_strides[:4],
        HEAD_DIM=head_dim, BLOCK_D=block_dim, PAGE=PAGE_SIZE, SCRAP=SCRAP_PAGE, num_warps=1,
    )  # fmt: skip
    out_THD = torch.empty(query_THD.shape, dtype=query_THD.dtype, device=query_THD.device)
    num_splits, group = paged.num_splits, num_heads // num_kv_heads
    shape = (num_splits, num_tokens, num_heads)
    is_split = num_splits > 1
    parts_STHD = out_THD.new_empty((*shape, head_dim), dtype=torch.float32) if is_split else out_THD
    sums_STH = out_THD.new_empty(shape, dtype=torch.float32) if is_split else out_THD
    block_rows = max(_FEWEST_ROWS, triton.next_power_of_2(group * paged.block_tokens))
    tuning = tuning or default_tuning(head_dim, query_THD.dtype)
    _attend_kernel[(len(paged.block_starts_N), num_kv_heads, num_splits)](
        query_THD, paged.pages, out_THD, parts_STHD, sums_STH,
        paged.table_RP, paged.rows_T, paged.positions_T,
        paged.block_starts_N, paged.block_lengths_N, layer, scale * math.log2(math.e),
        query_THD.stride(0), query_THD.stride(1), num_tokens,
        paged.table_RP.stride(0), *page_strides[:4],
        NUM_SPLITS=num_splits, WINDOW=window, GROUP=group, NUM_HEADS=num_heads,
        HEAD_DIM=head_dim, BLOCK_M=block_rows, BLOCK_N=tuning.block_keys, BLOCK_D=block_dim,
        PAGE=PAGE_SIZE, PRECISION="ieee" if query_THD.dtype == torch.float32 else "tf32",
        num_warps=tuning.num_warps, num_stages=tuning.num_stages,
    )  # fmt: skip
    if is_split:
        _join_kernel[(num_tokens, num_heads)](
            parts_STHD, sums_STH, out_THD, num_tokens,
            NUM_SPLITS=num_splits, NUM_HEADS=num_heads, HEAD_DIM=head_dim, BLOCK_D=block_dim,
            num_warps=1,
        )  # fmt: skip
    return out_THD


def _with_dense_heads(tokens: Tensor) -> Tensor:
    return tokens if tokens.stride(2) == 1 else tokens.contiguous()


@triton.jit
def _write_kernel(  # noqa: PLR0913 - a kernel's arguments are its pointers, strides and sizes
    key, value, pages, table, rows, positions, layer,
    key_stride_t, key_stride_h, value_stride_t, value_stride_h,
    table_stride, stride_page, stride_layer, stride_kind, stride_head,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, PAGE: tl.constexpr, SCRAP: tl.constexpr,
):  # fmt: skip
    """Write the keys and values of one token and head; padding goes to the scrap page."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    position = tl.load(positions + token)
    row = tl.load(rows + token)
    place = tl.maximum(position, 0)
    page = tl.load(table + row * table_stride + place // PAGE)
    page = tl.where(position < 0, SCRAP, page).to(tl.int64)
    offs_d = tl.arange(0, BLOCK_D)
    in_head = offs_d < HEAD_DIM
    key_d = tl.load(key + token * key_stride_t + head * key_stride_h + offs_d, mask=in_head)
    value_d = tl.load(value + token * value_stride_t + head * value_stride_h + offs_d, mask=in_head)
    target = pages + page * stride_page + tl.load(layer) * stride_layer
    target += head * stride_head + (place % PAGE) * HEAD_DIM
    tl.store(target + offs_d, key_d, mask=in_head)
    tl.store(target + stride_kind + offs_d, value_d, mask=in_head)


@triton.jit(do_not_specialize=["num_tokens"])
def _attend_kernel(  # noqa: PLR0913 - as above
    query, pages, out, parts, sums, table, rows, positions, starts, lengths, layer, scale,
    query_stride_t, query_stride_h, num_tokens,
    table_stride, stride_page, stride_layer, stride_kind, stride_head,
    NUM_SPLITS: tl.constexpr, WINDOW: tl.constexpr, GROUP: tl.constexpr, NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend one block of tokens to a part of its row's keys; `scale` includes log2(e)."""
    kv_head = tl.program_id(1)
    first = tl.load(starts + tl.program_id(0))
    row_table = table + tl.load(rows + first) * table_stride
    begin = tl.load(positions + first).to(tl.int32)
    num_written = tl.load(lengths + tl.program_id(0)).to(tl.int32)
    length = tl.where(begin < 0, 0, num_written)
    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    token_m = offs_m // GROUP
    head_m = kv_head * GROUP + offs_m % GROUP
    position_m = begin + token_m
    place_m = (first + token_m) * query_stride_t + head_m * query_stride_h
    query_md = tl.load(
        query + place_m[:, None] + offs_d[None, :],
        mask=(token_m < length)[:, None] & (offs_d < HEAD_DIM)[None, :], other=0.0,
    )  # fmt: skip

    num_keys = tl.where(length > 0, begin + length, 0)
    # The first token of the block looks back furthest.
    first_block = tl.maximum(begin - WINDOW + 1, 0) // BLOCK_N if WINDOW > 0 else 0
    num_blocks = tl.cdiv(num_keys, BLOCK_N)
    share = tl.cdiv(tl.maximum(num_blocks - first_block, 0), NUM_SPLITS)
    low = first_block + tl.program_id(2) * share
    high = tl.minimum(low + share, num_blocks)

    base = pages + tl.load(layer) * stride_layer + kv_head * stride_head
    max_m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    sum_m = tl.zeros([BLOCK_M], tl.float32)
    out_md = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for index in range(low, high):
        offs_n = index * BLOCK_N + tl.arange(0, BLOCK_N)
        page_n = tl.load(row_table + offs_n // PAGE, mask=offs_n < num_keys, other=0)
        place_n = page_n.to(tl.int64) * stride_page + (offs_n % PAGE) * HEAD_DIM
        out_md, sum_m, max_m = _attend_keys(
            query_md, base, base + stride_kind, place_n, offs_n, position_m, num_keys,
            out_md, sum_m, max_m, scale, WINDOW, HEAD_DIM, BLOCK_D, PRECISION,
        )  # fmt: skip

    out_md = out_md / tl.where(sum_m > 0, sum_m, 1.0)[:, None]
    is_written_m = token_m < num_written  # with zeros, where the row is done
    is_written_md = is_written_m[:, None] & (offs_d < HEAD_DIM)[None, :]
    place_m = (first + token_m) * NUM_HEADS + head_m
    if NUM_SPLITS == 1:
        place_md = place_m[:, None] * HEAD_DIM + offs_d[None, :]
        tl.store(out + place_md, out_md.to(out.dtype.element_ty), mask=is_written_md)
    else:
        place_m += tl.program_id(2) * num_tokens * NUM_HEADS
        tl.store(parts + place_m[:, None] * HEAD_DIM + offs_d[None, :], out_md, mask=is_written_md)
        # The part's own sum, as a logarithm: -inf if it saw no key.
        tl.store(sums + place_m, max_m + tl.log2(sum_m), mask=is_written_m)


@triton.jit
def _attend_keys(  # noqa: PLR0913 - as above
    query_md, keys, values, place_n, offs_n, position_m, num_keys, out_md, sum_m, max_m, scale,
    WINDOW: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Add N keys to the running output, sum and maximum (online softmax, in powers of 2)."""
    offs_d = tl.arange(0, BLOCK_D)
    is_key_n = offs_n < num_keys
    key_dn = tl.load(
        keys + place_n[None, :] + offs_d[:, None],
        mask=(offs_d < HEAD_DIM)[:, None] & is_key_n[None, :], other=0.0,
    )  # fmt: skip
    score_mn = tl.dot(query_md, key_dn, input_precision=PRECISION) * scale
    sees_mn = is_key_n[None, :] & (offs_n[None, :] <= position_m[:, None])
    if WINDOW > 0:
        sees_mn = sees_mn & (offs_n[None, :] > position_m[:, None] - WINDOW)
    score_mn = tl.where(sees_mn, score_mn, float("-inf"))
    new_max_m = tl.maximum(max_m, tl.max(score_mn, 1))
    # Until a row has seen a key its maximum is -inf, from which nothing can be subtracted.
    safe_max_m = tl.where(new_max_m == float("-inf"), 0.0, new_max_m)
    weight_mn = tl.exp2(score_mn - safe_max_m[:, None])
    decay_m = tl.exp2(max_m - safe_max_m)
    value_nd = tl.load(
        values + place_n[:, None] + offs_d[None, :],
        mask=is_key_n[:, None] & (offs_d < HEAD_DIM)[None, :], other=0.0,
    )  # fmt: skip
    out_md = out_md * decay_m[:, None]
    out_md += tl.dot(weight_mn.to(value_nd.dtype), value_nd, input_precision=PRECISION)
    return out_md, sum_m * decay_m + tl.sum(weight_mn, 1), new_max_m


@triton.jit(do_not_specialize=["num_tokens"])
def _join_kernel(
    parts, sums, out, num_tokens,
    NUM_SPLITS: tl.constexpr, NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Join the parts of one token and head, weighted by their sums."""
    place = tl.program_id(0).to(tl.int64) * NUM_HEADS + tl.program_id(1)
    offs_s = tl.arange(0, NUM_SPLITS)
    offs_d = tl.arange(0, BLOCK_D)
    in_head = offs_d < HEAD_DIM
    place_s = place + offs_s.to(tl.int64) * num_tokens * NUM_HEADS
    log_sum_s = tl.load(sums + place_s)
    largest = tl.max(log_sum_s, 0)
    weight_s = tl.exp2(log_sum_s - tl.where(largest == float("-inf"), 0.0, largest))
    part_sd = tl.load(
        parts + place_s[:, None] * HEAD_DIM + offs_d[None, :], mask=in_head[None, :], other=0.0
    )
    total = tl.sum(weight_s, 0)
    out_d = tl.sum(part_sd * weight_s[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(out + place * HEAD_DIM + offs_d, out_d.to(out.dtype.element_ty), mask=in_head)
