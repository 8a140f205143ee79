"""The learner: scores samples, and turns training samples and a loss into updates of the weights.

Samples are packed without padding into passes of at most `tokens_per_batch` tokens, and every sum
is divided by a number of the whole update, so how an update is split into passes does not matter.
With `share_prefix` a pass computes common beginnings of its samples once.

Shape legend: A action tokens of a pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from agentgym_rl.config import TrainingConfig
from agentgym_rl.models.critic import Critic
from agentgym_rl.models.forward import (
    ActionLogprobs,
    action_logprobs,
    action_logprobs_and_hidden,
    enable_prefix_sharing,
)
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.sharding import (
    Shards,
    gathered,
    load_whole,
    named_tensors,
    trained_weights,
)
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
from agentgym_rl.training.learner.packing import packing_of
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

STATE_FILE = "learner.pt"
"""What one process writes into a checkpoint."""
STATE_SHARDS = "learner"
"""What ranks write: a folder with files of each (sharded/shard_files.py)."""
_NUM_UPDATES = "num_updates"

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
        shards: Shards | None = None,
    ) -> None:
        """`num_updates` counts the whole run, which a falling learning rate needs to know.

        With `shards` the learner is one rank of several: policy, reference and critic are spread
        over them, and every rank must make the same calls, with as many passes in each.
        """
        self._policy, self._model, self._config = policy, policy.model, config
        self._temperature = temperature
        self._needs = needs or Needs()
        self._aggregation = aggregation or Aggregation()
        self._kind_weights = kind_weights or {}
        self._num_updates, self._num_updates_in_all = 0, num_updates
        self._packing = packing_of(config)
        if config.share_prefix:  # before there are copies
            enable_prefix_sharing(self._model)
        self._reference, self._critic, self._critic_optimizer = None, None, None
        if self._needs.reference:
            self._reference = Reference(self._model, temperature=temperature)
        self._speed = Speed(self._model, shares_prefix=config.share_prefix)
        if self._needs.critic is not None:
            self._critic = Critic(self._model, trunk=self._needs.critic.trunk)
        self._are_masters: list[bool] | None = None
        of_critic = self._shard(shards) if shards is not None else None
        self._optimizer = self._new_optimizer()
        if self._critic is not None:
            self._critic_optimizer = MasterAdamW(
                self._critic.parameters(),
                weight_decay=config.weight_decay,
                are_masters=of_critic,
                offload=config.offload,
            )

    def score(self, groups: Sequence[Group]) -> list[list[ScoredEpisode]]:
        """Return the episodes with what `needs` asks for, under the present weights."""
        scored = score_groups(groups, self._scorers(), packing=self._packing)
        self._park_reference()
        if self._critic is None or self._needs.critic is None or not self._needs.critic.bootstraps:
            return scored
        return bootstrap_groups(scored, self._policy, self.final_values)

    @torch.no_grad()
    def final_values(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        """Return the critic's value after the last token of each sequence."""
        assert self._critic is not None, "only a critic has values"
        passes = self._packing.split(sequences, lambda ids: ids)
        return [value for part in passes for value in self._critic.final_values(part).tolist()]

    def score_samples(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        """Return samples without groups, with what `needs` asks for."""
        scored = score_samples(samples, self._scorers(), packing=self._packing)
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
        weights = update_weights(self._aggregation, samples, kept_share=kept_share)
        started = time.monotonic()
        passes = self.passes(samples)
        totals = self.accumulate(passes, loss, weights, observe=observe)
        applied = self.apply(updates_policy=updates_policy)
        self._speed.add(passes, started=started)
        return whole_report(applied, totals, samples, divisor=weights.divisor)

    def passes(self, samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
        """Return the samples, in order, as they are computed together."""
        return self._packing.split(samples, lambda item: item.sample.token_ids)

    def accumulate(
        self,
        passes: Sequence[Sequence[TrainingSample]],
        loss: LossFunction,
        weights: Weights,
        *,
        fillers: Sequence[TrainingSample] = (),
        observe: Observer | None = None,
    ) -> dict[str, float]:
        """Begin an update with the gradient of samples; return sums over their action tokens.

        `weights` are those of the samples of all passes. Each of `fillers` is one more pass, of
        weight 0: ranks must make equally many.
        """
        self._zero_grad()
        sums: dict[str, Tensor] = {}
        shares = iter(weights.samples)
        for batch in passes:
            own = Weights(tuple(next(shares) for _ in batch), weights.divisor)
            for name, value in self._accumulate(batch, loss, own, observe).items():
                sums[name] = sums[name] + value if name in sums else value
        for filler in fillers:
            self._accumulate([filler], loss, Weights((0.0,), weights.divisor), None)
        if not sums:
            return {}
        # Read once: every reading waits for a GPU to be done.
        return dict(zip(sums, torch.stack(list(sums.values())).tolist(), strict=True))

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
            state["critic"] = gathered(self._critic.state_dict())
            state["critic_optimizer"] = self._critic_optimizer.state_dict()
        return state

    def load_state(self, state: dict[str, Any]) -> None:  # Any: what `torch.load` returns
        """Resume from what `state` returned."""
        self._optimizer.load_state_dict(state["optimizer"])
        self._num_updates = int(state["num_updates"])
        if self._reference is not None:
            self._reference.load_state(state["reference"])
        if self._critic is not None and self._critic_optimizer is not None:
            load_whole(self._critic, state["critic"])
            self._critic_optimizer.load_state_dict(state["critic_optimizer"])

    def fetch_weights(self) -> None:
        """Bring the policy up to date: it is the learner's own, so it always is."""

    def save_state(self, folder: Path) -> Callable[[], None]:
        """Copy what a checkpoint keeps beside the weights; the returned call writes it.

        One process writes one file of whole tensors, which needs nothing of torch.distributed.
        """
        state = tree_map_only(Tensor, _copied, self.state())
        return partial(torch.save, state, folder / STATE_FILE)

    def restore_state(self, folder: Path) -> None:
        """Resume from what `save_state` wrote there, in one process or on any number of ranks."""
        if (folder / STATE_SHARDS).exists():
            self._load_shards(folder / STATE_SHARDS)
            return
        # To the CPU first: the learner copies to where it is, which may be another device now.
        file = folder / STATE_FILE
        # Ranks read only their parts of it.
        is_rank = self._are_masters is not None
        self.load_state(torch.load(file, weights_only=True, map_location="cpu", mmap=is_rank))

    def named_state(self) -> dict[str, Tensor]:
        """Return the same as `state`, by name; of each shard this rank's part."""
        named: dict[str, Mapping[str, Tensor]] = {
            "": {_NUM_UPDATES: torch.tensor([self._num_updates])},
            "optimizer.": self._optimizer.named_state(self._names()),
        }
        if self._reference is not None:
            named["reference."] = self._reference.named_state()
        if self._critic is not None and self._critic_optimizer is not None:
            of_critic = self._critic_optimizer.named_state(self._names_of_critic())
            named |= {"critic.": named_tensors(self._critic), "critic_optimizer.": of_critic}
        return {place + name: one for place, own in named.items() for name, one in own.items()}

    def _load_shards(self, folder: Path) -> None:
        # Start-up time: a run in one process needs no torch.distributed.
        from agentgym_rl.training.learner.sharded.shard_files import read_names, read_shards

        saved, parts = read_names(folder), dict[str, Mapping[str, Tensor]]()

        def names_at(place: str) -> set[str]:
            return {name.removeprefix(place) for name in saved if name.startswith(place)}

        num_updates = torch.zeros(1, dtype=torch.long)
        names, of_critic = self._names(), self._names_of_critic()
        parts[""] = {_NUM_UPDATES: num_updates}
        parts["optimizer."] = self._optimizer.empty_named_state(names, names_at("optimizer."))
        if self._reference is not None:
            parts["reference."] = self._reference.to_fill(is_copied=bool(names_at("reference.")))
        if self._critic is not None and self._critic_optimizer is not None:
            place = "critic_optimizer."
            parts["critic."] = named_tensors(self._critic)
            parts[place] = self._critic_optimizer.empty_named_state(of_critic, names_at(place))
        whole = {place + name: one for place, own in parts.items() for name, one in own.items()}
        read_shards(folder, whole)
        self._num_updates = int(num_updates)
        self._optimizer.load_named_state(names, parts["optimizer."])
        if self._critic_optimizer is not None:
            self._critic_optimizer.load_named_state(of_critic, parts["critic_optimizer."])

    def _names(self) -> list[str]:
        return [name for name, _ in trained_weights(self._model)]

    def _names_of_critic(self) -> list[str]:
        return [name for name, _ in trained_weights(self._critic)] if self._critic else []

    def check(self) -> None:
        """Raise LearnerDiedError if a process has died: there are none."""

    def close(self) -> None:
        """End processes: there are none."""

    def _new_optimizer(self) -> MasterAdamW:
        return MasterAdamW(
            self._model.parameters(),
            weight_decay=self._config.weight_decay,
            are_masters=self._are_masters,
            offload=self._config.offload,
        )

    def _shard(self, shards: Shards) -> list[bool]:
        """Spread all models over the ranks; return which of the critic's weights are rounded."""
        if self._reference is not None:
            self._reference.shard(shards)
        of_critic = self._critic.shard(shards) if self._critic is not None else []
        self._are_masters = shards.shard_trained(self._model)
        return of_critic

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
        now, actions = action_logprobs_and_hidden(
            self._model, samples, temperature=self._temperature
        )
        return now, self._critic.read(actions)

    def apply(self, *, updates_policy: bool) -> UpdateReport:
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


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def update_weights(
    aggregation: Aggregation, samples: Sequence[TrainingSample], *, kept_share: float
) -> Weights:
    """Return the weights of an update."""
    if not any(item.num_tokens for item in samples):
        raise ValueError("an update needs at least one action token")
    return aggregation.weights(samples, kept_share=kept_share)


def whole_report(
    applied: UpdateReport,
    totals: Mapping[str, float],
    samples: Sequence[TrainingSample],
    *,
    divisor: float,
) -> UpdateReport:
    """Return what an update did, with the sums over its action tokens as means."""
    num_tokens = sum(item.num_tokens for item in samples)
    details = {name: totals[name] / num_tokens for name in totals if name not in _OWN_SUMS}
    return replace(
        applied,
        loss=totals[_LOSS] / divisor,
        entropy=totals[_ENTROPY] / num_tokens,
        kl=totals[_KL] / num_tokens,
        logprob_diff=totals[_LOGPROB_DIFF] / num_tokens,
        details=details | mean_entropies(totals, samples),
    )


def _reported(loss: TokenLoss) -> TokenLoss:
    """Return the losses as numbers to add up exactly, without a gradient."""
    critic_A = None if loss.critic_A is None else loss.critic_A.detach().double()
    return TokenLoss(loss.loss_A.detach().double(), critic_A=critic_A)
