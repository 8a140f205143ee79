"""Returns, generalised advantages and aggregation against numbers worked out by hand.

Shape legend: A action tokens of an episode, K rounds.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentgym_rl.training.algorithms.aggregation import Aggregation
from agentgym_rl.training.algorithms.base import TokenLoss, TrainingSample
from agentgym_rl.training.algorithms.episode_tokens import rounds_of_actions
from agentgym_rl.training.algorithms.returns import (
    generalized_advantages,
    returns_to_go,
    round_rewards,
    token_returns,
)
from agentgym_rl.training.learner.batching import mean_loss
from agentgym_rl.types import Sample, Segment, SegmentKind

quick = settings(max_examples=60)

# Three rounds of 2, 1 and 2 tokens, with rewards 1, 0 and 4 at their ends.
ROUNDS_A = torch.tensor([0, 0, 1, 2, 2])
REWARDS = [0.0, 1.0, 0.0, 0.0, 4.0]


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make_item(num_tokens: int, elsewhere: int = 0) -> TrainingSample:
    mask = (0, *(1 for _ in range(num_tokens)))
    zeros = (0.0,) * len(mask)
    sample = Sample((5,) * len(mask), mask, zeros, zeros, (), 0)
    return TrainingSample(sample, zeros[1:], num_tokens_elsewhere=elsewhere)


def test_round_rewards_by_hand():
    assert round_rewards(tensor(REWARDS), ROUNDS_A).tolist() == [1.0, 0.0, 4.0]
    empty = torch.tensor([], dtype=torch.long)
    assert round_rewards(tensor([]), empty).tolist() == []


def test_returns_to_go_by_hand():
    # 4, then 0 + 0.5 * 4, then 1 + 0.5 * 2.
    assert returns_to_go(tensor([1.0, 0.0, 4.0]), discount=0.5).tolist() == [2.0, 2.0, 4.0]
    assert returns_to_go(tensor([1.0, 0.0, 4.0]), discount=1.0).tolist() == [5.0, 4.0, 4.0]


def test_token_returns_are_discounted_from_round_to_round_only():
    returns_A = token_returns(tensor(REWARDS), ROUNDS_A, discount=0.5)
    assert returns_A.tolist() == [2.0, 2.0, 2.0, 4.0, 4.0]


def test_generalised_advantages_by_hand():
    # Discount 0.5 at the borders. Deltas from the end: 4 - 2 = 2; 0 + 2 - 1 = 1;
    # 0 + 0.5 * 1 - 3 = -2.5; 1 + 0.5 * 3 - 1 = 1.5; 0 + 1 - 2 = -1.
    values_A = tensor([2.0, 1.0, 3.0, 1.0, 2.0])
    inputs = (tensor(REWARDS), values_A, ROUNDS_A)
    # Lambda 0.5 on every token: 2; 1 + 0.5 * 2 = 2; -2.5 + 0.25 * 2 = -2; 1.5 - 0.25 * 2 = 1;
    # -1 + 0.5 * 1 = -0.5.
    by_token_A = generalized_advantages(*inputs, discount=0.5, lambda_=0.5)
    assert by_token_A.tolist() == [-0.5, 1.0, -2.0, 2.0, 2.0]


def test_a_bootstrapped_end_counts_one_round_later():
    # The last delta is 4 + 0.5 * 6 - 2 = 5 instead of 2; with lambda 0 nothing else changes.
    values_A = tensor([2.0, 1.0, 3.0, 1.0, 2.0])
    advantages_A = generalized_advantages(
        tensor(REWARDS), values_A, ROUNDS_A, discount=0.5, lambda_=0.0, final_value=6.0
    )
    assert advantages_A.tolist() == [-1.0, 1.5, -2.5, 1.0, 5.0]


@quick
@given(st.lists(st.floats(-5, 5), min_size=5, max_size=5), st.floats(0.1, 1.0))
def test_with_lambda_1_values_and_advantages_add_up_to_returns(
    values: list[float], discount: float
):
    returns_A = token_returns(tensor(REWARDS), ROUNDS_A, discount=discount)
    advantages_A = generalized_advantages(
        tensor(REWARDS), tensor(values), ROUNDS_A, discount=discount, lambda_=1.0
    )
    assert (advantages_A + tensor(values)).tolist() == pytest.approx(returns_A.tolist())


def test_rounds_come_from_segments_and_else_from_runs_of_actions():
    mask = (0, 1, 1, 0, 1, 0, 1, 0)
    zeros = (0.0,) * 8
    bare = Sample((5,) * 8, mask, zeros, zeros, (), 0)
    assert list(rounds_of_actions(bare)) == [0, 0, 1, 2]
    # A plan and the action after it are two runs of one round.
    kinds = ((SegmentKind.PROMPT, 0, 1, 0), (SegmentKind.ACTION, 1, 3, 0))
    kinds += ((SegmentKind.OBSERVATION, 3, 4, 0), (SegmentKind.ACTION, 4, 5, 0))
    kinds += ((SegmentKind.OBSERVATION, 5, 6, 0), (SegmentKind.ACTION, 6, 7, 1))
    segments = tuple(Segment(*kind) for kind in kinds)
    known = Sample((5,) * 8, mask, zeros, zeros, segments, 0)
    assert list(rounds_of_actions(known)) == [0, 0, 0, 1]


# Episodes of 2 tokens, of 1 + 3 tokens in two samples, and of none.
ITEMS = [make_item(2), make_item(1, 3), make_item(3, 1), make_item(0)]
LOSSES_A = tensor([1.0, 3.0, 2.0, 4.0, 6.0, 8.0])


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (Aggregation("token_mean"), 24 / 6),
        (Aggregation("episode_mean"), (4 / 2 + 20 / 4) / 2),
        (Aggregation("constant", 100), 24 / (2 * 100)),
    ],
    ids=lambda value: value.kind if isinstance(value, Aggregation) else "",
)
def test_aggregation_by_hand(aggregation: Aggregation, expected: float):
    loss = mean_loss(TokenLoss(LOSSES_A), ITEMS, aggregation.weights(ITEMS))
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "factor"), [("token_mean", 1.0), ("episode_mean", 1.0), ("constant", 0.25)]
)
def test_dropped_groups_leave_the_weight_of_the_others_only_with_a_constant(
    kind: str, factor: float
):
    aggregation = Aggregation(kind, 100)
    whole = mean_loss(TokenLoss(LOSSES_A), ITEMS, aggregation.weights(ITEMS))
    # A quarter of the groups was kept; the dropped ones would have added nothing but episodes.
    kept = mean_loss(TokenLoss(LOSSES_A), ITEMS, aggregation.weights(ITEMS, kept_share=0.25))
    assert kept.item() == pytest.approx(factor * whole.item())


@pytest.mark.parametrize("kind", ["token_mean", "episode_mean", "constant"])
def test_an_update_without_tokens_has_weights_all_the_same(kind: str):
    weights = Aggregation(kind, 10).weights([make_item(0)])
    assert weights.divisor == 0.0 and len(weights.samples) == 1
