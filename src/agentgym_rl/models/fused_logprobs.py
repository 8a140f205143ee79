"""What follows the head, written to be compiled: nothing as large as the logits in float32.

The same mathematics as in chunked_logprobs.py, as reductions over rows and formulas of one element,
which a compiler puts into kernels that read the logits once or twice and write the gradient.
`log_softmax` and `scatter_add` would make it write whole matrices in float32 in between.

Shape legend: C tokens of a chunk, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agentgym_rl.models.compilation import compiled


def read_logits(logits_CV: Tensor, ids_C: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the ids and the entropies."""
    return compiled(_read_logits)(logits_CV, ids_C, temperature)


def grad_logits(
    logits_CV: Tensor,
    ids_C: Tensor,
    grad_logprobs_C: Tensor | None,
    grad_entropies_C: Tensor | None,
    *,
    temperature: float,
) -> Tensor:
    """Return the gradient with respect to the logits, in their type."""
    return compiled(_grad_logits)(
        logits_CV, ids_C, grad_logprobs_C, grad_entropies_C, temperature=temperature
    )


def _read_logits(logits_CV: Tensor, ids_C: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    below_CV, highest_C1 = _below_highest(logits_CV, temperature)
    weights_CV = below_CV.exp()
    sums_C = weights_CV.sum(dim=-1)
    entropies_C = sums_C.log() - (weights_CV * below_CV).sum(dim=-1) / sums_C
    chosen_C = logits_CV.gather(1, ids_C[:, None]).float() / temperature - highest_C1
    return chosen_C[:, 0] - sums_C.log(), entropies_C


def _grad_logits(
    logits_CV: Tensor,
    ids_C: Tensor,
    grad_logprobs_C: Tensor | None,
    grad_entropies_C: Tensor | None,
    *,
    temperature: float,
) -> Tensor:
    below_CV, _ = _below_highest(logits_CV, temperature)
    weights_CV = below_CV.exp()
    sums_C1 = weights_CV.sum(dim=-1, keepdim=True)
    grad_CV = torch.zeros_like(below_CV)
    if grad_entropies_C is not None:
        # log p + S = (z - highest - log sum) + (log sum - mean of z - highest).
        means_C1 = (weights_CV * below_CV).sum(dim=-1, keepdim=True) / sums_C1
        grad_CV = grad_CV - grad_entropies_C[:, None] * (below_CV - means_C1)
    if grad_logprobs_C is not None:
        grad_CV = grad_CV - grad_logprobs_C[:, None]
    grad_CV = grad_CV * (weights_CV / sums_C1)
    if grad_logprobs_C is not None:
        is_chosen_CV = torch.arange(logits_CV.shape[1], device=ids_C.device) == ids_C[:, None]
        grad_CV = grad_CV + torch.where(is_chosen_CV, grad_logprobs_C[:, None], 0.0)
    return (grad_CV / temperature).to(logits_CV.dtype)


def _below_highest(logits_CV: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the scaled logits minus the highest of their row, and that."""
    scaled_CV = logits_CV.float() / temperature
    highest_C1 = scaled_CV.amax(dim=-1, keepdim=True)
    return scaled_CV - highest_C1, highest_C1
