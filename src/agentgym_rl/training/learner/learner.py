"""The learner: scores samples, and turns training samples and a loss into updates of the weights.

Samples are packed without padding into passes of at most `tokens_per_batch` tokens, and every sum
is divided by a number of the whole update, so how an update is split into passes does not matter.

Shape legend: A action tokens of a pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from agentgym_rl.config import TrainingConfig
from agentgym_rl.models.chunked_logprobs import chunked_logprobs
from agentgym_rl.models.critic import Critic
from agentgym_rl.models.forward import ActionLogprobs, action_hidden, action_logprobs
from agentgym_rl.models.loading import Policy
from agentgym_rl.training.algorithms.aggregation import Aggregation, Weights
from agentgym_rl.training.algorithms.base import (
    Needs,
    ScoredEpisode,
    ScoredSample,
    TokenBatch,
    TokenLoss,
    TrainingSample,
)
from agentgym_rl.training.algorithms.kl import drift
from agentgym_rl.training.learner.batching import mean_loss, token_batch
from agentgym_rl.training.learner.optimizer import MasterAdamW, learning_rate
from agentgym_rl.training.learner.packing import split_by_tokens
from agentgym_rl.training.learner.reference import Reference
from agentgym_rl.training.learner.scoring import (
    Scorers,
    bootstrap_groups,
    score_groups,
    score_samples,
)
from agentgym_rl.training.learner.speed import Speed
from agentgym_rl.training.learner.token_kinds import (
    ENTROPIES,
    KindWeights,
    entropy_sums,
    mean_entropies,
)
from agentgym_rl.training.learner.update_report import UpdateReport
from agentgym_rl.types import Group, Sample

logger = logging.getLogger(__name__)

_LOSS, _ENTROPY, _KL = "train/loss", "train/entropy", "train/kl"
_LOGPROB_DIFF = "train/logprob_diff"
_OWN_SUMS = {_LOSS, _ENTROPY, _KL, _LOGPROB_DIFF, *ENTROPIES.values()}
"""Sums that every update has, by metric name; the others are the loss's own."""

LossFunction = Callable[[TokenBatch], TokenLoss]
Observer = Callable[[Sequence[TrainingSample], ActionLogprobs], None]
"""Gets what the policy computed in each pass of an update."""


class Learner:
    """AdamW on the policy's weights. Synchronous; updates in place, so the engine sees them.

    With `needs` it also keeps a frozen reference, and a critic with its own optimiser.
    """

    def __init__(
        self,
        policy: Policy,
        config: TrainingConfig,
        *,
        temperature: float,
        needs: Needs | None = None,
        aggregation: Aggregation | None = None,
        kind_weights: KindWeights | None = None,
        num_updates: int = 0,
    ) -> None:
        """`num_updates` counts the whole run, which a falling learning rate needs to know."""
        self._policy, self._model, self._config = policy, policy.model, config
        self._temperature = temperature
        self._needs = needs or Needs()
        self._aggregation = aggregation or Aggregation()
        self._kind_weights = kind_weights or {}
        self._num_updates, self._num_updates_in_all = 0, num_updates
        self._optimizer = self._new_optimizer()
        self._reference, self._critic, self._critic_optimizer = None, None, None
        if self._needs.reference:
            self._reference = Reference(self._model, temperature=temperature)
        self._speed = Speed(self._model)
        if self._needs.critic is not None:
            self._critic = Critic(self._model, trunk=self._needs.critic.trunk)
            self._critic_optimizer = MasterAdamW(
                self._critic.parameters(), weight_decay=config.weight_decay
            )

    def score(self, groups: Sequence[Group]) -> list[list[ScoredEpisode]]:
        """Return the episodes with what `needs` asks for, under the present weights."""
        limit = self._config.tokens_per_batch
        scored = score_groups(groups, self._scorers(), max_tokens=limit)
        self._park_reference()
        if self._critic is None or self._needs.critic is None or not self._needs.critic.bootstraps:
            return scored
        return bootstrap_groups(scored, self._critic, self._policy, max_tokens=limit)

    def score_samples(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        """Return samples without groups, with what `needs` asks for."""
        limit = self._config.tokens_per_batch
        scored = score_samples(samples, self._scorers(), max_tokens=limit)
        self._park_reference()
        return scored

    def update(
        self,
        samples: Sequence[TrainingSample],
        loss: LossFunction,
        *,
        updates_policy: bool = True,
        kept_share: float = 1.0,
        observe: Observer | None = None,
    ) -> UpdateReport:
        """Make one optimiser update on the aggregated loss.

        Without `updates_policy` only the critic learns. `kept_share` is the part of the step's
        planned groups that was not dropped.
        """
        num_tokens = sum(item.num_tokens for item in samples)
        if num_tokens == 0:
            raise ValueError("an update needs at least one action token")
        weights = self._aggregation.weights(samples, kept_share=kept_share)
        self._zero_grad()
        started = time.monotonic()
        sums: dict[str, Tensor] = {}
        shares = dict(zip(map(id, samples), weights.samples, strict=True))
        limit = self._config.tokens_per_batch
        for batch in split_by_tokens(samples, lambda item: item.length, max_tokens=limit):
            own = Weights(tuple(shares[id(item)] for item in batch), weights.divisor)
            for name, value in self._accumulate(batch, loss, own, observe).items():
                sums[name] = sums[name] + value if name in sums else value
        # Read once: every reading waits for a GPU to be done.
        totals = dict(zip(sums, torch.stack(list(sums.values())).tolist(), strict=True))
        applied = self._apply(updates_policy=updates_policy)
        self._speed.add(samples, started=started)
        details = {name: totals[name] / num_tokens for name in totals if name not in _OWN_SUMS}
        return replace(
            applied,
            loss=totals[_LOSS] / weights.divisor,
            entropy=totals[_ENTROPY] / num_tokens,
            kl=totals[_KL] / num_tokens,
            logprob_diff=totals[_LOGPROB_DIFF] / num_tokens,
            details=details | mean_entropies(totals, samples),
        )

    def schedule_after(self, num_updates: int) -> None:
        """Continue the learning rate's schedule after this many planned updates.

        Otherwise only actual updates would count, and a rate that should fall to zero over the run
        would not reach it when groups are dropped.
        """
        self._num_updates = num_updates

    def take_rates(self) -> dict[str, float]:
        """Return how fast the updates since the last call were (training/learner/speed.py)."""
        return self._speed.take()

    def restart(self) -> None:
        """Forget momentum and the count of updates; keep the weights. Not with a critic."""
        assert self._critic is None, "a critic would have to restart too"
        self._optimizer = self._new_optimizer()
        self._num_updates = 0

    def state(self) -> dict[str, object]:
        """Return what a checkpoint keeps beside the weights."""
        state: dict[str, object] = {
            "optimizer": self._optimizer.state_dict(),
            "num_updates": self._num_updates,
        }
        if self._reference is not None:
            state["reference"] = self._reference.state()
        if self._critic is not None and self._critic_optimizer is not None:
            state["critic"] = self._critic.state_dict()
            state["critic_optimizer"] = self._critic_optimizer.state_dict()
        return state

    def load_state(self, state: dict[str, Any]) -> None:  # Any: what `torch.load` returns
        """Resume from what `state` returned."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._num_updates = int(state["num_updates"])
        if self._reference is not None:
            self._reference.load_state(state["reference"])
        if self._critic is not None and self._critic_optimizer is not None:
            self._critic.load_state_dict(state["critic"])
            self._critic_optimizer.load_state_dict(state["critic_optimizer"])

    def _new_optimizer(self) -> MasterAdamW:
        decay = self._config.weight_decay
        return MasterAdamW(self._model.parameters(), weight_decay=decay)

    def _scorers(self) -> Scorers:
        return Scorers(
            policy=self._logprobs if self._needs.policy else None,
            reference=self._reference.logprobs if self._reference is not None else None,
            values=self._critic.values if self._critic is not None else None,
        )

    def _park_reference(self) -> None:
        if self._reference is not None:
            self._reference.park()

    def _logprobs(self, samples: Sequence[Sample]) -> Tensor:
        return action_logprobs(self._model, samples, temperature=self._temperature).logprobs_A

    def _accumulate(
        self,
        batch: Sequence[TrainingSample],
        loss: LossFunction,
        weights: Weights,
        observe: Observer | None,
    ) -> dict[str, Tensor]:
        """Add the pass's share of the gradient; return sums over its action tokens."""
        now, values_A = self._forward([item.sample for item in batch])
        if observe is not None:
            observe(batch, now)
        tokens = token_batch(batch, now, values_A)
        result = loss(tokens)
        mean_loss(result, batch, weights, self._kind_weights).backward()
        self._optimizer.collect_gradients()
        if self._critic_optimizer is not None:
            self._critic_optimizer.collect_gradients()
        logprobs_A, engine_A = now.logprobs_A.detach(), tokens.engine_logprobs_A
        assert engine_A is not None, "`token_batch` gives them"
        reported: dict[str, Tensor] = {
            _ENTROPY: now.entropies_A,
            _KL: drift(logprobs_A, tokens.old_logprobs_A),
            _LOGPROB_DIFF: (logprobs_A - engine_A).abs(),
            **result.metrics,
        }
        sums = {name: value_A.detach().double().sum() for name, value_A in reported.items()}
        sums |= entropy_sums(now.entropies_A.detach().double(), batch)
        weighted = mean_loss(
            _reported(result), batch, replace(weights, divisor=1.0), self._kind_weights
        )
        return {_LOSS: weighted} | sums

    def _forward(self, samples: Sequence[Sample]) -> tuple[ActionLogprobs, Tensor | None]:
        """Return log-probabilities and, with a critic, values of the pass's action tokens."""
        if self._critic is None or not self._critic.is_shared:
            now = action_logprobs(self._model, samples, temperature=self._temperature)
            return now, self._critic.values(samples) if self._critic is not None else None
        actions = action_hidden(self._model, samples)
        logprobs_A, entropies_A = chunked_logprobs(
            self._model, actions.hidden_AH, actions.ids_A, temperature=self._temperature
        )
        return ActionLogprobs(logprobs_A, entropies_A), self._critic.read(actions.hidden_AH)

    def _apply(self, *, updates_policy: bool) -> UpdateReport:
        """Clip and apply the gradients; one that is not finite is skipped and counted."""
        config, report = self._config, UpdateReport()
        if self._critic_optimizer is not None and self._needs.critic is not None:
            lr = self._needs.critic.lr
            result = self._critic_optimizer.step(lr=lr, max_grad_norm=config.max_grad_norm)
            skipped = float(not result.is_applied)
            norm = 0.0 if skipped else result.grad_norm
            report = replace(report, critic_grad_norm=norm, num_skipped=skipped)
        if updates_policy:
            self._num_updates += 1
            lr = learning_rate(
                self._num_updates,
                peak=config.lr,
                schedule=config.lr_schedule,
                num_warmup=config.warmup_steps,
                num_updates=self._num_updates_in_all,
            )
            result = self._optimizer.step(lr=lr, max_grad_norm=config.max_grad_norm)
            norm, skipped = (result.grad_norm, 0.0) if result.is_applied else (0.0, 1.0)
            skipped += report.num_skipped
            report = replace(report, grad_norm=norm, lr=lr, num_skipped=skipped)
            if not result.is_applied:
                logger.warning(
                    "update %d has a gradient of norm %s and was skipped",
                    self._num_updates,
                    result.grad_norm,
                )
        self._zero_grad()
        return report

    def _zero_grad(self) -> None:
        self._optimizer.zero_grad()
        if self._critic_optimizer is not None:
            self._critic_optimizer.zero_grad()


def _reported(loss: TokenLoss) -> TokenLoss:
    """Return the losses as numbers to add up exactly, without a gradient."""
    critic_A = None if loss.critic_A is None else loss.critic_A.detach().double()
    return TokenLoss(loss.loss_A.detach().double(), critic_A=critic_A)
