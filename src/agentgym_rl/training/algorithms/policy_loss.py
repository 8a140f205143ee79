"""How advantages become a loss in every online algorithm: `[policy_loss]` and `[kl]`."""

from __future__ import annotations

from torch import Tensor

from agentgym_rl.config import KLConfig, PolicyLossConfig
from agentgym_rl.training.algorithms.base import TokenBatch, TokenLoss
from agentgym_rl.training.algorithms.kl import MAX_LOG_RATIO, divergence
from agentgym_rl.training.algorithms.losses import (
    clip_fraction,
    clipped_policy_loss,
    importance_weights,
    sequence_log_ratios,
    weighted_logprob_loss,
)


class PolicyLoss:
    """The surrogate, its corrections, the divergence and the entropy bonus."""

    def __init__(self, config: PolicyLossConfig, kl: KLConfig) -> None:
        self._config, self._kl = config, kl
        self.entropy_coef = config.entropy_coef

    def prepare(self, entropy: float | None) -> None:
        """Set the bonus by the entropy of the step before; None for the first step."""
        config = self._config
        if config.entropy_target:
            missing = 0.0 if entropy is None else 1 - entropy / config.entropy_target
            self.entropy_coef = config.entropy_coef * max(0.0, missing)

    def __call__(self, batch: TokenBatch) -> TokenLoss:
        config = self._config
        loss_A, clipped_A = self._surrogate(batch)
        metrics = {"train/clip_fraction": clipped_A}
        if config.importance_cap:
            assert batch.engine_logprobs_A is not None, "the learner gives them"
            weights_A = importance_weights(
                batch.old_logprobs_A, batch.engine_logprobs_A, cap=config.importance_cap
            )
            loss_A = loss_A * weights_A
            metrics["train/importance_mean"] = weights_A
            metrics["train/importance_capped"] = (weights_A >= config.importance_cap).float()
        if batch.ref_logprobs_A is not None:
            kl_A = divergence(batch.logprobs_A, batch.ref_logprobs_A, estimator=self._kl.estimator)
            metrics["train/kl_reference"] = kl_A
            if self._kl.place == "loss":
                loss_A = loss_A + self._kl.coef * kl_A
        if self.entropy_coef:
            loss_A = loss_A - self.entropy_coef * batch.entropies_A
        return TokenLoss(loss_A, metrics)

    def _surrogate(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        """Return the loss of each token and whether its ratio was clipped."""
        config = self._config
        log_ratios_A = batch.logprobs_A - batch.old_logprobs_A
        if config.objective == "gspo":
            assert batch.samples_A is not None, "the learner gives them"
            log_ratios_A = sequence_log_ratios(log_ratios_A, batch.samples_A)
        # An infinite ratio would make the gradient of a clipped token 0 * inf.
        log_ratios_A = log_ratios_A.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        low, high = config.clip_low, config.clip_high
        if config.objective == "cispo":
            loss_A = weighted_logprob_loss(
                batch.logprobs_A, log_ratios_A, batch.advantages_A, clip_low=low, clip_high=high
            )
            ratios_A = log_ratios_A.detach().exp()
            return loss_A, ((ratios_A < 1 - low) | (ratios_A > 1 + high)).float()
        inputs = (log_ratios_A, batch.advantages_A)
        loss_A = clipped_policy_loss(*inputs, clip_low=low, clip_high=high)
        return loss_A, clip_fraction(*inputs, clip_low=low, clip_high=high)
