"""A Triton kernel that draws tokens: it reads the logits twice, whatever the vocabulary.

Shape legend: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096


def draw_rows_fused(
    logits_BV: Tensor, temperatures_B: Tensor, uniforms_B: Tensor
) -> tuple[Tensor, Tensor]:
    """Do what `sampling.draw_rows` does.

    Sums are in another order, so a number on the border between two tokens, to the last bits, may
    give the other one.
    """
    assert logits_BV.stride(1) == 1, "logits are dense"
    num_rows, num_ids = logits_BV.shape
    tokens_B = torch.empty(num_rows, dtype=torch.long, device=logits_BV.device)
    logprobs_B = torch.empty(num_rows, dtype=torch.float32, device=logits_BV.device)
    _draw_kernel[(num_rows,)](
        logits_BV, temperatures_B, uniforms_B, tokens_B, logprobs_B,
        logits_BV.stride(0), num_ids, BLOCK=_BLOCK, num_warps=8,
    )  # fmt: skip
    return tokens_B, logprobs_B


@triton.jit
def _draw_kernel(
    logits, temperatures, uniforms, tokens, logprobs, stride, num_ids, BLOCK: tl.constexpr
):
    """Draw for one row: first the maximum and the sum, then the place where it is reached."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    is_greedy = temperature == 0.0
    temperature = tl.where(is_greedy, 1.0, temperature)
    logits += row * stride
    offs = tl.arange(0, BLOCK)

    largest = float("-inf")
    total = 0.0
    best = 0
    for start in range(0, num_ids, BLOCK):
        score = tl.load(logits + start + offs, mask=start + offs < num_ids, other=float("-inf"))
        score = score.to(tl.float32) / temperature
        top, place = tl.max(score, 0, return_indices=True)
        best = tl.where(top > largest, start + place, best)
        new_largest = tl.maximum(largest, top)
        safe_largest = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        total = total * tl.exp(largest - safe_largest) + tl.sum(tl.exp(score - safe_largest), 0)
        largest = new_largest

    threshold = tl.load(uniforms + row) * tl.cast(total, tl.float64)
    below = threshold * 0.0
    drawn = num_ids
    last = 0
    start = 0
    while (start < num_ids) & (drawn == num_ids):
        ids = start + offs
        score = tl.load(logits + ids, mask=ids < num_ids, other=float("-inf"))
        weight = tl.exp(score.to(tl.float32) / temperature - largest)
        is_past = (below + tl.cumsum(weight, 0).to(tl.float64) > threshold) & (weight > 0)
        drawn = tl.min(tl.where(is_past, ids, num_ids), 0)
        # If rounding leaves the sum short of the threshold, the last possible token is drawn.
        last = tl.maximum(last, tl.max(tl.where(weight > 0, ids, 0), 0))
        below += tl.sum(weight, 0).to(tl.float64)
        start += BLOCK

    token = tl.where(is_greedy, best, tl.where(drawn == num_ids, last, drawn))
    score = tl.load(logits + token).to(tl.float32) / temperature
    tl.store(tokens + row, token.to(tl.int64))
    tl.store(logprobs + row, tl.where(is_greedy, 0.0, score - largest - tl.log(total)))
