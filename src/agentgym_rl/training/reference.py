"""The reference: frozen weights that the policy is held near."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.lora import has_lora, reference_policy
from agentgym_rl.types import Sample


class Reference:
    """The policy as it was when the run began, or when `refresh` was last called.

    A copy of the weights; none is needed while the policy without its LoRA adapter is the same.
    """

    def __init__(self, policy: PreTrainedModel, *, temperature: float) -> None:
        self._policy, self._temperature = policy, temperature
        self._copy: PreTrainedModel | None = None
        if not _has_fresh_lora(policy):
            self.refresh()

    @torch.no_grad()
    def logprobs(self, samples: Sequence[Sample]) -> Tensor:
        """Return the log-probability of each action token, samples one after another."""
        if self._copy is not None:
            return self._logprobs(self._copy, samples)
        with reference_policy(self._policy) as model:
            return self._logprobs(model, samples)

    def refresh(self) -> None:
        """Take the policy's present weights."""
        if self._copy is None:
            self._copy = copy.deepcopy(self._policy).requires_grad_(False)
        else:
            self._copy.load_state_dict(self._policy.state_dict())

    def state(self) -> dict[str, Tensor]:
        """Return the weights for a checkpoint; none where no copy is kept."""
        return self._copy.state_dict() if self._copy is not None else {}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Go on with what `state` returned."""
        if not state:
            self._copy = None
            return
        if self._copy is None:
            self.refresh()
        assert self._copy is not None, "`refresh` makes one"
        self._copy.load_state_dict(state)

    def _logprobs(self, model: PreTrainedModel, samples: Sequence[Sample]) -> Tensor:
        return action_logprobs(model, samples, temperature=self._temperature).logprobs_A


def _has_fresh_lora(model: PreTrainedModel) -> bool:
    """Return whether the model has an adapter that changes nothing yet."""
    return has_lora(model) and not any(
        bool(weight.any()) for name, weight in model.named_parameters() if ".lora_B" in name
    )
