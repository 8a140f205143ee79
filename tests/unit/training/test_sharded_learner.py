"""The sharded learner: the numbers of one process, at any number of ranks, and ranks that fail.

Ranks are forked from the tests' process, which has imported everything, and talk by gloo.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import DPOConfig, RunConfig, parse_config
from agentgym_rl.errors import ConfigError, LearnerDiedError
from agentgym_rl.models import compilation
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.algorithms.aggregation import Aggregation
from agentgym_rl.training.algorithms.base import (
    Needs,
    Scores,
    TokenBatch,
    TokenLoss,
    TrainingSample,
)
from agentgym_rl.training.data.preferences import Pair, PairSet
from agentgym_rl.training.dpo import DPOTrainer
from agentgym_rl.training.learner.packing import Packing
from agentgym_rl.training.learner.sharded.rank import RankPlan
from agentgym_rl.training.learner.sharded.ranks import Ranks
from agentgym_rl.training.learner.sharded.sharded_learner import ShardedLearner
from agentgym_rl.training.learner.sharded.shares import Share, make_shares
from agentgym_rl.training.learner.sharded.wire import pack, unpack
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.training.sft import negative_logprob
from chat_families import small_policy
from sharded_learners import (
    CLOSE,
    NUM_UPDATES,
    PPO,
    SHARED,
    SPLIT,
    Case,
    check_same,
    demos,
    in_process,
    make_policy,
    make_steps,
    needs_of,
    on_ranks,
    weights_of,
    without_actions,
)

CASES = {
    "ppo, own trunk": Case(PPO),
    "ppo, shared trunk": Case(SHARED),
    "grpo": Case(),
    "grpo, tied embeddings": Case(architecture="gemma3"),
    "grpo, lora": Case(has_lora=True),
    "grpo, checkpointing": Case(training=(("gradient_checkpointing", True),)),
    "grpo, compiled": Case(training=(("compile", True),)),
    "grpo, 3 ranks": Case(num_ranks=3),
    "grpo, lora, 3 ranks": Case(has_lora=True, num_ranks=3),
    "grpo, checkpointing, 3 ranks": Case(num_ranks=3, training=(("gradient_checkpointing", True),)),
    "ppo, tied, 3 ranks": Case(PPO, architecture="gemma3", num_ranks=3),
    "grpo, tied, 3 ranks": Case(architecture="gemma3", num_ranks=3),
    "ppo, own trunk, 3 ranks": Case(PPO, num_ranks=3),
    "ppo, shared trunk, 3 ranks": Case(SHARED, num_ranks=3),
    "grpo, split passes": Case(training=SPLIT),
    "grpo, split passes, 4 ranks": Case(num_ranks=4, training=SPLIT),
    "grpo, split passes over 4 ranks": Case(num_ranks=4, training=(("sequence_parallel", 4),)),
    "grpo, split passes, checkpointing": Case(training=(*SPLIT, ("gradient_checkpointing", True))),
    "grpo, split passes, lora": Case(has_lora=True, training=SPLIT),
    "grpo, split passes, compiled": Case(training=(*SPLIT, ("compile", True))),
    "grpo, split passes, sliding window": Case(architecture="mistral", training=SPLIT),
    "ppo, optimizer offloaded": Case(PPO, training=(("offload", "optimizer"),)),
    "ppo, all offloaded": Case(PPO, training=(("offload", "all"),)),
    "ppo, own trunk, split passes": Case(PPO, training=SPLIT),
    "ppo, shared trunk, split passes": Case(SHARED, training=SPLIT),
}
ONE_PER_LAW = (
    "ppo, own trunk",
    "grpo, split passes",
)
INTERPRETED = ("grpo, split passes, compiled",)
"""Cases whose compiled code is that of torch's tracer, not of Inductor."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ONE_PER_LAW else pytest.mark.long) for name in CASES],
)
def test_ranks_compute_the_numbers_of_one_process(name: str, monkeypatch: pytest.MonkeyPatch):
    if name in INTERPRETED:
        # What is compiled around messages and hooks is the same; Inductor takes minutes for it.
        eager = partial(compilation.compile_like_eager, backend="eager")
        monkeypatch.setattr(compilation, "compile_like_eager", eager)
        compilation.compiled.cache_clear()
    case = CASES[name]
    policy, other = make_policy(case), make_policy(case)
    settings = needs_of(case.overrides)
    numbers = range(1, NUM_UPDATES + 1)
    expected = make_steps(in_process(policy, case, **settings), case.overrides, numbers)
    learner = on_ranks(other, case, **settings)
    found = make_steps(learner, case.overrides, numbers)
    learner.close()
    check_same(found, expected, policy, other)


@pytest.mark.parametrize("has_lora", [False, pytest.param(True, marks=pytest.mark.long)])
def test_bfloat16_has_nearly_the_gradient_norm_of_one_process(has_lora: bool):
    case = Case(PPO, has_lora=has_lora)
    policy, other = (make_policy(case, torch.bfloat16) for _ in range(2))
    settings = needs_of(case.overrides)
    expected = make_steps(in_process(policy, case, **settings), case.overrides, [1])
    learner = on_ranks(other, case, **settings)
    found = make_steps(learner, case.overrides, [1])
    rates = learner.take_rates()
    learner.close()
    assert all(rates[f"cluster/tokens_rank_{rank}"] > 0 for rank in range(case.num_ranks))
    norms = [report[0]["train/grad_norm"] for report in (found, expected)]
    assert norms[0] == pytest.approx(norms[1], rel=0.01)
    assert {weight.dtype for weight in weights_of(other)} == {torch.bfloat16}


@pytest.mark.long
def test_ranks_may_have_unequal_samples_and_none():
    case = Case()
    policy, other = make_policy(case), make_policy(case)
    learner, sharded = in_process(policy, case), on_ranks(other, case)
    seen: dict[int, int] = {}

    def observe(batch: Sequence[TrainingSample], now: object) -> None:
        seen.update({id(item): seen.get(id(item), 0) + 1 for item in batch})

    for num in (1, 2, 3, 7, 12):
        items = demos(num)
        items.append(without_actions(items[0]))
        expected = learner.update(items, negative_logprob)
        found = sharded.update(items, negative_logprob, observe=observe)
        assert [seen.get(id(item), 0) for item in items] == [1] * num + [0]
        seen.clear()
        assert found.metrics() == pytest.approx(expected.metrics(), abs=CLOSE)
    sharded.fetch_weights()
    sharded.close()
    for weight, expected_weight in zip(weights_of(other), weights_of(policy), strict=True):
        assert (weight - expected_weight).abs().max() < CLOSE


@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.long)])
def test_preference_learning_has_the_numbers_of_one_process(num_ranks: int, tmp_path: Path):
    case, runs = Case(num_ranks=num_ranks), []
    config = RunConfig(algorithm=DPOConfig(data="unused", batch_size=2))
    settings = {"needs": Needs(policy=True), "aggregation": Aggregation("constant")}
    samples = [item.sample for item in demos(8)]
    pairs = [Pair(*samples[place : place + 2], str(place)) for place in range(0, 8, 2)]
    policies = [make_policy(case), make_policy(case)]
    for policy, make in zip(policies, (in_process, on_ranks), strict=True):
        folder, learner = RunFolder(tmp_path / make.__name__), make(policy, case, **settings)
        trainer = DPOTrainer(RunParts(config, policy, folder), PairSet(pairs, 0), learner=learner)
        batches = [trainer._items.take(step, 2) for step in range(1, NUM_UPDATES + 1)]
        runs.append([trainer.update(batch) for batch in batches])
        learner.fetch_weights()
        learner.close()
    check_same(*runs, *policies)


@pytest.mark.long
def test_a_restart_begins_with_the_policys_present_weights():
    case = Case()
    policy, other = make_policy(case), make_policy(case)
    learner, sharded = in_process(policy, case), on_ranks(other, case)
    first = weights_of(policy)
    for own, one in ((policy, learner), (other, sharded)):
        one.update(demos(5), negative_logprob)
        one.fetch_weights()
        with torch.no_grad():
            for weight, begun in zip(own.model.parameters(), first, strict=True):
                weight.copy_(begun)
        one.restart()
    reports = [one.update(demos(4), negative_logprob).metrics() for one in (sharded, learner)]
    sharded.fetch_weights()
    sharded.close()
    check_same(reports[:1], reports[1:], other, policy)


@pytest.mark.long
@pytest.mark.parametrize("architecture", ["qwen3", "gemma3"])
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_supervised_learning_has_the_numbers_of_one_process(num_ranks: int, architecture: str):
    case = Case(architecture=architecture, num_ranks=num_ranks)
    policies, reports = [make_policy(case), make_policy(case)], []
    for policy, make in zip(policies, (in_process, on_ranks), strict=True):
        learner = make(policy, case)
        updates = [learner.update(demos(2 + n), negative_logprob) for n in range(NUM_UPDATES)]
        reports.append([report.metrics() for report in updates])
        learner.fetch_weights()
        learner.close()
    check_same(reports[1], reports[0], policies[1], policies[0])


def broken_loss(batch: TokenBatch) -> TokenLoss:
    raise ValueError("no loss today")


def test_a_rank_that_fails_dies_or_hangs_ends_the_learner_with_the_reason():
    def kill(learner: ShardedLearner) -> None:
        os.kill(learner._ranks._processes[1].pid, signal.SIGKILL)

    def hang(learner: ShardedLearner) -> None:
        os.kill(learner._ranks._processes[1].pid, signal.SIGSTOP)
        learner._ranks._timeout_s = 0.5

    harms: list[tuple[Callable[[ShardedLearner], None], object, str]] = [
        (kill, negative_logprob, "rank 1 was killed by signal 9"),
        (hang, negative_logprob, r"did not answer within 0 s|within 1 s"),
        (lambda _: None, broken_loss, "no loss today"),
    ]
    for harm, loss, reason in harms:
        learner = on_ranks(small_policy("qwen3"), Case())
        processes = learner._ranks._processes
        harm(learner)
        with pytest.raises(LearnerDiedError, match=reason):
            learner.update(demos(4), loss)
        assert not any(process.is_alive() for process in processes)
        with pytest.raises(LearnerDiedError, match="ended"):
            learner.update(demos(4), negative_logprob)
        learner.close()
        assert not learner._folder.exists()


def test_a_rank_that_dies_while_nobody_orders_anything_is_found_by_asking():
    learner = on_ranks(small_policy("qwen3"), Case())
    processes = learner._ranks._processes
    learner.check()
    processes[0].kill()
    processes[0].join()
    with pytest.raises(LearnerDiedError, match="rank 0 was killed by signal 9"):
        learner.check()
    assert not any(process.is_alive() for process in processes)
    learner.close()


def test_a_loss_that_cannot_be_sent_is_refused_before_anything_is_computed():
    learner = object.__new__(ShardedLearner)
    learner._aggregation = Aggregation()
    with pytest.raises(ConfigError, match=r"training\.shards=1"):
        learner.update(demos(1), lambda batch: TokenLoss(batch.logprobs_A))


def test_shares_are_balanced_and_have_equally_many_passes():
    # Longest first: 9 -> rank 0, 8 -> rank 1, 5 -> rank 1 (13), 4 -> rank 0 (13), 1 -> rank 0.
    # With 10 tokens in a pass both ranks have two.
    assert shares_of([1, 9, 8, 4, 5], max_tokens=10) == [
        Share(((0, 1), (3,)), 0),
        Share(((2,), (4,)), 0),
    ]
    assert shares_of([3, 3, 3], max_tokens=3) == [Share(((0,), (2,)), 0), Share(((1,),), 1)]
    assert shares_of([3], max_tokens=9) == [Share(((0,),), 0), Share((), 1)]


def shares_of(lengths: list[int], *, max_tokens: int) -> list[Share]:
    sequences = [range(length) for length in lengths]
    return make_shares(sequences, num_shares=2, packing=Packing(max_tokens))


def test_samples_arrive_as_they_were_sent():
    scores = [
        Scores((-1.0,) * item.num_tokens, None, (0.1,) * item.num_tokens) for item in demos(3)
    ]
    items = [
        replace(item, scores=own, returns=tuple(0.1 * n for n in range(item.num_tokens)))
        for item, own in zip(demos(3), scores, strict=True)
    ]
    for item, found in zip(items, unpack(pack(items)), strict=True):
        zeros = (0.0,) * item.length
        assert found == replace(item, sample=replace(item.sample, rewards=zeros))
    assert unpack(pack([])) == []


def test_samples_of_one_update_have_the_same_scores():
    bare, scored = demos(2)
    scored = replace(scored, scores=Scores((-1.0,) * scored.num_tokens))
    with pytest.raises(ValueError, match="1 of 2 samples"):
        pack([bare, scored])


def test_a_learner_has_at_least_one_shard():
    with pytest.raises(ConfigError, match=r"training\.shards"):
        parse_config({}, ["training.shards=0"], source="test")


def test_files_for_ranks_are_where_the_nodes_look(tmp_path: Path):
    asked: list[Path] = []

    def start(plan: RankPlan, num_ranks: int) -> Ranks:
        asked.append(plan.policy)
        assert (plan.policy / "config.json").exists()
        raise LearnerDiedError("there is no node")

    config = parse_config({}, (), source="test").training
    with pytest.raises(LearnerDiedError, match="there is no node"):
        ShardedLearner(
            make_policy(Case()), config, temperature=1.0, start=start, scratch_in=tmp_path
        )
    assert asked[0].is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []
