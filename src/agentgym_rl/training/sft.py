"""Supervised learning on conversations, with the same learner as reinforcement learning."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from agentgym_rl.config import RunConfig, SFTConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import Policy
from agentgym_rl.rollout.tasks import EpochSampler
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.algorithms.base import TokenBatch, TokenLoss, TrainingSample
from agentgym_rl.training.checkpoint import restore_learner, save_checkpoint
from agentgym_rl.training.conversations import Conversation, to_sample
from agentgym_rl.training.learner import Learner
from agentgym_rl.training.trainer import Evaluate, Listeners, is_due

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
        evaluate: Evaluate | None = None,
        listeners: Listeners | None = None,
    ) -> None:
        assert isinstance(config.algorithm, SFTConfig), "supervised"
        samples = _make_samples(conversations, policy, max_tokens=config.rollout.max_tokens)
        self._config, self._policy, self._run = config, policy, run
        self._samples = EpochSampler(samples, seed=config.seed)
        self._batch_size = min(config.algorithm.batch_size, len(samples))
        self._learner = Learner(
            policy, config.training, temperature=1.0, num_updates=config.num_updates
        )
        self._evaluate = evaluate
        self._listeners = listeners or Listeners()

    def restore(self) -> int:
        """Restore the optimiser from the newest checkpoint; return its step (0 without one)."""
        return restore_learner(self._run, self._learner)

    async def train(self, *, after: int = 0) -> None:
        """Run the steps after step `after`, then save the model."""
        config, last = self._config, self._config.training.steps
        for step in range(after + 1, last + 1):
            started = time.monotonic()
            batch = self._samples.take(step, self._batch_size)
            metrics: Metrics = {"step": step, **self._learner.update(batch, _negative_logprob)}
            for name in ("train/kl", "train/logprob_diff"):
                del metrics[name]  # demonstrations were not sampled, so there is nothing to compare
            metrics["time/update_s"] = time.monotonic() - started
            if self._evaluate is not None and is_due(step, config.eval.every, last=last):
                metrics |= await self._evaluate(step)
            metrics["time/step_s"] = time.monotonic() - started
            self._run.append_metrics(metrics)
            if is_due(step, config.checkpoint.every, last=last):
                keep = config.checkpoint.keep
                save_checkpoint(self._run, self._policy, self._learner, step=step, keep=keep)
            if self._listeners.on_step is not None:
                self._listeners.on_step(metrics)
            await asyncio.sleep(0)  # nothing above waits, and Ctrl-C is heard only where we do
        self._policy.save(self._run.model)


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
    return TokenLoss(-batch.logprobs_A, {})
