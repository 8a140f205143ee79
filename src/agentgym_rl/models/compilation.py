"""Compiled decoder layers for the learner (torch.compile).

The forward function of a layer's class is compiled once for all layers and any number of tokens and
sequences. Attention is part of it if one kernel computes all sequences; otherwise it stays outside
(attention.py). Generation runs the same layers uncompiled: it has other layouts than
`PackedSequences`, and its own optimisations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from agentgym_rl.models.attention import PackedSequences

_P = ParamSpec("_P")
_R = TypeVar("_R")

_FLAG = "_agentgym_compiles"
"""Set on every layer to compile, so that a copy of a model (a critic, a reference) has it, too."""

_IN_FORWARD = "_agentgym_forward"
"""The original `forward` of a layer whose `forward` is compiled."""


def decoder_layers(model: nn.Module) -> list[GradientCheckpointingLayer]:
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def enable_compilation(model: nn.Module) -> None:
    """Make passes over packed sequences (forward.py) compile the model's layers."""
    for layer in decoder_layers(model):
        setattr(layer, _FLAG, True)


def is_compiling(model: nn.Module) -> bool:
    """Return whether `enable_compilation` was called on the model, or on its original."""
    return any(hasattr(layer, _FLAG) for layer in decoder_layers(model))


def prepare_layers(model: nn.Module) -> None:
    """Make the layers call compiled code if it is enabled; a copied layer needs it again.

    A checkpoint of a layer encloses the compiled code, so the backward pass runs it again.
    """
    for layer in decoder_layers(model):
        is_prepared = layer._compiled_call_impl is not None or _IN_FORWARD in layer.__dict__
        if hasattr(layer, _FLAG) and not is_prepared:
            layer._compiled_call_impl = partial(_call_layer, layer)


def compile_before_sharding(layer: GradientCheckpointingLayer) -> None:
    """Make a layer that is about to be sharded call compiled code, if it is enabled.

    The compiled code replaces `forward`, not the call: the hooks that gather weights enclose it.
    """
    if hasattr(layer, _FLAG):
        layer._compiled_call_impl = None
        setattr(layer, _IN_FORWARD, layer.forward)
        layer.forward = partial(_forward_layer, layer)


def _forward_layer(
    layer: GradientCheckpointingLayer, hidden_states: Tensor, **arguments: object
) -> Tensor:
    assert isinstance(arguments.get("layout"), PackedSequences), "a sharded model only learns"
    return compiled(type(layer).forward)(layer, hidden_states, **arguments)


def _call_layer(
    layer: GradientCheckpointingLayer, hidden_states: Tensor, **arguments: object
) -> Tensor:
    """Replace the layer's call; the arguments are those of transformers' decoders."""
    if isinstance(arguments.get("layout"), PackedSequences):
        return compiled(type(layer).forward)(layer, hidden_states, **arguments)
    return layer._call_impl(hidden_states, **arguments)


@cache
def compiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return the function compiled for any number of rows or tokens; the same object each time."""
    return compile_like_eager(function)


def compile_like_eager(
    function: Callable[_P, _R],
    *,
    fullgraph: bool = False,
    backend: str | Callable[..., Callable[..., object]] = "inductor",
) -> Callable[_P, _R]:
    """Return the function compiled for any number of rows or tokens, rounding like eager code.

    By default Inductor keeps float32 between fused operations on bfloat16. If only one of engine
    and learner is compiled, the mean of their log-probabilities would then differ by 0.007.
    """
    options: dict[str, str | int | bool | Callable[..., object]] | None = None
    if backend == "inductor":
        options = {"emulate_precision_casts": True}
    return torch.compile(
        function, dynamic=True, fullgraph=fullgraph, backend=backend, options=options
    )
