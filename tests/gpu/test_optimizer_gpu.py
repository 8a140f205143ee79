"""The optimiser on a GPU: the updates of the CPU, and one wait for the device a step."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from agentgym_rl.training.learner.optimizer import MasterAdamW
from gpu_models import CUDA

SHAPES = ((64, 48), (48,), (32, 64), (7,))


def make_weights(device: torch.device, dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(7)
    return [
        nn.Parameter(torch.randn(shape, generator=generator).to(dtype).to(device))
        for shape in SHAPES
    ]


def step(optimizer: MasterAdamW, weights: list[nn.Parameter], *, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)
    for weight in weights:
        grad = torch.randn(weight.shape, generator=generator)
        weight.grad = grad.to(weight.dtype).to(weight.device)
    optimizer.collect_gradients()
    return optimizer.step(lr=1e-3, max_grad_norm=0.5).grad_norm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_updates_are_those_of_the_cpu_and_a_checkpoint_moves_between_them(dtype: torch.dtype):
    here, there = (make_weights(torch.device(name), dtype) for name in ("cpu", "cuda"))
    on_cpu = MasterAdamW(here, weight_decay=0.1)
    on_gpu = MasterAdamW(there, weight_decay=0.1)
    for seed in range(3):
        step(on_cpu, here, seed=seed)
        step(on_gpu, there, seed=seed)
    moved = make_weights(CUDA, dtype)
    after_cpu = MasterAdamW(moved, weight_decay=0.1)
    with torch.no_grad():
        for mine, theirs in zip(moved, here, strict=True):
            mine.copy_(theirs)  # a float32 weight is in the model's own checkpoint
    after_cpu.load_state_dict(on_cpu.state_dict())
    for optimizer, weights in ((on_cpu, here), (on_gpu, there), (after_cpu, moved)):
        step(optimizer, weights, seed=9)
    tolerance = 1e-6 if dtype == torch.float32 else 0.04  # one step of a bfloat16
    for mine, theirs, third in zip(here, there, moved, strict=True):
        assert torch.allclose(mine.float(), theirs.float().cpu(), atol=tolerance)
        assert torch.allclose(mine.float(), third.float().cpu(), atol=tolerance)


def test_a_step_waits_for_the_device_once():
    weights = make_weights(CUDA, torch.bfloat16)
    optimizer = MasterAdamW(weights, weight_decay=0.1)
    step(optimizer, weights, seed=0)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            optimizer.collect_gradients()
            optimizer.step(lr=1e-3, max_grad_norm=0.5)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found = [str(wait.message) for wait in waits if "called a synchroniz" in str(wait.message)]
    assert len(found) == 1, found
