"""Kinds of tokens in the loss and in the metrics, and episodes of several samples by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from agentgym_rl.config import (
    CreditConfig,
    GRPOConfig,
    ReinforcePPConfig,
    TrainingConfig,
)
from agentgym_rl.rollout.statistics import rollout_metrics
from agentgym_rl.training.algorithms.base import ScoredEpisode, ScoredSample, TrainingSample
from agentgym_rl.training.algorithms.episode_tokens import episode_tokens
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.algorithms.online import SharedSettings
from agentgym_rl.training.algorithms.reinforce_pp import ReinforcePP
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.token_kinds import kind_weights
from agentgym_rl.types import (
    Episode,
    Group,
    Round,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)
from chat_families import small_policy

THOUGHT, ACTION, PLAN = SegmentKind.THOUGHT, SegmentKind.ACTION, SegmentKind.PLAN
BETA1 = 0.9
"""Of AdamW: after one update its first moment is (1 - BETA1) times the gradient."""
LOSS = GRPO(GRPOConfig(), SharedSettings()).loss


def make_sample(
    *pieces: tuple[SegmentKind, int, int, int], rewards: dict[int, float] | None = None
) -> Sample:
    """A sample of pieces (kind, length, loss, round), with rewards by place."""
    segments, mask = [], []
    for kind, length, loss, round_index in pieces:
        segments.append(Segment(kind, len(mask), len(mask) + length, round_index))
        mask += [loss] * length
    return Sample(
        token_ids=tuple(7 + 3 * place for place in range(len(mask))),
        loss_mask=tuple(mask),
        logprobs=tuple(-2.0 * m for m in mask),
        rewards=tuple((rewards or {}).get(place, 0.0) for place in range(len(mask))),
        segments=tuple(segments),
        version=0,
    )


def make_episode(reward: float, *samples: Sample, tries: tuple[int, ...] = (0, 0)) -> Episode:
    return Episode(
        task=Task("counting", "train", 0),
        sample_index=0,
        stop_reason=StopReason.TERMINATED,
        reward=reward,
        success=False,
        rounds=tuple(Round("", "", f"seen {i}", 0.0, True, a) for i, a in enumerate(tries)),
        messages=(),
        samples=samples,
        seconds=0.0,
    )


def scored(episode: Episode) -> ScoredEpisode:
    return ScoredEpisode(episode, tuple(ScoredSample(sample) for sample in episode.samples))


TWO = make_episode(
    1.5,
    make_sample((SegmentKind.PROMPT, 2, 0, 0), (PLAN, 2, 1, 0), (SegmentKind.OBSERVATION, 1, 0, 0),
                (ACTION, 1, 1, 0), rewards={5: 0.5}),
    make_sample((SegmentKind.PROMPT, 2, 0, 0), (PLAN, 2, 0, 0), (SegmentKind.OBSERVATION, 1, 0, 0),
                (THOUGHT, 2, 1, 1), (ACTION, 1, 1, 1), rewards={7: 1.0}),
)  # fmt: skip
"""Two rounds in two contexts: a plan of two tokens and an action that earns 0.5; then, with the
plan repeated, a thought of two tokens and an action that earns 1."""


def _unwhitened(shared: SharedSettings) -> ReinforcePP:
    """Return the algorithm with advantages as it estimates them."""
    algorithm = ReinforcePP(ReinforcePPConfig(), shared)
    algorithm.whitens = False
    return algorithm


def test_returns_to_go_run_over_samples_in_the_order_of_time():
    tokens = episode_tokens(scored(TWO))
    assert tokens.rewards_A.tolist() == [0.0, 0.0, 0.5, 0.0, 0.0, 1.0]
    assert tokens.rounds_A.tolist() == [0, 0, 0, 1, 1, 1]
    assert tokens.states == ((0, None), (0, "seen 0"))
    shared = SharedSettings(credit=CreditConfig(discount=0.5))
    batch = _unwhitened(shared).advantages([[scored(TWO)]])
    # Round 1 is worth 1; round 0 earns 0.5 itself and half of what follows.
    assert [item.advantages for item in batch.groups[0]] == [(1.0, 1.0, 1.0), (1.0, 1.0, 1.0)]


def test_an_advantage_of_the_episode_is_on_all_its_samples_and_counts_once():
    other = make_episode(0.5, make_sample((SegmentKind.PROMPT, 2, 0, 0), (ACTION, 2, 1, 0),
                                          rewards={3: 0.5}), tries=(0,))  # fmt: skip
    algorithm = GRPO(GRPOConfig(normalize_std=False), SharedSettings())
    items = algorithm.advantages([[scored(TWO), scored(other)]]).groups[0]
    # Returns 1.5 and 0.5 around their mean of 1.
    assert [item.advantages for item in items] == [(0.5,) * 3, (0.5,) * 3, (-0.5,) * 2]
    by_episode = replace(algorithm.aggregation, kind="episode_mean").weights(items)
    assert by_episode.samples == pytest.approx((1 / 6, 1 / 6, 1 / 2))
    assert by_episode.divisor == pytest.approx(2.0), "two episodes in three samples"


def test_what_follows_a_reflection_is_the_improvement():
    reflection = SegmentKind.REFLECTION
    first = make_sample((SegmentKind.PROMPT, 1, 0, 0), (ACTION, 1, 1, 0),
                        (SegmentKind.OBSERVATION, 1, 0, 0), (reflection, 2, 1, 1),
                        rewards={1: 0.25, 4: -0.25})  # fmt: skip
    second = make_sample((SegmentKind.PROMPT, 1, 0, 0), (reflection, 2, 0, 1),
                         (SegmentKind.OBSERVATION, 1, 0, 1), (ACTION, 2, 1, 1),
                         rewards={5: 1.0})  # fmt: skip
    episode = make_episode(1.0, first, second, tries=(0, 1))
    tokens = episode_tokens(scored(episode))
    assert tokens.states == ((0, None), (1, None)), "tries are not compared with one another"
    batch = _unwhitened(SharedSettings()).advantages([[scored(episode)]])
    # The first try led to 1 in the end; the reflection to 1 - 0.25; the second try to 1.
    assert [item.advantages for item in batch.groups[0]] == [(1.0, 0.75, 0.75), (1.0, 1.0)]


def gradient(
    items: list[TrainingSample], *, tokens_per_batch: int = 10**6, **weights: float
) -> tuple[Tensor, dict[str, float]]:
    """Return the gradient of one update, and its metrics."""
    policy = small_policy("qwen3")
    learner = Learner(
        policy,
        TrainingConfig(lr=1e-4, max_grad_norm=1e9, tokens_per_batch=tokens_per_batch),
        temperature=1.0,
        kind_weights=kind_weights(weights),
    )
    metrics = learner.update(items, LOSS).metrics()
    state = learner._optimizer.state
    moments = [state[parameter]["exp_avg"].flatten() for parameter in policy.model.parameters()]
    return torch.cat(moments) / (1 - BETA1), metrics


def make_items() -> list[TrainingSample]:
    """Twenty samples of 140 tokens, more than one pass of 64."""
    return [
        TrainingSample(sample, advantages, num_tokens_elsewhere=3)
        for _ in range(10)
        for sample, advantages in zip(
            TWO.samples, [(0.5, -1.0, 2.0), (1.0, -0.5, 0.7)], strict=True
        )
    ]


def without(items: list[TrainingSample], kind: SegmentKind) -> list[TrainingSample]:
    """The same with advantages of 0, and so no gradient, on tokens of a kind."""
    result = []
    for item in items:
        kinds = [
            s.kind
            for s in item.sample.segments
            for m in item.sample.loss_mask[s.start : s.end]
            if m
        ]
        kept = zip(item.advantages, kinds, strict=True)
        result.append(replace(item, advantages=tuple(0.0 if k is kind else a for a, k in kept)))
    return result


@pytest.mark.parametrize("tokens_per_batch", [64, 10**6])
@pytest.mark.parametrize("kind", [THOUGHT, ACTION, PLAN])
def test_a_frozen_kind_receives_no_gradient_and_leaves_the_others_theirs(
    kind: SegmentKind, tokens_per_batch: int
):
    frozen, _ = gradient(make_items(), tokens_per_batch=tokens_per_batch, **{str(kind): 0.0})
    expected, _ = gradient(without(make_items(), kind))
    everything, _ = gradient(make_items())
    assert float((frozen - expected).abs().max()) < 1e-6
    assert float((frozen - everything).abs().max()) > 1e-4, "the kind does matter"


def test_with_everything_frozen_there_is_no_gradient_at_all():
    frozen, metrics = gradient(make_items(), thought=0.0, action=0.0, plan=0.0)
    assert float(frozen.abs().max()) == 0.0 and metrics["train/loss"] == 0.0


def test_the_gradient_is_the_weighted_sum_over_kinds():
    parts = {
        kind: gradient(make_items(), **{str(other): 0.0 for other in (THOUGHT, ACTION, PLAN)
                                        if other is not kind})[0]
        for kind in (THOUGHT, ACTION, PLAN)
    }  # fmt: skip
    found, _ = gradient(make_items(), thought=0.5, plan=2.0)
    expected = 0.5 * parts[THOUGHT] + parts[ACTION] + 2.0 * parts[PLAN]
    assert float((found - expected).abs().max()) < 1e-6


def test_entropies_of_kinds_are_means_over_their_tokens():
    for tokens_per_batch in (64, 10**6):
        _, metrics = gradient(make_items(), tokens_per_batch=tokens_per_batch)
        total = sum(
            number * metrics[f"train/entropy_{kind}"]
            for kind, number in (("plan", 20), ("thought", 20), ("action", 20))
        )
        assert total / 60 == pytest.approx(metrics["train/entropy"], abs=1e-6)


def test_lengths_and_shares_of_kinds_count_each_token_once():
    metrics = rollout_metrics([Group(TWO.task, (TWO,))], max_rounds=2)
    assert [metrics[f"rollout/tokens_{kind}"] for kind in ("plan", "thought", "action")] == [2] * 3
    assert metrics["rollout/share_plan"] == pytest.approx(1 / 3)
    assert metrics["rollout/tokens"] == 6
