"""FlashAttention 4 as operators of torch: what they are given, their gradients, and compiling.

The package's functions are stood in for by arithmetic on the CPU; tests/gpu has the real ones.
"""

from __future__ import annotations

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
    borders, scale, max_length = _take(options)
    out, sums, _ = varlen_on_cpu._forward(
        query_THD, key_TKD, value_TKD, borders, borders, max_length, max_length, True, scale
    )
    return out, sums, None  # a later version's addition


def backward(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, out_THD: Tensor, grad_THD: Tensor,
    sums_HT: Tensor, **options: object,
) -> tuple:  # fmt: skip
    assert options.pop("causal")
    assert grad_THD.is_contiguous()
    borders, scale, max_length = _take(options)
    return varlen_on_cpu._backward(
        grad_THD, query_THD, key_TKD, value_TKD, out_THD, sums_HT, borders, borders, max_length,
        max_length, True, sums_HT, scale,
    )  # fmt: skip


def _take(options: dict[str, object]) -> tuple[Tensor, float, int]:
    borders, max_length = options.pop("cu_seqlens_q"), options.pop("max_seqlen_q")
    assert options.pop("cu_seqlens_k") is borders and options.pop("max_seqlen_k") == max_length
    scale = options.pop("softmax_scale")
    assert not options
    assert isinstance(borders, Tensor) and isinstance(scale, float) and isinstance(max_length, int)
    return borders, scale, max_length


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = SimpleNamespace(_flash_attn_fwd=forward, _flash_attn_bwd=backward)
    monkeypatch.setattr(flash4, "_kernels", lambda: kernels)
    monkeypatch.setattr(attention, "has_flash4", lambda *_: True)


def random_heads() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = (4, 15, 8), (2, 15, 8), (2, 15, 8), (4, 15, 8)
    query, key, value, grad = (torch.randn(shape, generator=generator) for shape in shapes)
    return query.requires_grad_(), key.requires_grad_(), value.requires_grad_(), grad


def attend(query_HTD: Tensor, key_HTD: Tensor, value_HTD: Tensor) -> Tensor:
    return attend_varlen(
        query_HTD, key_HTD, value_HTD, BORDERS, max_length=9, scale=SCALE, window=None
    )


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize("compiles", [False, True])
def test_output_and_gradients_are_those_of_one_sequence_at_a_time(compiles: bool):
    *heads, grad = random_heads()
    way = torch.compile(attend, backend="aot_eager", fullgraph=True) if compiles else attend
    out = way(*heads)
    exact = torch.cat(
        [
            attend_causal(*parts, scale=SCALE, window=None)
            for parts in zip(*(tensor.split(LENGTHS, dim=1) for tensor in heads), strict=True)
        ],
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
        flash4.attend_flash4(query, key, value, BORDERS, max_length=9, scale=SCALE)


def test_a_cpu_has_no_such_kernels():
    assert not flash4.has_flash4(torch.device("cpu"), torch.bfloat16, 64)
