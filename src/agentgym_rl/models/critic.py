"""The critic: the return to expect before each action token.

The value of an action token is read where its logits are: one position before it, at the last token
that the policy had seen. Estimators thus use the values that training fits, and observations have
no values.

Shape legend: A action tokens, H width of the model, B sequences.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from transformers import PreTrainedModel

from agentgym_rl.models.forward import ActionHidden, action_hidden
from agentgym_rl.models.sharding import Shards
from agentgym_rl.types import Sample


class Critic(nn.Module):
    """A value head on a copy of the policy's layers ("own") or on the layers themselves ("shared").

    The head starts at zero, so that a new critic returns 0 everywhere, whatever the seed.
    """

    def __init__(self, policy: PreTrainedModel, *, trunk: Literal["own", "shared"]) -> None:
        super().__init__()
        is_own = trunk == "own"
        self.own_trunk = copy.deepcopy(policy.base_model) if is_own else None
        # In a tuple, so that the policy's weights are not registered as the critic's.
        self._shared_trunk: tuple[PreTrainedModel, ...] = () if is_own else (policy,)
        embeddings_VH = policy.get_input_embeddings().weight
        assert isinstance(embeddings_VH, Tensor), "an embedding has a matrix"
        self.head = nn.Linear(embeddings_VH.shape[1], 1, device=embeddings_VH.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def shard(self, shards: Shards) -> list[bool]:
        """Spread the critic's own weights over ranks; return which are rounded for arithmetic."""
        trunk = self.own_trunk
        is_rounded = shards.shard_trained(trunk) if isinstance(trunk, nn.Module) else []
        return is_rounded + shards.shard_trained(self.head)

    @property
    def is_shared(self) -> bool:
        """Whether the critic uses the policy's own layers."""
        return bool(self._shared_trunk)

    def values(self, samples: Sequence[Sample]) -> Tensor:
        """Return the value of each action token, samples one after another."""
        trunk = self._shared_trunk[0] if self.own_trunk is None else self.own_trunk
        assert isinstance(trunk, PreTrainedModel), "a decoder"
        return self.read(action_hidden(trunk, samples))

    def read(self, actions: ActionHidden) -> Tensor:
        """Return the value of each action token of the pass."""
        return actions.whole(self.head(actions.hidden_AH.to(self.head.weight.dtype))[:, 0])

    def final_values(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        """Return the value after the last token of each sequence (B)."""
        return self.values([_with_one_action(ids) for ids in sequences])


def _with_one_action(ids: Sequence[int]) -> Sample:
    """Return a sample whose only action token follows the ids; its value does not matter."""
    zeros = (0.0,) * (len(ids) + 1)
    mask = (*(0 for _ in ids), 1)
    return Sample((*ids, 0), mask, logprobs=zeros, rewards=zeros, segments=(), version=0)
