"""The loss of 16k tokens over a large vocabulary keeps to 2 GiB, gradient of the head included.

Shape legend: A action tokens, H hidden size.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agentgym_rl.models.chunked_logprobs import chunked_logprobs
from agentgym_rl.models.compilation import enable_compilation
from gpu_models import CUDA, random_qwen2

NUM_TOKENS, VOCAB_SIZE, HIDDEN_SIZE = 16384, 151936, 1536
GIB = 2**30


def loss_inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    hidden_AH = torch.randn(NUM_TOKENS, HIDDEN_SIZE, device=CUDA).bfloat16().requires_grad_()
    return hidden_AH, torch.randint(VOCAB_SIZE, (NUM_TOKENS,), device=CUDA)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_peak_of_the_loss_is_below_two_gib(is_compiled: bool):
    model = random_qwen2(vocab_size=VOCAB_SIZE, hidden_size=HIDDEN_SIZE, num_layers=1)
    if is_compiled:
        enable_compilation(model)
    hidden_AH, ids_A = loss_inputs()
    for _ in range(2):  # the first compiles
        model.zero_grad()
        hidden_AH.grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, started = torch.cuda.memory_allocated(), torch.cuda.Event(enable_timing=True)
        ended = torch.cuda.Event(enable_timing=True)
        started.record()
        logprobs_A, entropies_A = chunked_logprobs(model, hidden_AH, ids_A, temperature=0.7)
        (logprobs_A.mean() + 0.01 * entropies_A.mean()).backward()
        ended.record()
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    found = f"peak {peak / GIB:.2f} GiB, {started.elapsed_time(ended):.0f} ms"
    print(f"compiled={is_compiled}: {found}")
    assert peak < 2 * GIB, found


def test_the_compiled_loss_has_the_same_gradient():
    found = []
    for is_compiled in (False, True):
        model = random_qwen2(vocab_size=2048, hidden_size=256)
        if is_compiled:
            enable_compilation(model)
        torch.manual_seed(1)
        hidden_AH = torch.randn(300, 256, device=CUDA).bfloat16().requires_grad_()
        ids_A = torch.randint(2048, (300,), device=CUDA)
        logprobs_A, entropies_A = chunked_logprobs(
            model, hidden_AH, ids_A, temperature=0.7, max_logits=128 * 2048
        )
        (logprobs_A.sum() + 0.1 * entropies_A.sum()).backward()
        assert hidden_AH.grad is not None
        found.append((logprobs_A.detach(), entropies_A.detach(), hidden_AH.grad.float()))
    for mine, theirs in zip(*found, strict=True):
        assert (mine - theirs).norm() / theirs.norm() < 0.01
