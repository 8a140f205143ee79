"""FlashAttention 4 as operators of torch: what they are given, their gradients, and compiling.

The package's functions are stood in for by arithmetic on the CPU; tests/gpu has the real ones.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import varlen_on_cpu
from agentgym_rl.errors import ConfigError
from agentgym_rl.models import attention, flash4
from agentgym_rl.models.attention import attend_causal, attend_varlen

LENGTHS = [5, 1, 9]
BORDERS = torch.tensor([0, 5, 6, 15], dtype=torch.int32)
SCALE = 0.4


def forward(query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, **options: object) -> tuple:
    assert options.pop("causal") and options.pop("return_lse")
    *borders, scale = _take(options)
    out, sums, _ = varlen_on_cpu._forward(query_THD, key_TKD, value_TKD, *borders, True, scale)
    return out, sums, None  # a later version's addition


def backward(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, out_THD: Tensor, grad_THD: Tensor,
    sums_HT: Tensor, **options: object,
) -> tuple:  # fmt: skip
    assert options.pop("causal")
    assert grad_THD.is_contiguous()
    *borders, scale = _take(options)
    return varlen_on_cpu._backward(
        grad_THD, query_THD, key_TKD, value_TKD, out_THD, sums_HT, *borders, True, sums_HT, scale
    )


def _take(options: dict[str, object]) -> tuple[Tensor, Tensor, int, int, float]:
    names = "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "softmax_scale"
    borders, key_borders, max_length, max_keys, scale = (options.pop(name) for name in names)
    assert not options
    assert isinstance(borders, Tensor) and isinstance(key_borders, Tensor)
    assert isinstance(max_length, int) and isinstance(max_keys, int) and isinstance(scale, float)
    return borders, key_borders, max_length, max_keys, scale


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = SimpleNamespace(_flash_attn_fwd=forward, _flash_attn_bwd=backward)
    monkeypatch.setattr(flash4, "_kernels", lambda: kernels)
    monkeypatch.setattr(attention, "has_flash4", lambda *_: True)


def random_heads(num_keys: int = 15) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = (4, 15, 8), (2, num_keys, 8), (2, num_keys, 8), (4, 15, 8)
    query, key, value, grad = (torch.randn(shape, generator=generator) for shape in shapes)
    return query.requires_grad_(), key.requires_grad_(), value.requires_grad_(), grad


def attend(
    query_HTD: Tensor, key_HTD: Tensor, value_HTD: Tensor, key_borders: Tensor, max_keys: int
) -> Tensor:
    return attend_varlen(
        query_HTD,
        key_HTD,
        value_HTD,
        (BORDERS, key_borders),
        max_lengths=(9, max_keys),
        scale=SCALE,
        window=None,
    )


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize("num_keys", [LENGTHS, [9, 4, 12]], ids=["as queries", "more keys"])
@pytest.mark.parametrize("compiles", [False, True])
def test_output_and_gradients_are_those_of_one_sequence_at_a_time(
    compiles: bool, num_keys: list[int]
):
    *heads, grad = random_heads(sum(num_keys))
    key_borders = torch.tensor([0, *itertools.accumulate(num_keys)], dtype=torch.int32)
    way = torch.compile(attend, backend="aot_eager", fullgraph=True) if compiles else attend
    out = way(*heads, key_borders, max(num_keys))
    parts = (
        tensor.split(lengths, dim=1)
        for tensor, lengths in zip(heads, (LENGTHS, num_keys, num_keys), strict=True)
    )
    exact = torch.cat(
        [attend_causal(*part, scale=SCALE, window=None) for part in zip(*parts, strict=True)],
        dim=1,
    )
    assert torch.allclose(out, exact, atol=1e-5)
    for mine, theirs in zip(
        torch.autograd.grad(out, heads, grad), torch.autograd.grad(exact, heads, grad), strict=True
    ):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_a_package_that_does_not_load_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flash4, "import_module", lambda _: [].cutlass)
    query, key, value = (heads.detach().transpose(0, 1) for heads in random_heads()[:3])
    with pytest.raises(
        ConfigError, match=r"AttributeError.*\[flash4\].*pip uninstall flash-attn-4"
    ):
        flash4.attend_flash4(query, key, value, (BORDERS, BORDERS), max_lengths=(9, 9), scale=SCALE)


def test_a_cpu_has_no_such_kernels():
    assert not flash4.has_flash4(torch.device("cpu"), torch.bfloat16, 64)
