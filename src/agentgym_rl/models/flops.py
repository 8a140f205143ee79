"""Floating point operations of an update, counted from the model, and what a GPU could do.

What is counted are the operations that the mathematics needs (model FLOPs): a multiplication and
an addition for every weight of a matrix and every token in the forward pass, as many for the
gradient of the layer's input, as many again for the gradient of the matrix where it is trained.
So a trained matrix costs 6 x weights x tokens, one that is frozen (LoRA) 4 x. The head meets action
tokens only. Attention costs 12 x its width for every pair of tokens that see each other, in each
layer: two products forward, four backward. What is computed twice to save memory (checkpoints, the
logits, flash attention's scores) counts once; norms, rotations and other elementwise work, and the
gradient below the lowest trained layer, do not matter and are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

_PEAK_TFLOPS = (
    # More specific names first: the first one inside the device's name counts.
    ("B200", 2250.0),
    ("H200", 989.5),
    ("H100 PCIe", 756.0),
    ("H100 NVL", 835.0),
    ("H100", 989.5),
    ("H800", 989.5),
    ("H20", 148.0),
    ("A100", 312.0),
    ("A800", 312.0),
    ("L40S", 362.0),
    ("L4", 121.0),
)
"""Dense bfloat16 with float32 sums, in 10^12 operations a second, as the maker gives it."""


def peak_flops(device_name: str) -> float | None:
    """Return the operations a second of a GPU in bfloat16; None where that is not known."""
    known = (peak for name, peak in _PEAK_TFLOPS if name in device_name)
    tflops = next(known, None)
    return None if tflops is None else tflops * 1e12


def peak_flops_of(model: PreTrainedModel) -> float | None:
    """Return the same of where the model is; None too for models in another type."""
    if model.device.type != "cuda" or model.dtype != torch.bfloat16:
        return None
    return peak_flops(torch.cuda.get_device_name(model.device))


@dataclass(frozen=True, slots=True)
class UpdateFlops:
    """What one token costs in forward and backward pass together, by what it goes through."""

    per_token: int
    """In the decoder's matrices."""
    per_action: int
    """In the head."""
    per_pair: tuple[tuple[int | None, int], ...]
    """In attention: the window of each layer (None sees all) with the cost of a pair of tokens."""

    def total(self, lengths: Iterable[int], *, num_actions: int) -> float:
        """Return the operations of a pass over sequences of these lengths."""
        lengths = list(lengths)
        attention = sum(
            cost * _num_pairs(length, window)
            for length in lengths
            for window, cost in self.per_pair
        )
        return float(self.per_token * sum(lengths) + self.per_action * num_actions + attention)


def update_flops(model: PreTrainedModel) -> UpdateFlops | None:
    """Count a model with or without its head; None for one that is not all dense layers."""
    if any(weight.ndim > 2 for weight in model.parameters()):
        return None  # experts: which of them a token meets is not known here
    decoder = model.base_model
    assert isinstance(decoder, nn.Module), "a transformers model has a decoder"
    of_decoder = _linear_layers(decoder)
    known = set(map(id, of_decoder))
    of_head = [layer for layer in _linear_layers(model) if id(layer) not in known]
    return UpdateFlops(
        per_token=sum(map(_matrix_flops, of_decoder)),
        per_action=sum(map(_matrix_flops, of_head)),
        per_pair=_attention_flops(model.config.get_text_config()),
    )


def _linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def _matrix_flops(layer: nn.Linear) -> int:
    return (6 if layer.weight.requires_grad else 4) * layer.weight.numel()


def _attention_flops(config: PretrainedConfig) -> tuple[tuple[int | None, int], ...]:
    # Not every architecture names them.
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    kinds: Sequence[str] | None = getattr(config, "layer_types", None)
    window: int | None = getattr(config, "sliding_window", None)
    cost = 12 * int(config.num_attention_heads) * int(head_dim)
    if kinds is None:
        return ((window, cost),) * int(config.num_hidden_layers)
    return tuple((window if kind == "sliding_attention" else None, cost) for kind in kinds)


def _num_pairs(length: int, window: int | None) -> int:
    """Return how many tokens all tokens of a sequence see, themselves included."""
    seen = length if window is None else min(length, window)
    return seen * (seen + 1) // 2 + (length - seen) * seen
