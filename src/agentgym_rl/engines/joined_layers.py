"""Joins linear layers that read the same input: fewer and larger matrix products.

With few rows, the number of kernels limits the decoding of a small model. Queries, keys and values
of an attention, and gate and up of a feed-forward layer, are therefore one product each. Weights
are not copied: those of siblings are placed side by side in memory, and every parameter becomes a
view of its part. Parameters remain the same objects, so an optimizer keeps working on them, and its
changes are seen here.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""The names in transformers' decoders of layers with the same input, in the order of calls."""


class _Joined:
    """The weights of all siblings, and their output until the last sibling has been called."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight
        self.bias = bias
        self.input: Tensor | None = None
        self.output: Tensor | None = None


class _Part(nn.Linear):
    """One of the siblings: the first computes for all that get the same input."""

    joined: _Joined
    start: int
    end: int

    def forward(self, input: Tensor) -> Tensor:
        joined = self.joined
        if self.start == 0:
            joined.input, joined.output = input, F.linear(input, joined.weight, joined.bias)
        output = joined.output if input is joined.input else None
        if self.end == len(joined.weight):
            joined.input = joined.output = None
        if output is None:  # such as keys of another sequence than the queries
            return F.linear(input, self.weight, self.bias)
        return output[..., self.start : self.end]


def join_layers(copied: nn.Module) -> None:
    """Join the siblings in a copy of a model that shares the model's parameters.

    Layers that are not plain (such as those of an adapter) and parameters that several layers share
    are left alone. A model can be joined for several copies; its parameters move only once.
    """
    joined = set[Tensor]()
    for module in copied.modules():
        for names in SIBLINGS:
            siblings = [module._modules.get(name) for name in names]
            linear = [layer for layer in siblings if type(layer) is nn.Linear]
            weights = [weight for layer in linear for weight in layer.parameters()]
            is_shared = len(set(weights)) < len(weights) or not joined.isdisjoint(weights)
            if len(linear) == len(names) and _fit(linear) and not is_shared:
                joined.update(weights)
                for name, part in zip(names, _join(linear), strict=True):
                    module._modules[name] = part


def _fit(layers: Sequence[nn.Linear]) -> bool:
    """Return whether the layers differ only in the number of their outputs."""
    kinds = {
        (layer.in_features, layer.bias is None, layer.weight.dtype, layer.weight.device)
        for layer in layers
    }
    has_hooks = any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)
    return len(kinds) == 1 and not has_hooks


def _join(layers: Sequence[nn.Linear]) -> list[_Part]:
    biases = [layer.bias for layer in layers if layer.bias is not None]
    weight = _side_by_side([layer.weight for layer in layers])
    joined = _Joined(weight, _side_by_side(biases) if biases else None)
    parts = list[_Part]()
    start = 0
    for layer in layers:
        part = copy.copy(layer)
        part.__class__ = _Part
        assert isinstance(part, _Part)
        part.joined, part.start, part.end = joined, start, start + layer.out_features
        start = part.end
        parts.append(part)
    return parts


@torch.no_grad()
def _side_by_side(parameters: Sequence[Tensor]) -> Tensor:
    """Return one tensor whose consecutive parts are the parameters."""
    sizes = [len(parameter) for parameter in parameters]
    if not _are_side_by_side(parameters):
        together = torch.cat([parameter.data for parameter in parameters])
        for parameter, part in zip(parameters, together.split(sizes), strict=True):
            parameter.data = part
    first = parameters[0]
    return first.data.as_strided((sum(sizes), *first.shape[1:]), first.stride())


def _are_side_by_side(parameters: Sequence[Tensor]) -> bool:
    storage = parameters[0].untyped_storage().data_ptr()
    offset = parameters[0].storage_offset()
    for parameter in parameters:
        is_next = parameter.storage_offset() == offset and parameter.is_contiguous()
        if not is_next or parameter.untyped_storage().data_ptr() != storage:
            return False
        offset += parameter.numel()
    return True
