"""Learners in one process and on ranks that are forked from the tests' process, and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from agentgym_rl.config import TrainingConfig, parse_config
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.forward import enable_checkpointing
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.training.algorithms.base import (
    TrainingSample,
)
from agentgym_rl.training.learner.group import LearnerGroup
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.sharded.ranks import fork_ranks_here
from agentgym_rl.training.learner.sharded.sharded_learner import ShardedLearner
from agentgym_rl.training.make import make_algorithm
from agentgym_rl.training.sft import supervised_sample
from chat_families import small_policy
from episode_groups import make_groups

CLOSE = 1e-5
"""How far the numbers of ranks may be from those of one process."""
NUM_UPDATES = 5


@dataclass(frozen=True)
class Case:
    overrides: tuple[str, ...] = ("kl.coef=0.1",)
    architecture: str = "qwen3"
    num_ranks: int = 2
    has_lora: bool = False
    training: tuple[tuple[str, object], ...] = ()


PPO = (
    "algorithm.type=ppo",
    "algorithm.gae_lambda=0.9",
    "credit.truncated=bootstrap",
    "kl.coef=0.1",
)
SHARED = ("algorithm.type=ppo", "algorithm.critic=shared")
SPLIT = (("sequence_parallel", 2),)


def make_policy(case: Case, dtype: torch.dtype = torch.float32) -> Policy:
    policy = small_policy(case.architecture)
    for weight in policy.model.parameters():
        weight.data = weight.data.to(dtype)
    if case.has_lora:
        add_lora(policy.model, rank=4, alpha=8, seed=0)
    return policy


def training_of(case: Case, num_ranks: int) -> TrainingConfig:
    fields = {"lr": 1e-3, "tokens_per_batch": 64, "shards": num_ranks, **dict(case.training)}
    return TrainingConfig.model_validate(fields)


def one_process(case: Case) -> tuple[tuple[str, object], ...]:
    """Return the settings of a case that one process has, too."""
    return tuple(item for item in case.training if item[0] not in ("sequence_parallel", "offload"))


def in_process(policy: Policy, case: Case, **settings: object) -> Learner:
    training = training_of(replace(case, training=one_process(case)), 1)
    if training.gradient_checkpointing:
        enable_checkpointing(policy.model)
    if training.compile:
        enable_compilation(policy.model)
    return Learner(policy, training, temperature=0.8, **settings)


def on_ranks(policy: Policy, case: Case, **settings: object) -> ShardedLearner:
    training = training_of(case, case.num_ranks)
    return ShardedLearner(policy, training, temperature=0.8, start=fork_ranks_here, **settings)


def make_steps(
    learner: LearnerGroup, overrides: Sequence[str], numbers: Sequence[int]
) -> list[dict[str, float]]:
    """Make training steps as the trainer does; return their metrics."""
    algorithm, reports = make_algorithm(parse_config({}, overrides, source="test")), []
    for number in numbers:
        batch = algorithm.advantages(learner.score(make_groups()))
        items = [item for group in batch.groups for item in group]
        updates_policy = algorithm.updates_policy(number)
        report = learner.update(items, algorithm.loss, updates_policy=updates_policy)
        reports.append(report.metrics() | batch.metrics)
    learner.fetch_weights()
    return reports


def needs_of(overrides: Sequence[str]) -> dict[str, object]:
    algorithm = make_algorithm(parse_config({}, overrides, source="test"))
    return {"needs": algorithm.needs, "aggregation": algorithm.aggregation}


def weights_of(policy: Policy) -> list[Tensor]:
    return [weight.detach().clone() for weight in policy.model.parameters()]


def check_same(
    reports: Sequence[dict[str, float]], others: Sequence[dict[str, float]], *policies: Policy
) -> None:
    for ours, theirs in zip(reports, others, strict=True):
        assert ours == pytest.approx(theirs, abs=CLOSE)
    assert any(report["train/grad_norm"] > 0 for report in reports)
    for weight, other in zip(*map(weights_of, policies), strict=True):
        assert (weight - other).abs().max() < CLOSE


def demos(num: int) -> list[TrainingSample]:
    samples = [s for group in make_groups() for episode in group.episodes for s in episode.samples]
    return [supervised_sample(sample) for sample in samples[:num]]


def without_actions(item: TrainingSample) -> TrainingSample:
    """A sample that nothing is learned from, which a rank must not be alone with."""
    mask = (0,) * item.length
    return supervised_sample(replace(item.sample, loss_mask=mask, segments=()))
