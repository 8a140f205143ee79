"""torch's attention over packed sequences for the CPU, where it has no kernel of its own.

With it the program that a GPU runs, layers compiled with their attention inside, can be tested
without one. Causal attention without a window only.

Shape legend: T packed tokens, H query and K key-value heads, L tokens of a sequence, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def install() -> None:
    """Register the kernels; for the life of the process, and on the CPU alone."""
    torch.library.register_kernel("torch_attn::_varlen_attn", "cpu", _forward)
    torch.library.register_kernel("torch_attn::_varlen_attn_backward", "cpu", _backward)


def _forward(
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    borders: Tensor,
    _borders_of_keys: Tensor,
    max_length: int,
    _max_keys: int,
    is_causal: bool,
    scale: float,
    *_: object,  # what versions of torch have added
) -> tuple[Tensor, Tensor, Tensor]:
    assert is_causal, "windows are not supported here"
    out_THD = torch.empty_like(query_THD)
    shares = query_THD.shape[1] // key_TKD.shape[1]
    for part in _parts(borders, max_length):
        query_HLD, key_HLD, value_HLD = _heads(query_THD, key_TKD, value_TKD, part, shares)
        weights_HLL = _weights(query_HLD, key_HLD, scale)
        out_THD[part] = (weights_HLL @ value_HLD).transpose(0, 1).to(out_THD.dtype)
    logsumexp_HT = torch.zeros(query_THD.shape[1], query_THD.shape[0])
    return out_THD, logsumexp_HT, torch.zeros(2, dtype=torch.uint64)


def _backward(
    grad_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    _out: Tensor,
    _logsumexp: Tensor,
    borders: Tensor,
    _borders_of_keys: Tensor,
    max_length: int,
    _max_keys: int,
    _is_causal: bool,
    _rng_state: Tensor,
    scale: float,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    grads = torch.empty_like(query_THD), torch.empty_like(key_TKD), torch.empty_like(value_TKD)
    num_kv_heads = key_TKD.shape[1]
    shares = query_THD.shape[1] // num_kv_heads
    for part in _parts(borders, max_length):
        query_HLD, key_HLD, value_HLD = _heads(query_THD, key_TKD, value_TKD, part, shares)
        weights_HLL = _weights(query_HLD, key_HLD, scale)
        grad_HLD = grad_THD[part].transpose(0, 1).float()
        grad_weights_HLL = grad_HLD @ value_HLD.mT
        sums_HL1 = (grad_weights_HLL * weights_HLL).sum(dim=-1, keepdim=True)
        grad_scores_HLL = weights_HLL * (grad_weights_HLL - sums_HL1) * scale
        found = (
            grad_scores_HLL @ key_HLD,
            (grad_scores_HLL.mT @ query_HLD).unflatten(0, (num_kv_heads, shares)).sum(dim=1),
            (weights_HLL.mT @ grad_HLD).unflatten(0, (num_kv_heads, shares)).sum(dim=1),
        )
        for grad, of_part in zip(grads, found, strict=True):
            grad[part] = of_part.transpose(0, 1).to(grad.dtype)
    return grads


def _parts(borders: Tensor, max_length: int) -> Iterator[slice]:
    for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        assert end - start <= max_length
        yield slice(start, end)


def _heads(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, part: slice, shares: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a sequence's heads in float32, keys and values once for each query head."""
    query_HLD, key_KLD, value_KLD = (
        tensor[part].transpose(0, 1).float() for tensor in (query_THD, key_TKD, value_TKD)
    )
    return query_HLD, key_KLD.repeat_interleave(shares, 0), value_KLD.repeat_interleave(shares, 0)


def _weights(query_HLD: Tensor, key_HLD: Tensor, scale: float) -> Tensor:
    scores_HLL = query_HLD @ key_HLD.mT * scale
    future_LL = torch.ones_like(scores_HLL[0], dtype=torch.bool).triu(1)
    return scores_HLL.masked_fill(future_LL, float("-inf")).softmax(dim=-1)
