"""Compiled decoder layers for the learner (torch.compile).

What is compiled is the forward function of a layer's class, once for all layers and for any number
of tokens and sequences. Attention is part of it where one kernel serves all sequences; where they
are computed one by one it stays outside (attention.py). Generation goes through the same layers as
they are: it has other layouts than `PackedSequences`, and its own ways to be fast.
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
"""Set on every layer to be compiled, so that a copy of a model (a critic, a reference) has it."""


def decoder_layers(model: nn.Module) -> list[GradientCheckpointingLayer]:
    """Return the layers of a transformers model."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def enable_compilation(model: nn.Module) -> None:
    """Let passes over packed sequences (forward.py) compile the model's layers."""
    for layer in decoder_layers(model):
        setattr(layer, _FLAG, True)


def is_compiling(model: nn.Module) -> bool:
    """Return whether `enable_compilation` was called on the model, or on what it is a copy of."""
    return any(hasattr(layer, _FLAG) for layer in decoder_layers(model))


def prepare_layers(model: nn.Module) -> None:
    """Make the layers call compiled code where that is enabled; a copied layer forgets it.

    A checkpoint of a layer is around the compiled code: the backward pass runs that again.
    """
    for layer in decoder_layers(model):
        if hasattr(layer, _FLAG) and layer._compiled_call_impl is None:
            layer._compiled_call_impl = partial(_call_layer, layer)


def _call_layer(
    layer: GradientCheckpointingLayer, hidden_states: Tensor, **arguments: object
) -> Tensor:
    """Stand in for the layer's call; the arguments are those of transformers' decoders."""
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
    """Return the function compiled for any number of rows or tokens, rounding as eager code does.

    Left alone, Inductor keeps float32 between fused operations on bfloat16, and the engine and the
    learner, of which one may be compiled and the other not, differ by 0.007 in the mean of their
    log-probabilities.
    """
    options: dict[str, str | int | bool | Callable[..., object]] | None = None
    if backend == "inductor":
        options = {"emulate_precision_casts": True}
    return torch.compile(
        function,
        dynamic=True,
        fullgraph=fullgraph,
        backend=backend,
        options=options,
    )
