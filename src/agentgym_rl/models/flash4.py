"""FlashAttention 4 over packed sequences, on GPUs that torch's own kernels leave half idle.

Used if the package `flash-attn-4` is installed (the extra `flash4`). Its functions are wrapped as
operators of torch, so that a compiled layer contains them.

Shape legend: H heads, T packed tokens, D head size, B sequences.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from typing import Any

import torch
from torch import Tensor

from agentgym_rl.errors import ConfigError, install_command

MODULE = "flash_attn.cute.interface"
_PACKAGE = "flash-attn-4"
_HEAD_DIMS = (64, 96, 128)
_CAPABILITIES = (9, 10)


@torch.compiler.assume_constant_result
def has_flash4(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Return whether the package is installed and supports such tensors."""
    return head_dim in _HEAD_DIMS and _is_chosen(device, dtype)


def check_flash4(device: torch.device, dtype: torch.dtype) -> None:
    """Raise ConfigError if the package would be used but cannot be loaded."""
    if _is_chosen(device, dtype):
        _kernels()


def attend_flash4(
    query_THD: Tensor,
    key_THD: Tensor,
    value_THD: Tensor,
    borders: tuple[Tensor, Tensor],
    *,
    max_lengths: tuple[int, int],
    scale: float,
) -> Tensor:
    """Return causal attention of all sequences between the borders in one call.

    Borders (B + 1) and greatest lengths are those of queries, which are the last tokens of their
    sequence, and of keys.
    """
    return _forward(query_THD, key_THD, value_THD, *borders, *max_lengths, scale)[0]


def _is_chosen(device: torch.device, dtype: torch.dtype) -> bool:
    return (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and torch.cuda.get_device_capability(device)[0] in _CAPABILITIES
        and _is_installed()
    )


@cache
def _is_installed() -> bool:
    try:
        metadata.distribution(_PACKAGE)
    except metadata.PackageNotFoundError:
        return False
    return True


@cache
def _kernels() -> Any:
    try:
        return import_module(MODULE)
    except Exception as error:
        raise ConfigError(
            f"{_PACKAGE} is installed but cannot be loaded ({type(error).__name__}: {error}); "
            f"install matching versions, {install_command('flash4')}, or do without it: "
            f"pip uninstall {_PACKAGE}"
        ) from error


@torch.library.custom_op("agentgym::flash4_forward", mutates_args=())
def _forward(
    query_THD: Tensor,
    key_THD: Tensor,
    value_THD: Tensor,
    borders: Tensor,
    key_borders: Tensor,
    max_length: int,
    max_keys: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the output and the logarithms of the softmax's sums, (H, T)."""
    out_THD, sums_HT = _kernels()._flash_attn_fwd(
        query_THD,
        key_THD,
        value_THD,
        cu_seqlens_q=borders,
        cu_seqlens_k=key_borders,
        max_seqlen_q=max_length,
        max_seqlen_k=max_keys,
        softmax_scale=scale,
        causal=True,
        return_lse=True,
    )[:2]  # later versions return more
    return out_THD, sums_HT


@_forward.register_fake
def _(query_THD: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    num_tokens, num_heads = query_THD.shape[:2]
    sums_HT = query_THD.new_empty((num_heads, num_tokens), dtype=torch.float32)
    return torch.empty_like(query_THD), sums_HT


@torch.library.custom_op("agentgym::flash4_backward", mutates_args=())
def _backward(  # noqa: PLR0913 - the kernel needs them all
    grad_THD: Tensor,
    query_THD: Tensor,
    key_THD: Tensor,
    value_THD: Tensor,
    out_THD: Tensor,
    sums_HT: Tensor,
    borders: Tensor,
    key_borders: Tensor,
    max_length: int,
    max_keys: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of query, key and value."""
    query_grad, key_grad, value_grad = _kernels()._flash_attn_bwd(
        query_THD,
        key_THD,
        value_THD,
        out_THD,
        grad_THD,
        sums_HT,
        cu_seqlens_q=borders,
        cu_seqlens_k=key_borders,
        max_seqlen_q=max_length,
        max_seqlen_k=max_keys,
        softmax_scale=scale,
        causal=True,
    )[:3]
    return query_grad, key_grad, value_grad


@_backward.register_fake
def _(
    _grad_THD: Tensor, query_THD: Tensor, key_THD: Tensor, value_THD: Tensor, *_: object
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(query_THD), torch.empty_like(key_THD), torch.empty_like(value_THD)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *heads, borders, key_borders, max_length, max_keys, scale = inputs
    ctx.numbers = max_length, max_keys, scale
    ctx.save_for_backward(*heads, *output, borders, key_borders)


def _differentiate(ctx: Any, grad_THD: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    grads = _backward(grad_THD.contiguous(), *ctx.saved_tensors, *ctx.numbers)
    return *grads, None, None, None, None, None


_forward.register_autograd(_differentiate, setup_context=_remember)
