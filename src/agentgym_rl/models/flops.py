"""Floating-point operations of an update, counted from the model, and the peak rates of GPUs.

Only the operations that the mathematics needs count (model FLOPs): a multiplication and an addition
for every weight of a matrix and every token in the forward pass, as many for the gradient of the
layer's input, and as many for the gradient of the matrix if it is trained. A trained matrix thus
costs 6 x weights x tokens, a frozen one (LoRA) 4 x. The head sees only action tokens. Attention
costs 12 x its width for every pair of tokens that see each other, in each layer: two products
forward, four backward. Work that is repeated to save memory (checkpoints, logits, scores of flash
attention) counts once; elementwise work, and the gradient below the lowest trained layer, are
negligible and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from agentgym_rl.models.attention import head_size

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
"""Dense bfloat16 with float32 sums, in 10^12 operations per second, from the maker."""


def peak_flops(device_name: str) -> float | None:
    """Return the operations per second of a GPU in bfloat16, if known."""
    known = (peak for name, peak in _PEAK_TFLOPS if name in device_name)
    tflops = next(known, None)
    return None if tflops is None else tflops * 1e12


def peak_flops_of(model: PreTrainedModel) -> float | None:
    """Return the same for the model's GPU; None for a model in another type."""
    if model.device.type != "cuda" or model.dtype != torch.bfloat16:
        return None
    return peak_flops(torch.cuda.get_device_name(model.device))


@dataclass(frozen=True, slots=True)
class UpdateFlops:
    """The cost of one token in the forward and backward pass together, by part of the model."""

    per_token: int
    """In the decoder's matrices."""
    per_action: int
    """In the head."""
    per_pair: tuple[tuple[int | None, int], ...]
    """In attention: the window of each layer (None is unlimited), and the cost of a pair."""

    def total(
        self, lengths: Iterable[int], starts: Sequence[int] = (), *, num_actions: int
    ) -> float:
        """Return the operations of a pass over sequences of these lengths.

        A sequence may start after other tokens, which are computed elsewhere; by default none does.
        """
        lengths = list(lengths)
        attention = sum(
            cost * (_num_pairs(start + length, window) - _num_pairs(start, window))
            for length, start in zip(lengths, starts or [0] * len(lengths), strict=True)
            for window, cost in self.per_pair
        )
        return float(self.per_token * sum(lengths) + self.per_action * num_actions + attention)


def update_flops(model: PreTrainedModel) -> UpdateFlops | None:
    """Count a model with or without its head; None if it is not dense."""
    if any(weight.ndim > 2 for weight in model.parameters()):
        return None  # experts: which of them a token uses is not known here
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
    kinds: Sequence[str] | None = getattr(config, "layer_types", None)
    window: int | None = getattr(config, "sliding_window", None)
    cost = 12 * int(config.num_attention_heads) * head_size(config)
    if kinds is None:
        return ((window, cost),) * int(config.num_hidden_layers)
    return tuple((window if kind == "sliding_attention" else None, cost) for kind in kinds)


def _num_pairs(length: int, window: int | None) -> int:
    """Return the number of pairs (token, token it sees), itself included."""
    seen = length if window is None else min(length, window)
    return seen * (seen + 1) // 2 + (length - seen) * seen
