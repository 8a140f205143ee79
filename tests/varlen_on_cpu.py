"""torch's attention over packed sequences for the CPU, where it has no kernel of its own.

With it the program that a GPU runs, layers compiled with their attention inside, can be tested
without one. Causal attention without a window only; queries are the last tokens of their sequence.

Shape legend: T packed tokens, H query and K key-value heads, L queries of a sequence, S keys of it,
D head size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def install() -> None:
    """Register the kernels; for the life of the process, and on the CPU alone."""
    torch.library.register_kernel("torch_attn::_varlen_attn", "cpu", _forward)
    torch.library.register_kernel("torch_attn::_varlen_attn_backward", "cpu", _backward)


def _forward(  # noqa: PLR0913 - the signature is the kernel's
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    borders: Tensor,
    key_borders: Tensor,
    max_length: int,
    max_keys: int,
    is_causal: bool,
    scale: float,
    *_: object,  # what versions of torch have added
) -> tuple[Tensor, Tensor, Tensor]:
    assert is_causal, "windows are not supported here"
    out_THD = torch.empty_like(query_THD)
    shares = query_THD.shape[1] // key_TKD.shape[1]
    sequences = _parts(borders, max_length), _parts(key_borders, max_keys)
    for part, of_keys in zip(*sequences, strict=True):
        query_HLD = _heads(query_THD[part], 1)
        key_HSD, value_HSD = (_heads(tensor[of_keys], shares) for tensor in (key_TKD, value_TKD))
        weights_HLS = _weights(query_HLD, key_HSD, scale)
        out_THD[part] = (weights_HLS @ value_HSD).transpose(0, 1).to(out_THD.dtype)
    logsumexp_HT = torch.zeros(query_THD.shape[1], query_THD.shape[0])
    return out_THD, logsumexp_HT, torch.zeros(2, dtype=torch.uint64)


def _backward(  # noqa: PLR0913 - the signature is the kernel's
    grad_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    _out: Tensor,
    _logsumexp: Tensor,
    borders: Tensor,
    key_borders: Tensor,
    max_length: int,
    max_keys: int,
    _is_causal: bool,
    _rng_state: Tensor,
    scale: float,
    *_: object,
) -> tuple[Tensor, Tensor, Tensor]:
    grads = torch.empty_like(query_THD), torch.empty_like(key_TKD), torch.empty_like(value_TKD)
    num_kv_heads = key_TKD.shape[1]
    shares = query_THD.shape[1] // num_kv_heads
    sequences = _parts(borders, max_length), _parts(key_borders, max_keys)
    for part, of_keys in zip(*sequences, strict=True):
        query_HLD = _heads(query_THD[part], 1)
        key_HSD, value_HSD = (_heads(tensor[of_keys], shares) for tensor in (key_TKD, value_TKD))
        weights_HLS = _weights(query_HLD, key_HSD, scale)
        grad_HLD = grad_THD[part].transpose(0, 1).float()
        grad_weights_HLS = grad_HLD @ value_HSD.mT
        sums_HL1 = (grad_weights_HLS * weights_HLS).sum(dim=-1, keepdim=True)
        grad_scores_HLS = weights_HLS * (grad_weights_HLS - sums_HL1) * scale
        found = (
            grad_scores_HLS @ key_HSD,
            (grad_scores_HLS.mT @ query_HLD).unflatten(0, (num_kv_heads, shares)).sum(dim=1),
            (weights_HLS.mT @ grad_HLD).unflatten(0, (num_kv_heads, shares)).sum(dim=1),
        )
        for grad, own, of_part in zip(grads, (part, of_keys, of_keys), found, strict=True):
            grad[own] = of_part.transpose(0, 1).to(grad.dtype)
    return grads


def _parts(borders: Tensor, max_length: int) -> Iterator[slice]:
    for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        assert end - start <= max_length
        yield slice(start, end)


def _heads(tensor_LKD: Tensor, shares: int) -> Tensor:
    """Return a sequence's heads in float32; keys and values once for each query head."""
    return tensor_LKD.transpose(0, 1).float().repeat_interleave(shares, 0)


def _weights(query_HLD: Tensor, key_HSD: Tensor, scale: float) -> Tensor:
    scores_HLS = query_HLD @ key_HSD.mT * scale
    num_before = key_HSD.shape[1] - query_HLD.shape[1]
    future_LS = torch.ones_like(scores_HLS[0], dtype=torch.bool).triu(1 + num_before)
    return scores_HLS.masked_fill(future_LS, float("-inf")).softmax(dim=-1)
