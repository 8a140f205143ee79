"""One pass of a decoder over packed sequences, and the log-probabilities that training needs.

Logits are computed only where a sampled token is predicted: observations and prompts, most of a
multi-round sequence, never meet the vocabulary.

Shape legend: T packed tokens, A action tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentgym_rl.models.attention import AttentionLayout, PackedSequences
from agentgym_rl.types import Sample


@dataclass(frozen=True, slots=True)
class ActionLogprobs:
    """Log-probability and entropy of every sampled token, samples one after another."""

    logprobs_A: Tensor
    entropies_A: Tensor


def packed_logits(
    model: PreTrainedModel,
    ids_T: Tensor,
    positions_T: Tensor,
    keep_A: Tensor,
    *,
    layout: AttentionLayout,
) -> Tensor:
    """Return the logits (A, V) at the packed positions `keep_A`."""
    output = model(
        input_ids=ids_T[None],
        position_ids=positions_T[None],
        logits_to_keep=keep_A,
        use_cache=False,
        layout=layout,
    )
    return output.logits[0]


def action_logprobs(
    model: PreTrainedModel, samples: Sequence[Sample], *, temperature: float
) -> ActionLogprobs:
    """Return log-probabilities under the distribution that the samples were drawn from."""
    device = model.device
    lengths = [len(sample.token_ids) for sample in samples]
    ids_T = torch.tensor([t for sample in samples for t in sample.token_ids], device=device)
    positions_T = torch.cat([torch.arange(length, device=device) for length in lengths])
    mask_T = torch.tensor(
        [m for sample in samples for m in sample.loss_mask], device=device, dtype=torch.bool
    )
    action_A = mask_T.nonzero()[:, 0]
    # The logits that predict a token stand one position before it.
    logits_AV = packed_logits(
        model, ids_T, positions_T, action_A - 1, layout=PackedSequences(lengths)
    )
    logprobs_AV = (logits_AV.float() / temperature).log_softmax(dim=-1)
    return ActionLogprobs(
        logprobs_A=logprobs_AV.gather(1, ids_T[action_A, None])[:, 0],
        entropies_A=-(logprobs_AV.exp() * logprobs_AV).sum(dim=-1),
    )
