"""Updates that compute common beginnings once: the same numbers, passes and shares of ranks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from agentgym_rl.config import TrainingConfig, parse_config
from agentgym_rl.models import prefix_tree
from agentgym_rl.models.flops import update_flops
from agentgym_rl.models.forward import ActionLogprobs
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.learner import speed
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.packing import MAX_KEYS_PER_TOKEN, Packing
from agentgym_rl.training.learner.sharded.shares import make_shares
from agentgym_rl.training.make import make_algorithm
from case_shares import spread_over
from chat_families import small_policy
from prefix_samples import prompted_groups, random_items
from sharded_learners import Case, check_same, in_process, make_policy, on_ranks

TEMPERATURE = 0.8
ALGORITHMS = {
    "grpo": [],
    "grpo, penalty and entropy": ["kl.coef=0.1", "policy_loss.entropy_coef=0.01"],
    "gspo, episodes alike": [
        *("policy_loss.objective=gspo", "policy_loss.aggregation=episode_mean"),
        "policy_loss.importance_cap=2",
    ],
    "ppo, own critic": [
        *("algorithm.type=ppo", "algorithm.gae_lambda=0.9", "credit.truncated=bootstrap"),
    ],
    "ppo, shared critic": ["algorithm.type=ppo", "algorithm.critic=shared"],
}


def step(
    overrides: Sequence[str], **training: object
) -> tuple[list[Tensor], dict[str, float], Learner]:
    """Make one training step; return the gradients of policy and critic, and the metrics."""
    algorithm = make_algorithm(parse_config({}, overrides, source="test"))
    policy = small_policy("qwen3")
    learner = Learner(
        policy,
        TrainingConfig.model_validate({"lr": 1e-4, "max_grad_norm": 1e9, **training}),
        temperature=TEMPERATURE,
        needs=algorithm.needs,
        aggregation=algorithm.aggregation,
    )
    if learner._critic is not None:  # a head of zeros would hide what the trunk gets
        torch.nn.init.constant_(learner._critic.head.weight, 0.1)
    # A group of one has no relative advantage.
    groups = prompted_groups(num_last=2 if algorithm.needs.critic is None else 1)
    batch = algorithm.advantages(learner.score(groups))
    items = [item for group in batch.groups for item in group]
    report = learner.update(items, algorithm.loss)
    moments = [learner._optimizer.state[weight]["exp_avg"] for weight in policy.model.parameters()]
    if learner._critic is not None and learner._critic_optimizer is not None:
        state = learner._critic_optimizer.state
        moments += [state[weight]["exp_avg"] for weight in learner._critic.parameters()]
    return [moment / 0.1 for moment in moments], report.metrics() | batch.metrics, learner


@pytest.mark.parametrize(
    ("name", "tokens_per_batch"), spread_over(itertools.product(ALGORITHMS, [64, 10**6]), 5)
)
def test_an_update_is_that_of_all_samples_in_full(name: str, tokens_per_batch: int):
    exact, expected, _ = step(ALGORITHMS[name])
    grads, metrics, learner = step(
        ALGORITHMS[name], share_prefix=True, tokens_per_batch=tokens_per_batch
    )
    scale = max(float(grad.abs().max()) for grad in exact)
    assert scale > 1e-3
    off = max(float((a - b).abs().max()) for a, b in zip(grads, exact, strict=True))
    assert off < 1e-5 * scale
    assert metrics == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert learner.take_rates()["train/tokens_shared"] > 0.3


def test_scores_are_those_of_all_samples_in_full():
    algorithm = make_algorithm(
        parse_config({}, [*ALGORITHMS["ppo, own critic"], "kl.coef=0.1"], source="test")
    )
    scored = []
    for is_shared in (False, True):
        learner = Learner(
            small_policy("qwen3"),
            TrainingConfig(share_prefix=is_shared),
            temperature=TEMPERATURE,
            needs=replace(algorithm.needs, policy=True),
        )
        assert learner._critic is not None
        torch.nn.init.constant_(learner._critic.head.weight, 0.1)
        groups = learner.score(prompted_groups())
        scored.append([item for group in groups for item in group])
    for exact, found in zip(*scored, strict=True):
        assert found.final_value == pytest.approx(exact.final_value, abs=1e-5)
        for one, other in zip(exact.samples, found.samples, strict=True):
            for kind in ("logprobs", "ref_logprobs", "values"):
                expected = getattr(one.scores, kind)
                assert getattr(other.scores, kind) == pytest.approx(expected, abs=1e-5)


def test_an_observer_sees_each_sample_with_its_own_numbers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefix_tree, "LEAST_SHARED", 1)
    loss = make_algorithm(parse_config({}, [], source="test")).loss
    found: list[dict[int, list[float]]] = []
    items = random_items(3)
    for is_shared in (False, True):
        seen: dict[int, list[float]] = {}

        def observe(
            batch: Sequence[TrainingSample],
            now: ActionLogprobs,
            seen: dict[int, list[float]] = seen,
        ) -> None:
            both_A2 = torch.stack([now.logprobs_A, now.entropies_A], dim=1).detach()
            parts = both_A2.split([item.num_tokens for item in batch])
            seen |= {
                id(item): part.flatten().tolist() for item, part in zip(batch, parts, strict=True)
            }

        config = TrainingConfig(tokens_per_batch=64, share_prefix=is_shared)
        learner = Learner(small_policy("qwen3"), config, temperature=TEMPERATURE)
        learner.update(items, loss, observe=observe)
        found.append(seen)
    exact, sharing = found
    assert exact.keys() == sharing.keys() == set(map(id, items))
    for key, expected in exact.items():
        assert sharing[key] == pytest.approx(expected, abs=1e-5)


def test_passes_are_as_full_as_what_they_compute():
    prompt = tuple(range(100))
    sequences = [(*prompt, *(1000 * number + place for place in range(20))) for number in range(8)]
    whole = Packing(140).split(sequences, lambda ids: ids)
    assert [len(part) for part in whole] == [1] * 8
    # 100 + 20 + 20 tokens.
    shared = Packing(140, shares_prefix=True).split(sequences, lambda ids: ids)
    assert [len(part) for part in shared] == [2] * 4
    assert [ids for part in shared for ids in part] == sequences
    # All fit into 260, but a pass of 150 would see 100 + 120 n keys: no more than 1,200 of them.
    assert MAX_KEYS_PER_TOKEN == 8
    short = [ids[:101] for ids in sequences] * 2
    distinct = [(*ids[:100], 5000 + number) for number, ids in enumerate(short)]
    limited = Packing(150, shares_prefix=True).split(distinct, lambda ids: ids)
    assert [len(part) for part in limited] == [10, 6]


def test_ranks_get_neighbours_of_equally_much_work():
    prompts = [tuple(range(1000 * number, 1000 * number + 60)) for number in range(4)]
    sequences = [
        (*prompts[number // 4], *(10**6 + 100 * number + place for place in range(20)))
        for number in range(16)
    ]
    packing = Packing(280, shares_prefix=True)
    first, second = make_shares(sequences, num_shares=2, packing=packing)
    assert first.places == tuple(range(8)) and second.places == tuple(range(8, 16))
    assert (len(first.passes), len(second.passes)) == (1, 1), "60 + 4 x 20 tokens for each group"
    shares = make_shares(sequences[:2], num_shares=3, packing=packing)
    assert sorted(place for share in shares for place in share.places) == [0, 1]
    assert [len(share.passes) + share.num_fillers for share in shares] == [1, 1, 1]


def test_mfu_is_of_what_is_computed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(speed, "peak_flops_of", lambda _: 1e9)
    monkeypatch.setattr(speed.time, "monotonic", lambda: 10.0)
    model = small_policy("qwen3").model
    flops = update_flops(model)
    assert flops is not None
    first, *_ = random_items(0)
    rates = speed.Speed(model, shares_prefix=True)
    rates.add([[first, first]], started=8.0)
    assert rates.take() == {
        "train/tokens_per_s": first.length,
        "train/tokens_shared": 0.5,
        "train/mfu": pytest.approx(
            flops.total([first.length], num_actions=first.num_tokens) / 2 / 1e9
        ),
    }
    # Stretches of one sequence are as much work as the sequence.
    assert flops.total([3, 5], [0, 3], num_actions=4) == flops.total([8], num_actions=4)


@pytest.mark.long
@pytest.mark.slow
def test_ranks_learn_the_same_as_one_process():
    case = Case(training=(("share_prefix", True),))
    loss = make_algorithm(parse_config({}, [], source="test")).loss
    algorithm = make_algorithm(parse_config({}, [], source="test"))
    policies, reports = [], []
    for make in (in_process, on_ranks):
        policy = make_policy(case)
        learner = make(policy, case, needs=algorithm.needs)
        batch = algorithm.advantages(learner.score(prompted_groups()))
        items = [item for group in batch.groups for item in group]
        reports.append([learner.update(items, loss).metrics() for _ in range(2)])
        assert learner.take_rates()["train/tokens_shared"] > 0.3
        learner.fetch_weights()
        learner.close()
        policies.append(policy)
    check_same(*reports, *policies)
