"""Direct preference optimisation on whole episodes, with the learner of all other methods.

The loss of a pair depends on sums over both episodes. Its gradient is the gradient of the tokens'
log-probabilities times the slope of the loss, so the sums are scored first and the update is then
one over tokens: it may be split into passes anywhere, even between the episodes of a pair.

Shape legend: A action tokens of a pass, P pairs of an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from agentgym_rl.config import DPOConfig
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.training.algorithms.base import (
    ScoredSample,
    Scores,
    TokenBatch,
    TokenLoss,
    TrainingSample,
)
from agentgym_rl.training.algorithms.kl import drift
from agentgym_rl.training.data.preferences import PairSet
from agentgym_rl.training.learner.group import LearnerGroup
from agentgym_rl.training.learner.reference_scores import reference_logprobs
from agentgym_rl.training.offline import OfflineTrainer
from agentgym_rl.training.run_parts import RunParts

ScoredPair: TypeAlias = tuple[ScoredSample, ScoredSample]
"""The chosen and the rejected episode, with the reference's log-probabilities."""


def preference_loss(differences_P: Tensor, *, beta: float) -> Tensor:
    """Return the loss of each pair from how much more the policy prefers it than the reference.

    A difference is log(policy / reference) of the chosen minus the rejected episode. DPO
    (arXiv:2305.18290): -log sigmoid(beta * difference).
    """
    return -logsigmoid(beta * differences_P)


class DPOTrainer(OfflineTrainer[ScoredPair]):
    """Learns from pairs; the reference is the policy that the run begins with."""

    def __init__(self, parts: RunParts, data: PairSet, *, learner: LearnerGroup) -> None:
        """`learner` scores with the policy, and divides sums over tokens by episodes."""
        assert isinstance(parts.config.algorithm, DPOConfig), "preference learning"
        self._dpo, self._num_left_out = parts.config.algorithm, data.num_left_out
        samples = [sample for pair in data.pairs for sample in (pair.chosen, pair.rejected)]
        references = reference_logprobs(parts.folder, samples, learner.score_samples)
        scored = [
            ScoredSample(sample, Scores(ref_logprobs=tuple(logprobs_A.tolist())))
            for sample, logprobs_A in zip(samples, references, strict=True)
        ]
        pairs = list(zip(scored[0::2], scored[1::2], strict=True))
        super().__init__(parts, pairs, learner=learner, batch_size=self._dpo.batch_size)

    def update(self, batch: Sequence[ScoredPair]) -> Metrics:
        episodes = [item for pair in batch for item in pair]
        ratios = torch.tensor(self._log_ratios(episodes), dtype=torch.float64)
        chosen_P, rejected_P = ratios[0::2], ratios[1::2]
        differences_P = (chosen_P - rejected_P).requires_grad_()
        loss_P = preference_loss(differences_P, beta=self._dpo.beta)
        (slopes_P,) = torch.autograd.grad(loss_P.sum(), differences_P)
        slopes = [float(slope) for slope in slopes_P for _ in ("chosen", "rejected")]
        items = [
            self._weighted(item, slope, is_chosen=place % 2 == 0)
            for place, (item, slope) in enumerate(zip(episodes, slopes, strict=True))
        ]
        difference_P = differences_P.detach()
        report = replace(
            self._learner.update(items, weighted_logprob),
            loss=float(loss_P.detach().mean()),
            logprob_diff=None,  # this run's engine sampled nothing to compare
        )
        return report.metrics() | {
            "train/margin": float(self._dpo.beta * difference_P.mean()),
            "train/accuracy": float((difference_P > 0).double().mean()),
            "train/chosen_log_ratio": float(chosen_P.mean()),
            "train/rejected_log_ratio": float(rejected_P.mean()),
            "train/pairs_left_out": float(self._num_left_out),
        }

    def _log_ratios(self, episodes: Sequence[ScoredSample]) -> list[float]:
        """Return log(policy / reference) of the episodes' action tokens, the sums or means."""
        ratios = []
        scored = self._learner.score_samples([item.sample for item in episodes])
        for item, now in zip(episodes, scored, strict=True):
            logprobs, references = now.scores.logprobs, item.scores.ref_logprobs
            assert logprobs is not None and references is not None, "both were computed"
            ratios.append((sum(logprobs) - sum(references)) / self._length(item))
        return ratios

    def _weighted(self, item: ScoredSample, slope: float, *, is_chosen: bool) -> TrainingSample:
        """Return the episode with what each of its tokens gains of minus the loss of its pair."""
        num_tokens = item.sample.num_action_tokens
        weight = (-slope if is_chosen else slope) / self._length(item)
        if is_chosen:
            weight += self._dpo.sft_weight / num_tokens
        # An update is a mean over episodes, of which a pair has two.
        return TrainingSample(item.sample, (2.0 * weight,) * num_tokens, item.scores)

    def _length(self, item: ScoredSample) -> float:
        return float(item.sample.num_action_tokens) if self._dpo.length_normalized else 1.0


def weighted_logprob(batch: TokenBatch) -> TokenLoss:
    """Return minus each token's log-probability times its weight.

    Reports how far the policy is from the reference, as if that had sampled the episodes.
    """
    assert batch.ref_logprobs_A is not None, "every episode of a pair has them"
    return TokenLoss(
        -batch.advantages_A * batch.logprobs_A,
        {"train/kl": drift(batch.logprobs_A.detach(), batch.ref_logprobs_A)},
    )
