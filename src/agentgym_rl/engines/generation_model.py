"""The learner's model as generation runs it: the same weights behind layers that can be compiled.

The copy is shallow. Its modules are new objects, so changes to them (compiled layers, another
attention, joined linear layers, layer numbers as tensors) do not affect training. Their parameters
and buffers are the learner's own tensors, which joining moves once to other memory. The copy
therefore sees an update in place at once, and so do CUDA graphs captured before it. While an engine
lives, no parameter may be replaced (`module.weight = ...`, `parameter.data = ...`,
`model.to(...)`): graphs and joined layers would keep using the old memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from agentgym_rl.engines.joined_layers import join_layers
from agentgym_rl.engines.paged.attention import PAGED_ATTENTION
from agentgym_rl.models.compilation import compile_like_eager, decoder_layers

_LAYER = "layer_idx"

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def generation_model(
    model: PreTrainedModel,
    *,
    is_compiled: bool,
    backend: str | Callable[..., Callable[..., object]] = "inductor",
) -> PreTrainedModel:
    """Return the copy; if `is_compiled`, its decoder layers share one compiled function.

    It takes any number of packed tokens. Layers differ only in their tensors, so it is compiled
    once, or once for each kind of layer (sliding and full attention).
    """
    copied = _copy_tree(model, {})
    join_layers(copied)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()  # where the weights were before they were joined
    layers = decoder_layers(copied)
    if not layers:
        raise ValueError(
            f"{type(model).__name__} has no decoder layers that generation can find: use a decoder "
            "of transformers"
        )
    if is_compiled:
        run = compile_like_eager(_forward, fullgraph=True, backend=backend)
        for layer in layers:
            layer.forward = _bind(run, layer)
    return copied


def _forward(layer: nn.Module, *args: object, **kwargs: object) -> Tensor:
    """Run the forward function of the layer's class; `layer.forward` is the compiled one."""
    return type(layer).forward(layer, *args, **kwargs)


def _bind(run: Callable[..., Tensor], layer: nn.Module) -> Callable[..., Tensor]:
    # Not `functools.partial`, whose attributes the module would have to hold.
    def forward(*args: object, **kwargs: object) -> Tensor:
        return run(layer, *args, **kwargs)

    return forward


def _copy_tree(module: ModuleT, configs: dict[int, PretrainedConfig]) -> ModuleT:
    """Return new module objects around the same tensors, with attention over pages.

    `configs` has the copies of configurations made so far, by the id of the original.
    """
    copied = copy.copy(module)
    copied._compiled_call_impl = None  # the learner's refers to the learner's module
    copied._modules = {
        name: None if child is None else _copy_tree(child, configs)
        for name, child in module._modules.items()
    }
    values = vars(copied)
    config = values.get("config")
    if isinstance(config, PretrainedConfig):
        if id(config) not in configs:
            configs[id(config)] = copy.copy(config)
            # The property would set it in nested configurations, too.
            configs[id(config)]._attn_implementation_internal = PAGED_ATTENTION
        values["config"] = configs[id(config)]
    number = values.get(_LAYER)
    if isinstance(number, int):
        # A number would be compiled in, once for each layer.
        del values[_LAYER]
        device = next(module.parameters()).device
        copied._buffers = {**module._buffers, _LAYER: torch.tensor(number, device=device)}
    return copied
