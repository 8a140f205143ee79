"""One pass of a decoder over packed sequences, and the log-probabilities that training needs.

Logits are computed only where a sampled token is predicted, not for observations and prompts, which
are most of a multi-round sequence. In training they never all exist at once (chunked_logprobs.py),
and the backward pass can recompute the decoder's layers.

Shape legend: T packed tokens, A action tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentgym_rl.models.attention import AttentionLayout, PackedSequences
from agentgym_rl.models.chunked_logprobs import chunked_logprobs
from agentgym_rl.models.compilation import decoder_layers, prepare_layers
from agentgym_rl.models.device import on_device
from agentgym_rl.types import Sample

_NONE = torch.empty(0, dtype=torch.long)
"""Begins every list of parts, which may otherwise be empty."""


@dataclass(frozen=True, slots=True)
class ActionLogprobs:
    """Log-probability and entropy of every sampled token, samples one after another."""

    logprobs_A: Tensor
    entropies_A: Tensor


@dataclass(frozen=True, slots=True)
class ActionHidden:
    """The decoder's output where each sampled token is predicted, samples one after another."""

    hidden_AH: Tensor
    ids_A: Tensor
    """The sampled tokens."""


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
    actions = action_hidden(model, samples)
    logprobs_A, entropies_A = chunked_logprobs(
        model, actions.hidden_AH, actions.ids_A, temperature=temperature
    )
    return ActionLogprobs(logprobs_A, entropies_A)


def action_hidden(model: PreTrainedModel, samples: Sequence[Sample]) -> ActionHidden:
    """Return the hidden states from which the sampled tokens, or their values, are predicted."""
    samples = [sample for sample in samples if sample.token_ids]
    assert not any(sample.loss_mask[0] for sample in samples), "nothing predicts a first token"
    device = model.device
    lengths = [len(sample.token_ids) for sample in samples]
    ids_T, positions_T, actions_A = (
        on_device(torch.cat(parts), device=device, dtype=torch.long)
        for parts in (
            [_NONE, *(_numbers(sample.token_ids) for sample in samples)],
            [_NONE, *map(torch.arange, lengths)],
            [_actions(samples)],
        )
    )
    if not samples:  # no rows of hidden states, but still part of the graph
        embeddings_VH = model.get_input_embeddings().weight
        assert isinstance(embeddings_VH, Tensor), "an embedding has a matrix"
        return ActionHidden(embeddings_VH[:0], ids_T)
    prepare_layers(model)
    with _checkpointed_layers(model):
        hidden_TH = model.base_model(
            input_ids=ids_T[None],
            position_ids=positions_T[None],
            use_cache=False,
            layout=PackedSequences(lengths, device),
        ).last_hidden_state[0]
    # A token is predicted one position before it.
    return ActionHidden(hidden_TH.index_select(0, actions_A - 1), ids_T[actions_A])


def _numbers(entries: tuple[int, ...]) -> Tensor:
    # numpy reads a tuple several times as fast as torch.
    return torch.from_numpy(np.array(entries, dtype=np.int64))


def _actions(samples: Sequence[Sample]) -> Tensor:
    """Return the packed positions of all action tokens."""
    return torch.cat([_NONE, *(_numbers(sample.loss_mask) for sample in samples)]).nonzero()[:, 0]


def enable_checkpointing(model: PreTrainedModel) -> None:
    """Keep only the inputs of the decoder's layers for the backward pass, and recompute the rest.

    It affects `action_hidden` with gradients, not generation or scoring.
    """
    # Without dropout no layer draws random numbers, so there is no random state to restore.
    model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    # Only reentrant checkpoints need this, and it would put frozen embeddings into the graph.
    model.disable_input_require_grads()


@contextlib.contextmanager
def _checkpointed_layers(model: PreTrainedModel) -> Iterator[None]:
    """Make transformers checkpoint the layers, which it does only in training mode.

    Only the mode of the layers changes: dropout, in the modules below them, stays off.
    """
    layers = decoder_layers(model) if torch.is_grad_enabled() else []
    for layer in layers:
        layer.training = layer.gradient_checkpointing
    try:
        yield
    finally:
        for layer in layers:
            layer.training = False
