"""The kernels of generation against plain torch: attention over pages, drawing, noise."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from agentgym_rl.engines.paged.attention import attend_reference
from agentgym_rl.engines.paged.batch_pass import CacheShape, PagedPass
from agentgym_rl.engines.sampling import draw_rows, signed, uniform, uniforms
from gpu_models import CUDA

PASTS = (0, 1, 15, 16, 17, 63, 64, 200, 777)
NUM_LAYERS, LAYER, NUM_ROWS, NUM_PAGES = 2, 1, 12, 12 * 60
HEADS = [(9, 3, 64), (4, 2, 8), (12, 2, 128), (14, 2, 64), (8, 8, 80), (4, 1, 256)]
TOLERANCE = {torch.float32: 5e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random_pass(
    shape: CacheShape, *, is_decoding: bool, num_splits: int = 1
) -> tuple[PagedPass, tuple[Tensor, Tensor, Tensor]]:
    """Return a pass over rows of all kinds of pasts, some done, with random contents."""
    rng = random.Random(shape.head_dim)
    generator = torch.Generator(CUDA).manual_seed(shape.head_dim)
    block_tokens = 1 if is_decoding else shape.prefill_block_tokens
    rows: list[int] = []
    positions: list[int] = []
    blocks: list[tuple[int, int]] = []
    for row in range(NUM_ROWS):
        num = 1 if is_decoding else rng.choice([1, 5, 17, 40, 130])
        past = -1 if is_decoding and row % 5 == 2 else rng.choice(PASTS)
        blocks += [
            (len(rows) + offset, min(block_tokens, num - offset))
            for offset in range(0, num, block_tokens)
        ]
        rows += [row] * num
        positions += range(past, past + num)
    if not is_decoding:  # padding: tokens without a row, blocks without tokens
        rows += [NUM_ROWS] * 7
        positions += [-1] * 7
        blocks += [(0, 0)] * 3
    memory = torch.empty((NUM_PAGES + 1) * shape.page_bytes, dtype=torch.uint8, device=CUDA)
    pages = shape.pages_in(memory)
    pages.copy_(torch.randn(pages.shape, generator=generator, device=CUDA))
    table = torch.randperm(NUM_PAGES, generator=generator, device=CUDA)[: NUM_ROWS * 60] + 1
    table_RP = torch.cat([table.view(NUM_ROWS, 60), torch.zeros_like(table[None, :60])])
    starts, lengths = torch.tensor(blocks, device=CUDA).T
    paged = PagedPass(
        pages=pages,
        table_RP=table_RP.int(),
        rows_T=torch.tensor(rows, device=CUDA),
        positions_T=torch.tensor(positions, device=CUDA),
        block_starts_N=starts.contiguous(),
        block_lengths_N=lengths.contiguous(),
        block_tokens=block_tokens,
        num_splits=num_splits,
    )
    heads = (shape.num_query_heads, shape.num_kv_heads, shape.num_kv_heads)
    tokens = tuple(
        torch.randn(num, len(rows), shape.head_dim, generator=generator, device=CUDA)
        .to(shape.dtype)
        .transpose(0, 1)
        for num in heads
    )
    return paged, tokens


@pytest.mark.parametrize(
    ("is_decoding", "num_splits", "window"),
    [(False, 1, 0), (False, 4, 20), (True, 1, 0), (True, 4, 20), (True, 16, 0)],
)
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_dim", "dtype"),
    [
        *[(*heads, torch.bfloat16) for heads in HEADS],
        *[(*heads, torch.float32) for heads in HEADS[:2]],
        (*HEADS[0], torch.float16),
    ],
)
def test_attention_over_pages_is_that_of_the_reference(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    is_decoding: bool,
    num_splits: int,
    window: int,
):
    from agentgym_rl.engines.paged.attention_kernels import attend_paged

    shape = CacheShape(NUM_LAYERS, num_kv_heads, head_dim, num_heads, dtype)
    paged, tokens = random_pass(shape, is_decoding=is_decoding, num_splits=num_splits)
    before = paged.pages.clone()
    layer = torch.tensor(LAYER, device=CUDA)
    got_THD = attend_paged(paged, layer, *tokens, scale=head_dim**-0.5, window=window)
    written = paged.pages.clone()
    paged.pages.copy_(before)
    want_THD = attend_reference(paged, layer, *tokens, scale=head_dim**-0.5, window=window)
    assert torch.equal(written[1:], paged.pages[1:]), "keys and values went to other places"
    is_real_T = paged.positions_T >= 0
    difference = (got_THD - want_THD)[is_real_T].abs().max().item()
    assert difference < TOLERANCE[dtype], f"attention differs by {difference}"
    if is_decoding:
        assert not got_THD[~is_real_T].any(), "rows that are done must give zeros"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("vocab_size", [50, 4096, 49152, 151936])
def test_the_fused_drawing_is_the_plain_one(vocab_size: int, dtype: torch.dtype):
    from agentgym_rl.engines.paged.sampling_kernels import draw_rows_fused

    generator = torch.Generator(CUDA).manual_seed(vocab_size)
    num = 256
    logits_BV = 3 * torch.randn(num, vocab_size, generator=generator, device=CUDA)
    logits_BV = logits_BV.to(dtype)
    logits_BV[:, 7] = -float("inf")
    temperatures_B = torch.tensor([0.0, 0.7, 1.0, 1.5] * (num // 4), device=CUDA)
    uniforms_B = torch.rand(num, generator=generator, device=CUDA, dtype=torch.float64)
    uniforms_B[1], uniforms_B[2] = 0.0, 1 - 2**-53
    tokens_B, logprobs_B = draw_rows(logits_BV, temperatures_B, uniforms_B)
    got_tokens_B, got_logprobs_B = draw_rows_fused(logits_BV, temperatures_B, uniforms_B)
    same_B = tokens_B == got_tokens_B
    assert same_B.float().mean() > 0.98, f"{(~same_B).sum()} of {num} tokens are others"
    torch.testing.assert_close(got_logprobs_B[same_B], logprobs_B[same_B], atol=1e-4, rtol=1e-4)
    assert (got_tokens_B != 7).all()


def test_drawing_from_broken_logits_gives_a_logprob_that_says_so():
    from agentgym_rl.engines.paged.sampling_kernels import draw_rows_fused

    logits_BV = torch.zeros(4, 9000, device=CUDA)
    logits_BV[1, 5], logits_BV[2, 8000] = float("nan"), float("inf")
    uniforms_B = torch.full((4,), 0.5, device=CUDA, dtype=torch.float64)
    tokens_B, logprobs_B = draw_rows_fused(logits_BV, torch.ones(4, device=CUDA), uniforms_B)
    assert torch.isfinite(logprobs_B).tolist() == [True, False, False, True]
    assert ((tokens_B >= 0) & (tokens_B < 9000)).all()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_noise_on_the_gpu_is_bitwise_that_of_the_host(is_compiled: bool):
    rng = random.Random(0)
    keys = [0, 1, 2**63 - 1, 2**63, 2**64 - 1, *(rng.getrandbits(64) for _ in range(500))]
    positions = [rng.choice([0, 1, 15, 4096, 131071]) for _ in keys]
    function = torch.compile(uniforms, dynamic=True) if is_compiled else uniforms
    keys_B = torch.tensor([signed(key) for key in keys], device=CUDA)
    got = function(keys_B, torch.tensor(positions, device=CUDA))
    assert got.tolist() == list(map(uniform, keys, positions))
