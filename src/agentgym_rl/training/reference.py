"""The reference: frozen weights that the policy is held near."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.types import Sample


class Reference:
    """A copy of the policy as it was when the run began, or when `refresh` was last called."""

    def __init__(self, policy: PreTrainedModel, *, temperature: float) -> None:
        self._policy = policy
        self._model = copy.deepcopy(policy).requires_grad_(False)
        self._temperature = temperature

    @torch.no_grad()
    def logprobs(self, samples: Sequence[Sample]) -> Tensor:
        """Return the log-probability of each action token, samples one after another."""
        return action_logprobs(self._model, samples, temperature=self._temperature).logprobs_A

    def refresh(self) -> None:
        """Take the policy's present weights."""
        self._model.load_state_dict(self._policy.state_dict())

    def state(self) -> dict[str, Tensor]:
        """Return the weights, for a checkpoint."""
        return self._model.state_dict()

    def load_state(self, state: Mapping[str, object]) -> None:
        """Go on with the weights that `state` returned."""
        self._model.load_state_dict(state)
