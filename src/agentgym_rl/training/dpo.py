"""Direct preference optimisation on whole episodes, with the learner of all other methods.

The loss of a pair depends on sums over both episodes. Its gradient is that of the tokens'
log-probabilities, each times the slope of the loss, so the sums are scored first and the update is
then one over tokens: it may be split into passes anywhere, even between the two of a pair.

Shape legend: A action tokens of a pass, P pairs of an update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from agentgym_rl.config import DPOConfig, RunConfig
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.algorithms.aggregation import Aggregation
from agentgym_rl.training.algorithms.base import (
    Needs,
    ScoredSample,
    TokenBatch,
    TokenLoss,
    TrainingSample,
)
from agentgym_rl.training.learner import Learner
from agentgym_rl.training.offline import OfflineTrainer
from agentgym_rl.training.preferences import Pair, PairSet
from agentgym_rl.training.trainer import Evaluate, Listeners


def preference_loss(
    differences_P: Tensor, *, beta: float, objective: Literal["dpo", "ipo"]
) -> Tensor:
    """Return the loss of each pair from how much more the policy prefers it than the reference.

    A difference is log(policy / reference) of the chosen episode minus that of the rejected. DPO
    (arXiv:2305.18290): -log sigmoid(beta * difference). IPO (arXiv:2310.12036):
    (difference - 1 / (2 beta))^2, which is least at a finite preference.
    """
    if objective == "ipo":
        return (differences_P - 1.0 / (2.0 * beta)).square()
    return -logsigmoid(beta * differences_P)


class DPOTrainer(OfflineTrainer[Pair]):
    """Learns from pairs; the reference is the policy that the run begins with."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        run: RunFolder,
        data: PairSet,
        *,
        evaluate: Evaluate | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        assert isinstance(config.algorithm, DPOConfig), "preference learning"
        self._dpo, self._num_left_out = config.algorithm, data.num_left_out
        learner = Learner(
            policy,
            config.training,
            temperature=1.0,
            needs=Needs(policy=True, reference=True),
            # By the number of episodes: a long one weighs no less, unless `length_normalized`.
            aggregation=Aggregation("constant"),
            num_updates=config.num_updates,
        )
        super().__init__(
            config,
            policy,
            run,
            data.pairs,
            learner=learner,
            batch_size=config.algorithm.batch_size,
            evaluate=evaluate,
            listeners=listeners,
        )

    def update(self, batch: Sequence[Pair]) -> Metrics:
        samples = [sample for pair in batch for sample in (pair.chosen, pair.rejected)]
        scored = self._learner.score_samples(samples)
        ratios = torch.tensor([self._log_ratio(item) for item in scored], dtype=torch.float64)
        chosen_P, rejected_P = ratios[0::2], ratios[1::2]
        differences_P = (chosen_P - rejected_P).requires_grad_()
        loss_P = preference_loss(differences_P, beta=self._dpo.beta, objective=self._dpo.objective)
        (slopes_P,) = torch.autograd.grad(loss_P.sum(), differences_P)
        slopes = [float(slope) for slope in slopes_P for _ in ("chosen", "rejected")]
        items = [
            self._weighted(item, slope, is_chosen=place % 2 == 0)
            for place, (item, slope) in enumerate(zip(scored, slopes, strict=True))
        ]
        difference_P = differences_P.detach()
        return self._learner.update(items, weighted_logprob) | {
            "train/loss": float(loss_P.detach().mean()),
            "train/margin": float(self._dpo.beta * difference_P.mean()),
            "train/accuracy": float((difference_P > 0).double().mean()),
            "train/chosen_log_ratio": float(chosen_P.mean()),
            "train/rejected_log_ratio": float(rejected_P.mean()),
            "train/pairs_left_out": float(self._num_left_out),
        }

    def _weighted(self, item: ScoredSample, slope: float, *, is_chosen: bool) -> TrainingSample:
        """Return the episode with what minus the loss of its pair gains by each of its tokens."""
        weight = (-slope if is_chosen else slope) / self._length(item)
        if is_chosen:
            weight += self._dpo.sft_weight / _num_tokens(item)
        # An update is a mean over episodes, of which a pair has two.
        return TrainingSample(item.sample, (2.0 * weight,) * _num_tokens(item))

    def _log_ratio(self, item: ScoredSample) -> float:
        """Return log(policy / reference) of the episode's action tokens, their sum or mean."""
        scores = item.scores
        assert scores.logprobs is not None and scores.ref_logprobs is not None, "both are needed"
        return (sum(scores.logprobs) - sum(scores.ref_logprobs)) / self._length(item)

    def _length(self, item: ScoredSample) -> float:
        return float(_num_tokens(item)) if self._dpo.length_normalized else 1.0


def weighted_logprob(batch: TokenBatch) -> TokenLoss:
    """Return minus each token's log-probability times its weight."""
    return TokenLoss(-batch.advantages_A * batch.logprobs_A)


def _num_tokens(item: ScoredSample) -> int:
    return item.sample.num_action_tokens
