"""A sharded learner gives its weights to engines past the controller's process."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import TrainingConfig
from agentgym_rl.engines.channels.delivery import WeightTaker
from agentgym_rl.engines.channels.group import GroupPlan
from agentgym_rl.models.loading import Policy
from agentgym_rl.training.learner.sharded.ranks import fork_ranks_here
from agentgym_rl.training.learner.sharded.sharded_learner import ShardedLearner
from agentgym_rl.training.sft import negative_logprob, supervised_sample
from chat_families import small_policy
from episode_groups import make_groups

pytestmark = pytest.mark.slow  # ranks are processes


@pytest.fixture
def policy() -> Policy:
    return small_policy("gemma3")  # tied embeddings


@pytest.fixture
def learner(policy: Policy) -> Iterator[ShardedLearner]:
    config = TrainingConfig(lr=1e-2, shards=2)
    learner = ShardedLearner(policy, config, temperature=1.0, start=fork_ranks_here)
    yield learner
    learner.close()


def make_update(learner: ShardedLearner) -> None:
    samples = [s for group in make_groups() for episode in group.episodes for s in episode.samples]
    learner.update([supervised_sample(sample) for sample in samples], negative_logprob)


def test_ranks_give_the_weights_that_they_have_learned(
    policy: Policy, learner: ShardedLearner, tmp_path: Path
):
    model = copy.deepcopy(policy.model)
    before = [weight.detach().clone() for weight in policy.model.parameters()]
    taker, meeting = WeightTaker(model), GroupPlan((tmp_path / "x").as_uri(), 2, "gloo", 60.0)
    with ThreadPoolExecutor() as threads:
        for delivery in (meeting, meeting, tmp_path / "weights.safetensors"):
            make_update(learner)
            taken = threads.submit(taker.take, delivery, 1) if delivery is meeting else None
            given = learner.give_weights(delivery)
            assert given.error == ""
            found = taken.result() if taken else taker.take(delivery, 1)
            assert found == given.checksum
            unchanged = zip(policy.model.parameters(), before, strict=True)
            assert all(torch.equal(ours, theirs) for ours, theirs in unchanged)
    learner.fetch_weights()
    pairs = zip(model.parameters(), policy.model.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert not torch.equal(next(policy.model.parameters()), before[0])


def test_ranks_outlive_engines_that_never_come(learner: ShardedLearner, tmp_path: Path):
    given = learner.give_weights(GroupPlan((tmp_path / "x").as_uri(), 2, "gloo", 1.0))
    assert given.error
    make_update(learner)
