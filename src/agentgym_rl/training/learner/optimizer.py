"""The optimiser: AdamW on float32 weights, whatever the type of the model's, and its rate.

A model in bfloat16 keeps its weights for the forward and backward pass, and for the engine; here
every such weight has a float32 master, which receives summed gradients and updates, and is rounded
into the model after each. This way updates far smaller than a bfloat16 step add
up. A float32 weight is its own master, and costs nothing more.

Bytes for each trained weight: in bfloat16 20 (weight 2, its gradient 2 until it is collected,
master 4, sum of gradients 4, two moments 8), in float32 16.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from agentgym_rl.models.sharding import gathered, own_part, shard_like

_STEP, _MASTER = "step", "master"
_MOMENTS = ("exp_avg", "exp_avg_sq")
Offload = Literal["none", "optimizer", "all"]
Schedule = Literal["constant", "linear", "cosine"]


def learning_rate(
    update: int,
    *,
    peak: float,
    schedule: Schedule = "constant",
    num_warmup: int = 0,
    num_updates: int = 0,
) -> float:
    """Return the rate of an update (the first is 1), a pure function that needs no saved state.

    It rises linearly to `peak` at update `num_warmup`, then stays constant or falls, linearly or as
    half a cosine, to 0 at update `num_updates`. The first update never has a rate of 0.
    """
    if update < 1:
        raise ValueError(f"updates are counted from 1, got {update}")
    if update <= num_warmup or schedule == "constant":
        return peak * min(1.0, update / max(1, num_warmup))
    if num_updates <= num_warmup:
        raise ValueError(
            f"a {schedule} schedule needs more updates ({num_updates}) than its warm-up "
            f"({num_warmup}): shorten the warm-up, or take schedule=constant"
        )
    progress = min(1.0, (update - num_warmup) / (num_updates - num_warmup))
    left = 1.0 - progress if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return peak * left


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What became of one update."""

    grad_norm: float
    """Before it was clipped; not finite where the update was skipped."""

    @property
    def is_applied(self) -> bool:
        return math.isfinite(self.grad_norm)


class MasterAdamW:
    """AdamW (arXiv:1711.05101) over the parameters that require a gradient."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        weight_decay: float,
        are_masters: Sequence[bool] | None = None,
        offload: Offload = "none",
    ) -> None:
        """`are_masters` tells which trained weights are float32 shards that are rounded for
        arithmetic: checkpoints keep them like the masters of one process.

        With `offload="optimizer"` all masters and moments are in the CPU's memory; with "all" the
        weights are there themselves.
        """
        self._weights = [weight for weight in parameters if weight.requires_grad]
        self._are_masters = are_masters or [False] * len(self._weights)
        if not self._weights:
            raise ValueError("there is nothing to train: no parameter requires a gradient")
        is_offloaded = offload == "optimizer"
        self._masters = [_master(weight, is_offloaded=is_offloaded) for weight in self._weights]
        # One kernel for all weights on a GPU, and on a CPU that works for one; on a CPU by itself
        # it would change the last bits.
        self._fused = True if self._masters[0].is_cuda or offload != "none" else None
        self._adamw = torch.optim.AdamW(
            [
                {
                    "params": [master for master in self._masters if master.ndim >= 2],
                    "weight_decay": weight_decay,
                },
                {
                    "params": [master for master in self._masters if master.ndim < 2],
                    "weight_decay": 0.0,
                },
            ],
            lr=0.0,
            fused=self._fused,
        )

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for tensor in (*self._weights, *self._masters):
            tensor.grad = None

    def collect_gradients(self) -> None:
        """Add the gradients of one backward pass to the sums; call it after each.

        The sums are float32, so that many passes lose no bits to each other. A float32 weight sums
        its own gradient, until `step` needs it.
        """
        for weight, master in self._copied():
            if weight.dtype != torch.float32:
                _add_gradient(weight, master)

    def step(self, *, lr: float, max_grad_norm: float) -> UpdateResult:
        """Clip and apply the collected gradients, then forget them.

        A gradient that is not finite is dropped: neither weights nor moments change. This check is
        the one time that an update waits for a GPU.
        """
        for weight, master in self._copied():
            _add_gradient(weight, master)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        norm = self._clip(max_grad_norm)
        result = UpdateResult(norm)
        if result.is_applied:
            self._adamw.step()
            self._round_into_model()
        self.zero_grad()
        return result

    def state_dict(self) -> dict[str, object]:
        """Return what a checkpoint keeps beside the model's own weights."""
        masters = [master.detach() for master in self._kept_masters()]
        return gathered({"adamw": self._adamw.state_dict(), "masters": masters})

    def load_state_dict(self, state: dict[str, Any]) -> None:  # Any: what `torch.load` returns
        """Resume from what `state_dict` returned; the model gets the masters' values."""
        adamw, masters = state["adamw"], state["masters"]
        mine = self._kept_masters()
        if [tensor.shape for tensor in masters] != [master.shape for master in mine]:
            raise ValueError(
                f"the checkpoint has {len(masters)} master weights where the model needs "
                f"{len(mine)}: it was written with another model, precision or LoRA setting"
            )
        groups = [group | {"fused": self._fused} for group in adamw["param_groups"]]
        moments = self._own_moments(adamw["state"])
        self._adamw.load_state_dict(adamw | {"param_groups": groups, "state": moments})
        with torch.no_grad():
            for master, saved in zip(mine, masters, strict=True):
                master.copy_(shard_like(saved, master))
        self._round_into_model()

    def named_state(self, names: Sequence[str]) -> dict[str, Tensor]:
        """Return the same by the names of the trained weights, of each shard this rank's part."""
        found: dict[str, Tensor] = {}
        for name, master, is_kept in zip(names, self._masters, self._are_kept(), strict=True):
            for key, value in self._adamw.state.get(master, {}).items():
                found[f"{name}.{key}"] = value.reshape(1) if key == _STEP else value
            if is_kept:
                found[f"{name}.{_MASTER}"] = master.detach()
        return found

    def empty_named_state(self, names: Sequence[str], saved: Set[str]) -> dict[str, Tensor]:
        """Return tensors to fill with a saved state and give to `load_named_state`."""
        wanted: dict[str, Tensor] = {}
        for name, master, is_kept in zip(names, self._masters, self._are_kept(), strict=True):
            if f"{name}.{_STEP}" in saved:  # not before a weight's first update
                wanted[f"{name}.{_STEP}"] = torch.zeros(1)
                for moment in _MOMENTS:
                    wanted[f"{name}.{moment}"] = torch.zeros_like(master.detach())
            if is_kept:
                wanted[f"{name}.{_MASTER}"] = torch.zeros_like(master.detach())
        if saved != wanted.keys():
            raise ValueError(
                f"the checkpoint has {len(saved - wanted.keys())} numbers of the optimiser that "
                f"the model does not need, and lacks {len(wanted.keys() - saved)}: it was written "
                "with another model, precision or LoRA setting"
            )
        return wanted

    def load_named_state(self, names: Sequence[str], state: Mapping[str, Tensor]) -> None:
        """Resume from what `named_state` returned; the model gets the masters' values."""
        own = self._adamw.state_dict()
        numbered = [weight for group in self._adamw.param_groups for weight in group["params"]]
        numbers = {id(master): number for number, master in enumerate(numbered)}
        own["state"] = {
            numbers[id(master)]: {
                _STEP: state[f"{name}.{_STEP}"][0],
                **{moment: state[f"{name}.{moment}"] for moment in _MOMENTS},
            }
            for name, master in zip(names, self._masters, strict=True)
            if f"{name}.{_STEP}" in state
        }
        self._adamw.load_state_dict(own)
        with torch.no_grad():
            for name, master, is_kept in zip(names, self._masters, self._are_kept(), strict=True):
                if is_kept:
                    master.copy_(state[f"{name}.{_MASTER}"])
        self._round_into_model()

    @property
    def state(self) -> dict[Tensor, dict[str, Tensor]]:
        """AdamW's moments by master weight, which a float32 parameter is itself."""
        return self._adamw.state

    def _clip(self, max_grad_norm: float) -> float:
        """Scale the gradients down to a norm; return the norm they had, over all ranks."""
        grads = [master.grad for master in self._masters if master.grad is not None]
        norm = gathered(torch.nn.utils.get_total_norm(grads))
        # Shards of a GPU have their norm on the CPU now; the factor is a number either way.
        norm = norm.to(self._masters[0].device)
        torch.nn.utils.clip_grads_with_norm_(self._masters, max_grad_norm, norm)
        return float(norm)

    def _own_moments(self, state: dict[int, dict[str, Tensor]]) -> dict[int, dict[str, Tensor]]:
        """Return the numbered states of AdamW, with this rank's part of each moment."""
        numbered = [weight for group in self._adamw.param_groups for weight in group["params"]]
        return {
            number: {
                name: shard_like(value, numbered[number]) if value.ndim else value
                for name, value in own.items()
            }
            for number, own in state.items()
        }

    def _kept_masters(self) -> list[nn.Parameter]:
        found = zip(self._masters, self._are_kept(), strict=True)
        return [master for master, is_kept in found if is_kept]

    def _are_kept(self) -> list[bool]:
        """Return which masters hold more than the model's saved weights do."""
        found = zip(self._weights, self._are_masters, strict=True)
        return [is_one or weight.dtype != torch.float32 for weight, is_one in found]

    def _copied(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Return the weights that are not their own masters, with their masters."""
        pairs = zip(self._weights, self._masters, strict=True)
        return [(weight, master) for weight, master in pairs if weight is not master]

    @torch.no_grad()
    def _round_into_model(self) -> None:
        pairs = self._copied()
        if pairs:
            weights, masters = (
                [own_part(one) for one in part] for part in zip(*pairs, strict=True)
            )
            torch._foreach_copy_(weights, masters)


def _master(weight: nn.Parameter, *, is_offloaded: bool) -> nn.Parameter:
    if is_offloaded:
        return nn.Parameter(weight.detach().to("cpu", torch.float32, copy=True))
    if weight.dtype == torch.float32:
        return weight
    return nn.Parameter(weight.detach().to(torch.float32, copy=True))


def _add_gradient(weight: nn.Parameter, master: nn.Parameter) -> None:
    """Move a weight's gradient to the sum of its master."""
    if weight.grad is not None:
        grad = weight.grad.to(master.device, torch.float32)
        master.grad = grad if master.grad is None else master.grad.add_(grad)
        weight.grad = None
