"""Chooses the device of a model, and copies numbers to it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from agentgym_rl.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """Return the device that `model.device` names; "auto" is a GPU if there is one."""
    has_cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if has_cuda else "cpu")
    if name == "cuda" and not has_cuda:
        built = "was built without CUDA" if torch.version.cuda is None else "finds no GPU"
        raise ConfigError(
            f"model.device=cuda, but torch {torch.__version__} {built} (`agentgym doctor` reports "
            "more): set model.device=cpu or auto"
        )
    return torch.device(name)


def on_device(
    numbers: Sequence[float] | Tensor, *, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Return the numbers as a tensor on the device.

    The copy goes through pinned memory, so it does not wait for work queued on a GPU.
    """
    there = torch.as_tensor(numbers, dtype=dtype)
    if device.type != "cuda" or there.device == device:
        return there.to(device)
    return there.pin_memory().to(device, non_blocking=True)
