"""The computation after the head, written to be compiled: no float32 matrix as large as the logits.

The same mathematics as in chunked_logprobs.py, as reductions over rows and elementwise formulas,
which a compiler turns into one kernel that reads the logits and one that writes the gradient.
`log_softmax` and `scatter_add` would write whole float32 matrices in between.

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
    read_C: tuple[Tensor, Tensor],
    grad_logprobs_C: Tensor | None,
    grad_entropies_C: Tensor | None,
    *,
    temperature: float,
) -> Tensor:
    """Return the gradient with respect to the logits, in their type.

    `read_C` is the result of `read_logits` for the same logits: with it no row is summed again, and
    each element of the gradient is a formula of one logit.
    """
    logprobs_C, entropies_C = read_C
    log_sums_C = logits_CV.gather(1, ids_C[:, None])[:, 0].float() / temperature - logprobs_C
    return compiled(_grad_logits)(
        logits_CV,
        ids_C,
        (log_sums_C, log_sums_C - entropies_C),
        grad_logprobs_C,
        grad_entropies_C,
        temperature=temperature,
    )


def _read_logits(logits_CV: Tensor, ids_C: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    scaled_CV = logits_CV.float() / temperature
    highest_C1 = scaled_CV.amax(dim=-1, keepdim=True)
    below_CV = scaled_CV - highest_C1
    weights_CV = below_CV.exp()
    sums_C = weights_CV.sum(dim=-1)
    entropies_C = sums_C.log() - (weights_CV * below_CV).sum(dim=-1) / sums_C
    chosen_C = logits_CV.gather(1, ids_C[:, None]).float() / temperature - highest_C1
    return chosen_C[:, 0] - sums_C.log(), entropies_C


def _grad_logits(
    logits_CV: Tensor,
    ids_C: Tensor,
    rows_C: tuple[Tensor, Tensor],
    grad_logprobs_C: Tensor | None,
    grad_entropies_C: Tensor | None,
    *,
    temperature: float,
) -> Tensor:
    """Return the gradient; `rows_C` has the log of each row's sum of exp(z), and the mean of z.

    In the symbols of chunked_logprobs.py, log p_j + S = z_j - mean of z under p.
    """
    log_sums_C, means_C = rows_C
    scaled_CV = logits_CV.float() / temperature
    factors_CV = torch.zeros_like(scaled_CV)
    if grad_entropies_C is not None:
        factors_CV = -grad_entropies_C[:, None] * (scaled_CV - means_C[:, None])
    if grad_logprobs_C is not None:
        factors_CV = factors_CV - grad_logprobs_C[:, None]
    grad_CV = factors_CV * (scaled_CV - log_sums_C[:, None]).exp()
    if grad_logprobs_C is not None:
        is_chosen_CV = torch.arange(logits_CV.shape[1], device=ids_C.device) == ids_C[:, None]
        grad_CV = grad_CV + torch.where(is_chosen_CV, grad_logprobs_C[:, None], 0.0)
    return (grad_CV / temperature).to(logits_CV.dtype)
