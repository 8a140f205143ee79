"""Passes that ranks share, and what of a learner may be in the CPU's memory."""

from __future__ import annotations

import pytest
import torch

from agentgym_rl.config import parse_config
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.sequence_parallel import check_sequence_parallel
from agentgym_rl.training.algorithms.base import (
    Needs,
)
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.sft import negative_logprob
from chat_families import small_policy
from sharded_learners import (
    NUM_UPDATES,
    SPLIT,
    Case,
    check_same,
    demos,
    in_process,
    make_policy,
    on_ranks,
    training_of,
)


@pytest.mark.parametrize(
    "num_ranks", [2, *(pytest.param(num, marks=pytest.mark.long) for num in (4, 6))]
)
def test_split_passes_have_the_logprobs_of_one_process(num_ranks: int):
    needs = Needs(policy=True, reference=True)
    case = Case(num_ranks=num_ranks, training=SPLIT)
    samples = [item.sample for item in demos(9)]
    policies = [make_policy(case), make_policy(case)]
    scored = []
    for policy, make in zip(policies, (in_process, on_ranks), strict=True):
        learner = make(policy, case, needs=needs)
        scored.append([item.scores for item in learner.score_samples(samples)])
        learner.close()
    for ours, theirs in zip(*scored, strict=True):
        for kind in ("logprobs", "ref_logprobs"):
            assert getattr(ours, kind) == pytest.approx(getattr(theirs, kind), abs=1e-6)


def test_passes_that_cannot_be_split_are_refused_with_what_to_set():
    with pytest.raises(ConfigError, match=r"training\.shards to a multiple"):
        parse_config({}, ["training.shards=3", "training.sequence_parallel=2"], source="test")
    policy = small_policy("qwen3")
    with pytest.raises(ConfigError, match=r"4 attention heads .* one of 1, 2, 4"):
        check_sequence_parallel(policy.model, 3)
    policy.model.config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(ConfigError, match="linear_attention"):
        check_sequence_parallel(policy.model, 2)
    policy.model.config._attn_implementation = "sdpa"
    with pytest.raises(ConfigError, match="'sdpa'"):
        check_sequence_parallel(policy.model, 2)


def test_all_is_offloaded_only_where_weights_are_sharded():
    with pytest.raises(ConfigError, match=r"training\.offload=optimizer"):
        parse_config({}, ["training.offload=all"], source="test")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_process_may_keep_its_optimiser_in_the_cpus_memory(dtype: torch.dtype):
    case = Case()
    policies, reports = [make_policy(case, dtype) for _ in range(2)], []
    for policy, offload in zip(policies, ("none", "optimizer"), strict=True):
        training = training_of(case, 1).model_copy(update={"offload": offload})
        learner = Learner(policy, training, temperature=0.8)
        updates = [learner.update(demos(3), negative_logprob) for _ in range(NUM_UPDATES)]
        reports.append([report.metrics() for report in updates])
        if offload != "none":
            assert all(
                not master.is_cuda and master is not weight
                for master, weight in zip(
                    learner._optimizer._masters, learner._optimizer._weights, strict=True
                )
            )
    assert [r["train/grad_norm"] for r in reports[0]] == pytest.approx(
        [r["train/grad_norm"] for r in reports[1]], rel=1e-2 if dtype == torch.bfloat16 else 1e-5
    )
    if dtype == torch.float32:
        check_same(*reports, *policies)
