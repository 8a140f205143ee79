"""The learner: turns training samples and a loss into updates of the weights.

Samples are packed without padding into passes of at most `tokens_per_batch` tokens, and every
sum is divided by the number of action tokens of the whole update: how an update is split into
passes does not change it.

Shape legend: A action tokens of a batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from agentgym_rl.config import TrainingConfig
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import Policy
from agentgym_rl.training.algorithms.base import TokenBatch, TokenLoss, TrainingSample
from agentgym_rl.training.algorithms.losses import k3_divergence

logger = logging.getLogger(__name__)

LossFunction = Callable[[TokenBatch], TokenLoss]


class Learner:
    """AdamW on the policy's weights. Synchronous; updates in place, so the engine sees them."""

    def __init__(self, policy: Policy, config: TrainingConfig, *, temperature: float) -> None:
        self._model = policy.model
        self._config = config
        self._temperature = temperature
        self._num_updates = 0
        decayed = [p for p in self._model.parameters() if p.requires_grad and p.ndim >= 2]
        others = [p for p in self._model.parameters() if p.requires_grad and p.ndim < 2]
        self._optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": config.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=config.lr,
        )

    def update(self, samples: Sequence[TrainingSample], loss: LossFunction) -> dict[str, float]:
        """Make one optimiser update on the mean loss over all action tokens; return metrics."""
        num_tokens = sum(item.sample.num_action_tokens for item in samples)
        if num_tokens == 0:
            raise ValueError("an update needs at least one action token")
        self._optimizer.zero_grad(set_to_none=True)
        totals: dict[str, float] = {}
        for batch in split_by_tokens(samples, max_tokens=self._config.tokens_per_batch):
            for name, value in self._accumulate(batch, loss, num_tokens).items():
                totals[name] = totals.get(name, 0.0) + value
        metrics = {name: value / num_tokens for name, value in totals.items()}
        return metrics | self._step()

    def state(self) -> dict[str, object]:
        """Return what a checkpoint keeps beside the weights."""
        return {"optimizer": self._optimizer.state_dict(), "num_updates": self._num_updates}

    def load_state(self, state: dict[str, object]) -> None:
        """Go on from what `state` returned."""
        optimizer, num_updates = state["optimizer"], state["num_updates"]
        assert isinstance(optimizer, dict) and isinstance(num_updates, int), "written by `state`"
        self._optimizer.load_state_dict(optimizer)
        self._num_updates = num_updates

    def _accumulate(
        self, batch: Sequence[TrainingSample], loss: LossFunction, num_tokens: int
    ) -> dict[str, float]:
        """Add the batch's share of the gradient; return sums over its action tokens."""
        samples = [item.sample for item in batch]
        now = action_logprobs(self._model, samples, temperature=self._temperature)
        device = now.logprobs_A.device
        old_A = torch.tensor(
            [lp for s in samples for lp, m in zip(s.logprobs, s.loss_mask, strict=True) if m],
            device=device,
        )
        advantages_A = torch.tensor([a for item in batch for a in item.advantages], device=device)
        result = loss(TokenBatch(now.logprobs_A, old_A, advantages_A, now.entropies_A))
        (result.loss_A.sum() / num_tokens).backward()
        logprobs_A = now.logprobs_A.detach()
        reported: dict[str, Tensor] = {
            "train/loss": result.loss_A,
            "train/entropy": now.entropies_A,
            "train/kl": k3_divergence(logprobs_A, old_A),
            "train/logprob_diff": (logprobs_A - old_A).abs(),
            **result.metrics,
        }
        return {name: float(value_A.detach().double().sum()) for name, value_A in reported.items()}

    def _step(self) -> dict[str, float]:
        """Clip and apply the gradient; one that is not finite is skipped and counted."""
        self._num_updates += 1
        lr = self._config.lr * min(1.0, self._num_updates / max(1, self._config.warmup_steps))
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        norm = float(
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._config.max_grad_norm)
        )
        is_finite = math.isfinite(norm)
        if is_finite:
            self._optimizer.step()
        else:
            logger.warning(
                "update %d has a gradient of norm %s and was skipped", self._num_updates, norm
            )
        self._optimizer.zero_grad(set_to_none=True)
        return {
            "train/grad_norm": norm if is_finite else 0.0,
            "train/updates_skipped": 0.0 if is_finite else 1.0,
            "train/lr": lr,
        }


def split_by_tokens(
    samples: Sequence[TrainingSample], *, max_tokens: int
) -> list[list[TrainingSample]]:
    """Return the samples in order, in batches of at most `max_tokens` (or of one sample)."""
    batches: list[list[TrainingSample]] = []
    room = 0
    for item in samples:
        length = len(item.sample.token_ids)
        if not batches or length > room:
            batches.append([])
            room = max_tokens
        batches[-1].append(item)
        room -= length
    return batches
