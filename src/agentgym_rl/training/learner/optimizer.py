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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

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

    def __init__(self, parameters: Iterable[nn.Parameter], *, weight_decay: float) -> None:
        self._weights = [weight for weight in parameters if weight.requires_grad]
        if not self._weights:
            raise ValueError("there is nothing to train: no parameter requires a gradient")
        self._masters = [_master(weight) for weight in self._weights]
        # One kernel for all weights on a GPU; on a CPU it would change the last bits.
        self._fused = True if self._masters[0].is_cuda else None
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

        The sums are float32, so that many passes lose no bits to each other.
        """
        for weight, master in self._rounded():
            if weight.grad is not None:
                grad = weight.grad.float()
                master.grad = grad if master.grad is None else master.grad.add_(grad)
                weight.grad = None

    def step(self, *, lr: float, max_grad_norm: float) -> UpdateResult:
        """Clip and apply the collected gradients, then forget them.

        A gradient that is not finite is dropped: neither weights nor moments change. This check is
        the one time that an update waits for a GPU.
        """
        for group in self._adamw.param_groups:
            group["lr"] = lr
        norm = float(torch.nn.utils.clip_grad_norm_(self._masters, max_grad_norm))
        result = UpdateResult(norm)
        if result.is_applied:
            self._adamw.step()
            self._round_into_model()
        self.zero_grad()
        return result

    def state_dict(self) -> dict[str, object]:
        """Return what a checkpoint keeps beside the model's own weights."""
        masters = [master.detach() for _, master in self._rounded()]
        return {"adamw": self._adamw.state_dict(), "masters": masters}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # Any: what `torch.load` returns
        """Resume from what `state_dict` returned; the model gets the masters' values."""
        adamw, masters = state["adamw"], state["masters"]
        mine = [master for _, master in self._rounded()]
        if [tensor.shape for tensor in masters] != [master.shape for master in mine]:
            raise ValueError(
                f"the checkpoint has {len(masters)} master weights where the model needs "
                f"{len(mine)}: it was written with another model, precision or LoRA setting"
            )
        groups = [group | {"fused": self._fused} for group in adamw["param_groups"]]
        self._adamw.load_state_dict(adamw | {"param_groups": groups})
        with torch.no_grad():
            for master, saved in zip(mine, masters, strict=True):
                master.copy_(saved)
        self._round_into_model()

    @property
    def state(self) -> dict[Tensor, dict[str, Tensor]]:
        """AdamW's moments by master weight, which a float32 parameter is itself."""
        return self._adamw.state

    def _rounded(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Return the weights that are not their own masters, with their masters."""
        pairs = zip(self._weights, self._masters, strict=True)
        return [(weight, master) for weight, master in pairs if weight is not master]

    @torch.no_grad()
    def _round_into_model(self) -> None:
        pairs = self._rounded()
        if pairs:
            torch._foreach_copy_([weight for weight, _ in pairs], [master for _, master in pairs])


def _master(weight: nn.Parameter) -> nn.Parameter:
    if weight.dtype == torch.float32:
        return weight
    return nn.Parameter(weight.detach().to(torch.float32, copy=True))
