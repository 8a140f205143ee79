"""Logits of a head in bfloat16 have the precision of float32, and so have their gradients' sums."""

from __future__ import annotations

import pytest
import torch

from agentgym_rl.models.float32_logits import Float32Linear
from gpu_models import CUDA


@pytest.mark.parametrize("has_bias", [False, True])
def test_logits_and_gradients_are_those_of_float32(has_bias):
    torch.manual_seed(0)
    head = Float32Linear(256, 1000, bias=has_bias, device=CUDA, dtype=torch.bfloat16)
    hidden = 8 * torch.randn(2, 33, 256, device=CUDA, dtype=torch.bfloat16)
    hidden.requires_grad_()
    logits = head(hidden)
    assert logits.dtype == torch.float32
    assert logits.shape == (2, 33, 1000)
    exact = hidden.detach().double().requires_grad_()
    weight = head.weight.detach().double().requires_grad_()
    bias = None if head.bias is None else head.bias.detach().double()
    wanted = torch.nn.functional.linear(exact, weight, bias)
    torch.testing.assert_close(logits.double(), wanted, atol=1e-4, rtol=1e-4)
    grad = torch.randn_like(logits)
    logits.backward(grad)
    wanted.backward(grad.to(torch.bfloat16).double())
    torch.testing.assert_close(hidden.grad.double(), exact.grad, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(head.weight.grad.double(), weight.grad, atol=2e-1, rtol=2e-2)
