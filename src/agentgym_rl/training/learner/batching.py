"""From training samples to what a loss sees, and from token losses to the share of a pass.

Shape legend: A action tokens of a pass, all samples one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from agentgym_rl.models.device import on_device
from agentgym_rl.models.forward import ActionLogprobs
from agentgym_rl.training.algorithms.aggregation import Weights
from agentgym_rl.training.algorithms.base import TokenBatch, TokenLoss, TrainingSample
from agentgym_rl.training.algorithms.episode_tokens import actions_of
from agentgym_rl.training.learner.token_kinds import KindWeights, kinds_of_actions, per_token


def token_batch(
    batch: Sequence[TrainingSample], now: ActionLogprobs, values_A: Tensor | None = None
) -> TokenBatch:
    """Return the pass as a loss sees it; `now` and `values_A` carry the gradient."""
    logprobs_A = now.logprobs_A

    def tensor(parts: Sequence[Sequence[float]]) -> Tensor:
        # numpy reads numbers of Python several times as fast as torch.
        entries = np.concatenate([np.array(part, dtype=np.float64) for part in parts])
        return on_device(
            torch.from_numpy(entries), device=logprobs_A.device, dtype=logprobs_A.dtype
        )

    def scored(parts: Sequence[tuple[float, ...] | None]) -> Tensor | None:
        known = [part for part in parts if part is not None]
        return tensor(known) if len(known) == len(parts) else None

    engine_A = tensor([actions_of(item.sample, item.sample.logprobs) for item in batch])
    old_A = scored([item.scores.logprobs for item in batch])
    return TokenBatch(
        logprobs_A=logprobs_A,
        old_logprobs_A=old_A if old_A is not None else engine_A,
        advantages_A=tensor([item.advantages for item in batch]),
        entropies_A=now.entropies_A,
        engine_logprobs_A=engine_A,
        ref_logprobs_A=scored([item.scores.ref_logprobs for item in batch]),
        values_A=values_A,
        old_values_A=scored([item.scores.values for item in batch]),
        returns_A=scored([item.returns for item in batch]),
        samples_A=on_device(
            _repeated(range(len(batch)), batch), device=logprobs_A.device, dtype=torch.long
        ),
    )


def mean_loss(
    loss: TokenLoss,
    batch: Sequence[TrainingSample],
    weights: Weights,
    kind_weights: KindWeights | None = None,
) -> Tensor:
    """Return the pass's share of the update's loss.

    Kinds weigh the losses of their tokens, not the divisor: the gradient is the sum over kinds of
    the weight times the gradient of the kind with weight 1. The critic learns from all kinds alike.
    """
    loss_A = loss.loss_A
    weights_A = on_device(
        _repeated(weights.samples, batch), device=loss_A.device, dtype=loss_A.dtype
    )
    if kind_weights:
        kinds = (kind for item in batch for kind in kinds_of_actions(item.sample))
        loss_A = loss_A * per_token([kind_weights[kind] for kind in kinds], loss_A)
    if loss.critic_A is not None:
        loss_A = loss_A + loss.critic_A
    return (loss_A * weights_A).sum() / weights.divisor


def _repeated(entries: Iterable[float], batch: Sequence[TrainingSample]) -> Tensor:
    """Return the entry of each sample once for each of its action tokens."""
    counts = torch.tensor([item.num_tokens for item in batch])
    return torch.tensor(list(entries), dtype=torch.float64).repeat_interleave(counts)
