"""The kernel for packed sequences gives what one sequence at a time gives, and so do gradients.

Shape legend: H heads, T packed tokens, D head size.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agentgym_rl.models import attention
from agentgym_rl.models.attention import PackedSequences, has_varlen_kernel
from agentgym_rl.models.forward import action_logprobs
from gpu_models import CUDA, random_qwen2, random_samples

LENGTHS = [700, 1, 2, 129, 64, 65, 1023]


def attend(
    shapes: tuple[int, int, int], dtype: torch.dtype, *, window: int | None
) -> tuple[Tensor, ...]:
    """Return output and gradients of query, key and value, all (H, T, D)."""
    num_heads, num_kv_heads, head_dim = shapes
    generator = torch.Generator(CUDA).manual_seed(0)

    def random(heads: int) -> Tensor:
        shape = (heads, sum(LENGTHS), head_dim)
        return torch.randn(shape, generator=generator, device=CUDA).to(dtype).requires_grad_()

    query, key, value = random(num_heads), random(num_kv_heads), random(num_kv_heads)
    layout = PackedSequences(LENGTHS, CUDA)
    out_HTD = layout.attend(query, key, value, scale=head_dim**-0.5, window=window)
    grad_HTD = torch.randn(out_HTD.shape, generator=generator, device=CUDA).to(dtype)
    grads = torch.autograd.grad(out_HTD, (query, key, value), grad_HTD)
    return out_HTD.detach(), *grads


@pytest.mark.parametrize("window", [None, 16, 100])
@pytest.mark.parametrize("shapes", [(9, 3, 64), (12, 2, 128), (4, 4, 256), (2, 1, 8)])
def test_output_and_gradients_are_those_of_one_sequence_at_a_time(
    shapes: tuple[int, int, int], window: int | None, monkeypatch: pytest.MonkeyPatch
):
    assert has_varlen_kernel(CUDA, torch.bfloat16, shapes[2])
    fast = attend(shapes, torch.bfloat16, window=window)
    monkeypatch.setattr(attention, "has_varlen_kernel", lambda *_: False)
    exact = attend(shapes, torch.float32, window=window)
    for name, mine, theirs in zip(("out", "query", "key", "value"), fast, exact, strict=True):
        error = (mine.float() - theirs).norm() / theirs.norm()
        # bfloat16 has 8 bits; inputs differ by rounding too.
        assert error < 0.02, f"{name}: {float(error)}"


def test_a_window_counts_the_token_itself(monkeypatch: pytest.MonkeyPatch):
    # With a window of 1 every token sees itself alone, so the output is its own value.
    value = torch.randn(2, 10, 64, device=CUDA).bfloat16()
    out = PackedSequences([4, 6], CUDA).attend(value, value, value, scale=1.0, window=1)
    assert torch.equal(out, value)


def test_a_model_in_bfloat16_is_near_the_same_in_float32():
    lengths = [300, 5, 211]
    samples = random_samples(lengths, vocab_size=512)
    exact = random_qwen2(dtype=torch.float32)
    rounded = random_qwen2()
    with torch.no_grad():
        for mine, theirs in zip(rounded.parameters(), exact.parameters(), strict=True):
            theirs.copy_(mine.float())
        far = [
            action_logprobs(model, samples, temperature=1.0).logprobs_A
            for model in (rounded, exact)
        ]
    assert (far[0] - far[1]).abs().mean() < 0.02


def test_a_step_queues_its_copies_without_waiting():
    samples = random_samples([400, 200], vocab_size=512)
    model = random_qwen2()
    action_logprobs(model, samples, temperature=1.0)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        action_logprobs(model, samples, temperature=1.0).logprobs_A.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
