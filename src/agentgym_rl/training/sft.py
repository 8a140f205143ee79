"""Supervised learning on conversations, with the same learner as reinforcement learning."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence

import torch

from agentgym_rl.config import RunConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.algorithms.base import TokenBatch, TokenLoss, TrainingSample
from agentgym_rl.training.checkpoint import load_learner, save_checkpoint
from agentgym_rl.training.conversations import Conversation, to_sample
from agentgym_rl.training.learner import Learner

logger = logging.getLogger(__name__)


class SFTTrainer:
    """Minimises the negative log-probability of the demonstrated replies."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        run: RunFolder,
        conversations: Sequence[Conversation],
        *,
        batch_size: int,
    ) -> None:
        self._config, self._policy, self._run = config, policy, run
        self._samples = _make_samples(conversations, policy, max_tokens=config.rollout.max_tokens)
        self._batch_size = min(batch_size, len(self._samples))
        self._learner = Learner(policy, config.training, lr=config.training.lr, temperature=1.0)

    def restore(self) -> int:
        """Restore the optimiser from the newest checkpoint; return its step."""
        checkpoint = self._run.latest_checkpoint()
        if checkpoint is None:
            return 0
        load_learner(checkpoint, self._learner)
        return int(checkpoint.name.removeprefix("step-"))

    def train(self, *, after: int = 0, on_step: Callable[[Metrics], None] | None = None) -> None:
        """Run the steps after step `after`, then save the model."""
        for step in range(after + 1, self._config.training.steps + 1):
            started = time.monotonic()
            metrics: Metrics = {
                "step": step,
                **self._learner.update(self._batch(step), _negative_logprob),
            }
            metrics["time/step_s"] = metrics["time/update_s"] = time.monotonic() - started
            self._run.append_metrics(metrics)
            if step % self._config.checkpoint.every == 0 or step == self._config.training.steps:
                keep = self._config.checkpoint.keep
                save_checkpoint(self._run, self._policy, self._learner, step=step, keep=keep)
            if on_step is not None:
                on_step(metrics)
        self._policy.save(self._run.model)

    def _batch(self, step: int) -> list[TrainingSample]:
        """Return the samples of a step: a pure function of the seed and the step."""
        first = (step - 1) * self._batch_size
        orders: dict[int, list[int]] = {}
        batch = []
        for place in range(first, first + self._batch_size):
            epoch, offset = divmod(place, len(self._samples))
            if epoch not in orders:
                orders[epoch] = list(range(len(self._samples)))
                random.Random(f"{self._config.seed}/sft/{epoch}").shuffle(orders[epoch])
            batch.append(self._samples[orders[epoch][offset]])
        return batch


def _make_samples(
    conversations: Sequence[Conversation], policy: Policy, *, max_tokens: int
) -> list[TrainingSample]:
    limit = min(max_tokens, policy.max_context)
    samples = []
    for conversation in conversations:
        sample = to_sample(conversation, policy.renderer)
        if len(sample.token_ids) > limit:
            logger.warning(
                "demonstration of %s left out: %d tokens are more than %d",
                conversation.task,
                len(sample.token_ids),
                limit,
            )
            continue
        samples.append(TrainingSample(sample, (1.0,) * sample.num_action_tokens))
    if not samples:
        raise ConfigError(
            f"none of {len(conversations)} demonstrations can be used; see the warnings above"
        )
    return samples


def _negative_logprob(batch: TokenBatch) -> TokenLoss:
    hits_A = (batch.logprobs_A.detach() > -torch.log(torch.tensor(2.0))).float()
    return TokenLoss(-batch.logprobs_A, {"train/confident_fraction": hits_A})
