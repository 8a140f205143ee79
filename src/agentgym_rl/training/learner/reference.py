"""The reference: frozen weights that the policy is held near."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.lora import has_lora, reference_policy
from agentgym_rl.models.sharding import Shards, gathered, load_whole, named_tensors
from agentgym_rl.types import Sample


class Reference:
    """The policy as it was when the run began.

    A copy of the weights; with LoRA the policy without its adapter is the reference, and needs no
    copy. The copy is in the CPU's memory, and on a GPU only from a call of `logprobs` until `park`:
    copying takes little of a step, and the learner needs the memory.
    """

    def __init__(self, policy: PreTrainedModel, *, temperature: float) -> None:
        self._policy, self._temperature = policy, temperature
        self._copy: PreTrainedModel | None = None
        self._parked: list[Tensor] = []
        """The copy's parameters in the CPU's memory; being frozen, they are never copied back."""
        if not _has_fresh_lora(policy):
            self._copy_policy()

    @torch.no_grad()
    def logprobs(self, samples: Sequence[Sample]) -> Tensor:
        """Return the log-probability of each action token, samples one after another."""
        if self._copy is not None:
            self._fetch()
            return self._logprobs(self._copy, samples)
        with reference_policy(self._policy) as model:
            return self._logprobs(model, samples)

    def shard(self, shards: Shards) -> None:
        """Spread the copy over ranks, which park it themselves; call it before anything else."""
        if self._copy is not None:
            self.park()
            self._parked = []
            shards.shard_frozen(self._copy)

    def park(self) -> None:
        """Give back the GPU's memory."""
        if self._copy is not None and self._parked:
            for weight, parked in zip(self._copy.parameters(), self._parked, strict=True):
                weight.data = parked

    def state(self) -> dict[str, Tensor]:
        """Return the weights for a checkpoint; none where no copy is kept."""
        return gathered(self._copy.state_dict()) if self._copy is not None else {}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Resume with what `state` returned."""
        if not state:
            self._copy, self._parked = None, list[Tensor]()
            return
        if self._copy is None:
            self._copy_policy()
        assert self._copy is not None, "`_copy_policy` makes one"
        self.park()
        load_whole(self._copy, state)

    def named_state(self) -> dict[str, Tensor]:
        """Return the weights by name, of each shard this rank's part; none without a copy."""
        return named_tensors(self._copy) if self._copy is not None else {}

    def to_fill(self, *, is_copied: bool) -> dict[str, Tensor]:
        """Return tensors that resume a reference when a saved state is copied into them."""
        if not is_copied:
            self._copy, self._parked = None, list[Tensor]()
        elif self._copy is None:
            self._copy_policy()
        self.park()
        return self.named_state()

    def _copy_policy(self) -> None:
        """Take the policy's present weights."""
        self._copy = copy.deepcopy(self._policy).requires_grad_(False)
        if self._policy.device.type != "cpu":
            self._parked = [weight.data.cpu().pin_memory() for weight in self._copy.parameters()]
        self.park()

    def _fetch(self) -> None:
        """Bring parked weights to where the policy is."""
        if self._copy is not None and self._parked and self._copy.device != self._policy.device:
            for weight, parked in zip(self._copy.parameters(), self._parked, strict=True):
                weight.data = parked.to(self._policy.device, non_blocking=True)

    def _logprobs(self, model: PreTrainedModel, samples: Sequence[Sample]) -> Tensor:
        return action_logprobs(model, samples, temperature=self._temperature).logprobs_A


def _has_fresh_lora(model: PreTrainedModel) -> bool:
    """Return whether the model has an adapter that changes nothing yet."""
    return has_lora(model) and not any(
        bool(weight.any()) for name, weight in model.named_parameters() if ".lora_B" in name
    )
