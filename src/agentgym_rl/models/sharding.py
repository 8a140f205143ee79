"""Models sharded over processes by FSDP2: how they are made, entered, gathered and filled.

Layers and root are each one group of parameters, gathered when they compute. A shard that is
trained is float32, so it is its own master; arithmetic and all-gathers have the model's type.
Gradients are summed over ranks, because a loss is divided by a number of the whole update.

FSDP is imported where it is used: one process, the default, does not pay for it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from transformers import PreTrainedModel

from agentgym_rl.models.compilation import compile_before_sharding, decoder_layers
from agentgym_rl.models.sequence_parallel import SequenceGroup, split_passes

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_ENTER = "_agentgym_enter"
"""The method of a sharded model that runs a function while its root is gathered."""

_DEVICE = "_agentgym_device"
"""Where a sharded model computes; its shards may be in the CPU's memory."""

Tensors = tuple[Tensor, ...]
_Tree = TypeVar("_Tree")


@dataclass(frozen=True, slots=True)
class Shards:
    """The ranks that share a learner."""

    mesh: DeviceMesh
    sequence: SequenceGroup | None = None
    """Those that share each of this rank's passes; None: it makes its own."""
    is_offloaded: bool = False
    """Whether trained weights and gradients are in the CPU's memory between their uses."""

    def shard_trained(self, model: nn.Module) -> list[bool]:
        """Shard a model that is trained; return which trained weights are rounded for arithmetic.

        One entry for each parameter with a gradient, in the order of `parameters()`.
        """
        from torch.distributed.fsdp import MixedPrecisionPolicy  # start-up time

        trained = [weight for weight in model.parameters() if weight.requires_grad]
        is_rounded = [weight.dtype != torch.float32 for weight in trained]
        if not any(is_rounded):
            self._shard(model, MixedPrecisionPolicy(), is_parked=self.is_offloaded)
            return is_rounded
        (dtype,) = {weight.dtype for weight in trained}
        for weight in model.parameters():
            weight.data = weight.data.float()
        precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        self._shard(model, precision, is_parked=self.is_offloaded)
        return is_rounded

    def shard_frozen(self, model: nn.Module) -> None:
        """Shard a model that only scores; with GPUs its shards stay in the CPUs' memory."""
        from torch.distributed.fsdp import MixedPrecisionPolicy  # start-up time

        self._shard(model, MixedPrecisionPolicy(), is_parked=self.mesh.device_type == "cuda")

    def _shard(self, model: nn.Module, precision: Any, *, is_parked: bool) -> None:  # Any: late
        from torch.distributed.fsdp import (  # start-up time
            CPUOffloadPolicy,
            FSDPModule,
            OffloadPolicy,
            fully_shard,
            register_fsdp_forward_method,
        )

        is_gpu = self.mesh.device_type == "cuda"
        offload = CPUOffloadPolicy(pin_memory=is_gpu) if is_parked else OffloadPolicy()
        for layer in decoder_layers(model):
            compile_before_sharding(layer)
            fully_shard(layer, mesh=self.mesh, mp_policy=precision, offload_policy=offload)
        fully_shard(model, mesh=self.mesh, mp_policy=precision, offload_policy=offload)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                # Without it gloo, which knows no scaled sum, refuses the factor.
                module.set_force_sum_reduction_for_comms(True)
        if self.sequence is not None:
            split_passes(model, self.sequence)
        setattr(model, _DEVICE, _device_of(self.mesh))
        setattr(model, _ENTER, types.MethodType(_run, model))
        register_fsdp_forward_method(model, _ENTER)


def is_sharded(model: nn.Module) -> bool:
    return hasattr(model, _ENTER)


def compute_device(model: PreTrainedModel) -> torch.device:
    """Return where the model computes."""
    return getattr(model, _DEVICE, model.device)


def inside(model: nn.Module, compute: Callable[[], Tensors]) -> Tensors:
    """Return what `compute` returns, with the weights that a sharded model's root owns at hand.

    The gradient goes through the returned tensors only. A model in one process just computes.
    """
    if not is_sharded(model):
        return compute()
    found: Tensors = getattr(model, _ENTER)(compute)
    if not torch.is_grad_enabled():
        # A backward pass gives the root's weights back; otherwise they would be stale later.
        _reshard(model)
    return found


def plain_class(model: nn.Module) -> type[nn.Module]:
    """Return the class that a model had before it was sharded."""
    if not is_sharded(model):
        return type(model)
    from torch.distributed.fsdp import FSDPModule  # start-up time

    return next(
        cls
        for cls in type(model).__mro__[1:]
        if cls is not FSDPModule and issubclass(cls, nn.Module)
    )


def gathered(tree: _Tree) -> _Tree:
    """Return the tree with every shard replaced by the whole tensor, in the CPU's memory.

    Every rank must call it at the same time, with the same tree.
    """
    if not _can_have_shards():
        return tree
    from torch.distributed.tensor import DTensor  # start-up time

    def gather(shard: DTensor) -> Tensor:
        return whole(shard.detach()).cpu()

    return tree_map_only(DTensor, gather, tree)


def own_part(tensor: Tensor) -> Tensor:
    """Return the rank's part of a sharded tensor, which shares its memory; else the tensor."""
    if not _can_have_shards():
        return tensor
    from torch.distributed.tensor import DTensor  # start-up time

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(weight: Tensor) -> Tensor:
    """Return the whole tensor of a shard, on its device; any other tensor as it is.

    Every rank must call it at the same time. Shards in the CPU's memory are gathered on the GPU.
    """
    if not _can_have_shards():
        return weight
    from torch.distributed.tensor import DTensor  # start-up time

    if not isinstance(weight, DTensor):
        return weight
    there = weight.to(weight.device_mesh.device_type)
    assert isinstance(there, DTensor), "a move keeps the kind"
    return there.full_tensor()


def shard_like(tensor: Tensor, place: Tensor) -> Tensor:
    """Return the rank's part of a whole tensor where `place` is a shard, else the tensor."""
    if not _can_have_shards():
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor  # start-up time

    if not isinstance(place, DTensor) or isinstance(tensor, DTensor):
        return tensor
    part = tensor.to(place.device_mesh.device_type)
    return distribute_tensor(part, place.device_mesh, place.placements, src_data_rank=None).to(
        place.device
    )


def load_whole(module: nn.Module, state: Mapping[str, Any]) -> None:  # Any: `torch.load` gave it
    """Load a module's whole state; each rank takes its part."""
    own = module.state_dict()
    module.load_state_dict(
        {
            name: shard_like(value, own[name]) if name in own else value
            for name, value in state.items()
        }
    )


def trained_weights(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the parameters that require a gradient, by name."""
    return ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return a module's weights and saved buffers, tied ones once; of each shard the rank's part.

    They share the module's memory.
    """
    found, seen = dict[str, Tensor](), set[int]()
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def _device_of(mesh: DeviceMesh) -> torch.device:
    """Return the device of this rank."""
    is_gpu = mesh.device_type == "cuda"
    return torch.device("cuda", torch.cuda.current_device()) if is_gpu else torch.device("cpu")


def _can_have_shards() -> bool:
    return "torch.distributed.tensor" in sys.modules


def _run(_: nn.Module, compute: Callable[[], Tensors]) -> Tensors:
    return compute()


def _reshard(model: nn.Module) -> None:
    from torch.distributed.fsdp import FSDPModule  # start-up time

    assert isinstance(model, FSDPModule), "`_shard` made it one"
    model.reshard()
