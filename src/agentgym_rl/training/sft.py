"""Supervised learning on conversations, with the same learner as reinforcement learning."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agentgym_rl.config import SFTConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.folder import Metrics
from agentgym_rl.training.algorithms.base import TokenBatch, TokenLoss, TrainingSample
from agentgym_rl.training.data.conversations import Conversation, to_sample
from agentgym_rl.training.data.fixed_data import hold_to_data
from agentgym_rl.training.learner.group import LearnerGroup
from agentgym_rl.training.learner.update_report import imitation_report
from agentgym_rl.training.offline import OfflineTrainer
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.types import Sample

logger = logging.getLogger(__name__)


class SFTTrainer(OfflineTrainer[TrainingSample]):
    """Minimises the negative log-probability of the demonstrated replies, a mean over tokens."""

    def __init__(
        self, parts: RunParts, conversations: Sequence[Conversation], *, learner: LearnerGroup
    ) -> None:
        config = parts.config
        assert isinstance(config.algorithm, SFTConfig), "supervised"
        fitting = fitting_samples(conversations, parts.policy, max_tokens=config.max_tokens)
        samples = [sample for _, sample in fitting]
        self._num_left_out = len(conversations) - len(samples)
        hold_to_data(parts.folder, [item.sample for item in samples])
        super().__init__(parts, samples, learner=learner, batch_size=config.algorithm.batch_size)

    def update(self, batch: Sequence[TrainingSample]) -> Metrics:
        report = imitation_report(self._learner.update(batch, negative_logprob))
        return report.metrics() | {"train/demos_left_out": float(self._num_left_out)}


def fitting_samples(
    conversations: Sequence[Conversation], policy: Policy, *, max_tokens: int
) -> list[tuple[Conversation, TrainingSample]]:
    """Return conversations with their samples; too long ones are left out whole, with a warning."""
    limit = min(max_tokens, policy.max_context)
    fitting = []
    for conversation in conversations:
        sample = to_sample(conversation, conversation.renderer or policy.renderer)
        if len(sample.token_ids) > limit:
            logger.warning(
                "%s: demonstration of %s left out: %d tokens are more than %d",
                conversation.origin or "expert",
                conversation.task or "no task",
                len(sample.token_ids),
                limit,
            )
            continue
        fitting.append((conversation, supervised_sample(sample)))
    if not fitting:
        raise ConfigError(
            f"none of {len(conversations)} demonstrations can be used; see the warnings above. "
            f"At most {limit} tokens are taken: rollout.max_tokens, or the model's context"
        )
    return fitting


def supervised_sample(sample: Sample) -> TrainingSample:
    """Return the sample with every action token counting the same."""
    return TrainingSample(sample, (1.0,) * sample.num_action_tokens)


def negative_logprob(batch: TokenBatch) -> TokenLoss:
    """Return the loss of supervised learning."""
    return TokenLoss(-batch.logprobs_A)
