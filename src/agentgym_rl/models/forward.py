"""One pass of a decoder over packed sequences, and the log-probabilities that training needs.

Logits are computed only where a sampled token is predicted, not for observations and prompts, which
are most of a multi-round sequence. In training they never all exist at once (chunked_logprobs.py),
and the backward pass can recompute the decoder's layers.

Shape legend: T packed tokens, A action tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from agentgym_rl.models.attention import (
    AttentionLayout,
    PackedSequences,
    check_only_attention,
)
from agentgym_rl.models.chunked_logprobs import chunked_logprobs
from agentgym_rl.models.compilation import decoder_layers, prepare_layers
from agentgym_rl.models.device import on_device
from agentgym_rl.models.prefix_tree import pack_tree
from agentgym_rl.models.sequence_parallel import (
    OwnActions,
    SplitSequences,
    sequence_group,
    split_pass,
)
from agentgym_rl.models.sharding import compute_device, inside
from agentgym_rl.models.tree_attention import PackedTree
from agentgym_rl.types import Sample

_NONE = torch.empty(0, dtype=torch.long)
"""Begins every list of parts, which may otherwise be empty."""

_SHARES_PREFIXES = "_agentgym_shares_prefixes"
"""Set on every layer by `enable_prefix_sharing`, so that a copy of a model has it, too."""


@dataclass(frozen=True, slots=True)
class ActionLogprobs:
    """Log-probability and entropy of every sampled token, samples one after another."""

    logprobs_A: Tensor
    entropies_A: Tensor


@dataclass(frozen=True, slots=True)
class SharedActions:
    """Which sampled tokens are the same one, in a stretch that samples share."""

    which_A: Tensor
    """The computed token of each sampled token, samples one after another."""

    def whole(self, numbers_U: Tensor) -> Tensor:
        """Return the number of each sampled token; a gradient is the sum over the samples'."""
        return numbers_U.index_select(0, self.which_A)


@dataclass(frozen=True, slots=True)
class ActionHidden:
    """The decoder's output where each sampled token is predicted, samples one after another."""

    hidden_AH: Tensor
    ids_A: Tensor
    """The sampled tokens."""
    own: OwnActions | SharedActions | None = None
    """Which of the pass's sampled tokens these are, where ranks share a pass or samples tokens."""

    def whole(self, numbers_A: Tensor) -> Tensor:
        """Return the numbers of all sampled tokens of the pass, from those of the tokens here."""
        return numbers_A if self.own is None else self.own.whole(numbers_A)


@dataclass(frozen=True, slots=True)
class _Pass:
    """What a decoder computes in one pass, on its device."""

    ids_T: Tensor
    positions_T: Tensor
    predicted_A: Tensor
    """Where each sampled token is predicted: one position before it."""
    actions_A: Tensor
    """The sampled tokens."""
    layout: PackedSequences | None
    """None where there are no tokens."""
    own: OwnActions | SharedActions | None


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
    logprobs, _ = action_logprobs_and_hidden(model, samples, temperature=temperature)
    return logprobs


def action_logprobs_and_hidden(
    model: PreTrainedModel, samples: Sequence[Sample], *, temperature: float
) -> tuple[ActionLogprobs, ActionHidden]:
    """Return the same, and the hidden states from which a critic can read values."""
    packed = _pack(model, samples)

    def compute() -> tuple[Tensor, ...]:
        hidden_AH = _hidden(model, packed)
        return *chunked_logprobs(
            model, hidden_AH, packed.actions_A, temperature=temperature
        ), hidden_AH

    logprobs_A, entropies_A, hidden_AH = inside(model, compute)
    actions = ActionHidden(hidden_AH, packed.actions_A, packed.own)
    return ActionLogprobs(actions.whole(logprobs_A), actions.whole(entropies_A)), actions


def action_hidden(model: PreTrainedModel, samples: Sequence[Sample]) -> ActionHidden:
    """Return the hidden states from which the sampled tokens, or their values, are predicted.

    `model` is a causal model, or only its decoder.
    """
    packed = _pack(model, samples)

    def compute() -> tuple[Tensor, ...]:
        return (_hidden(model, packed),)

    is_decoder = model.base_model is model  # which gathers its weights itself
    (hidden_AH,) = compute() if is_decoder else inside(model, compute)
    return ActionHidden(hidden_AH, packed.actions_A, packed.own)


def _pack(model: PreTrainedModel, samples: Sequence[Sample]) -> _Pass:
    """Return the pass of the samples; of a shared one, this rank's stretch."""
    samples = [sample for sample in samples if sample.token_ids]
    assert not any(sample.loss_mask[0] for sample in samples), "nothing predicts a first token"
    device, sequence = compute_device(model), sequence_group(model)
    if samples and _shares_prefixes(model):
        return _pack_tree(samples, device)
    lengths = [len(sample.token_ids) for sample in samples]
    ids_T = torch.cat([_NONE, *(_numbers(sample.token_ids) for sample in samples)])
    positions_T = torch.cat([_NONE, *map(torch.arange, lengths)])
    actions_A = _actions(samples)
    sampled_A, predicted_A, own, layout = ids_T[actions_A], actions_A - 1, None, None
    if sequence is not None:
        split = split_pass(ids_T, positions_T, predicted_A, sequence)
        ids_T, positions_T, predicted_A = split.ids_T, split.positions_T, split.predicted_A
        own, layout = split.actions, SplitSequences(lengths, device, sequence)
        sampled_A = sampled_A[own.start : own.end]
    elif samples:
        layout = PackedSequences(lengths, device)
    numbers = (ids_T, positions_T, predicted_A, sampled_A)
    return _Pass(*_moved(numbers, device), layout=layout, own=own)


def _pack_tree(samples: Sequence[Sample], device: torch.device) -> _Pass:
    """Return the pass in which common beginnings of the samples are computed once."""
    tree = pack_tree(samples)
    numbers = (
        tree.ids_T,
        tree.positions_T,
        tree.predicted_U,
        tree.ids_T[tree.actions_U],
        tree.which_A,
    )
    *of_pass, which_A = _moved(map(torch.from_numpy, numbers), device)
    layout = PackedTree(tree.lengths, tree.paths, device)
    return _Pass(*of_pass, layout=layout, own=SharedActions(which_A))


def _moved(tensors: Iterable[Tensor], device: torch.device) -> list[Tensor]:
    return [on_device(tensor, device=device, dtype=torch.long) for tensor in tensors]


def _hidden(model: PreTrainedModel, packed: _Pass) -> Tensor:
    """Return the decoder's output where sampled tokens are predicted, (A, H)."""
    if packed.layout is None:  # no rows of hidden states, but still part of the graph
        embeddings_VH = model.get_input_embeddings().weight
        assert isinstance(embeddings_VH, Tensor), "an embedding has a matrix"
        return embeddings_VH[:0]
    prepare_layers(model)
    with _checkpointed_layers(model):
        hidden_TH = model.base_model(
            input_ids=packed.ids_T[None],
            position_ids=packed.positions_T[None],
            use_cache=False,
            layout=packed.layout,
        ).last_hidden_state[0]
    return hidden_TH.index_select(0, packed.predicted_A)


def _numbers(entries: tuple[int, ...]) -> Tensor:
    # numpy reads a tuple several times as fast as torch.
    return torch.from_numpy(np.array(entries, dtype=np.int64))


def _actions(samples: Sequence[Sample]) -> Tensor:
    """Return the packed positions of all action tokens."""
    return torch.cat([_NONE, *(_numbers(sample.loss_mask) for sample in samples)]).nonzero()[:, 0]


def enable_prefix_sharing(model: PreTrainedModel) -> None:
    """Compute what samples of a pass have in common at their beginning once, from now on.

    Not for a model whose passes are split over ranks.
    """
    check_prefix_sharing(model)
    for layer in decoder_layers(model):
        setattr(layer, _SHARES_PREFIXES, True)


def check_prefix_sharing(model: PreTrainedModel) -> None:
    """Raise ConfigError for a model whose tokens do not see one another by our attention alone."""
    check_only_attention(model, setting="training.share_prefix=true", off="share_prefix=false")


def _shares_prefixes(model: nn.Module) -> bool:
    return any(hasattr(layer, _SHARES_PREFIXES) for layer in decoder_layers(model))


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
