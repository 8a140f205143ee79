"""Advantages and losses against numbers worked out by hand, and their laws.

Shape legend: G episodes of one group, A action tokens.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentgym_rl.config import GRPOConfig
from agentgym_rl.training.algorithms.advantages import group_relative
from agentgym_rl.training.algorithms.base import TokenBatch
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.algorithms.losses import (
    clip_fraction,
    clipped_policy_loss,
    k3_divergence,
)
from agentgym_rl.types import Episode, Group, Sample, StopReason, Task

quick = settings(derandomize=True, deadline=None, max_examples=100)
groups_of_rewards = st.lists(st.floats(-10, 10), min_size=2, max_size=16)

TASK = Task("counting", "train", 0)
CLIP = {"clip_low": 0.2, "clip_high": 0.3}

# One token for each way in which a ratio can leave the clip range, and one inside it.
RATIOS_A = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1, 0.9], dtype=torch.float64)
ADVANTAGES_A = torch.tensor([2.0, -2.0, 2.0, -2.0, 3.0, -3.0], dtype=torch.float64)


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make_sample(num_actions: int) -> Sample:
    mask = (0, *(1 for _ in range(num_actions)))
    return Sample((5,) * len(mask), mask, (0.0,) * len(mask), (0.0,) * len(mask), (), 0)


def make_episode(index: int, reward: float, *num_actions: int) -> Episode:
    """An episode with a sample for each number of action tokens."""
    samples = tuple(make_sample(num) for num in num_actions)
    return Episode(TASK, index, StopReason.TERMINATED, reward, False, (), (), samples, 0.0)


def test_group_relative_by_hand():
    # Mean 1.5; the rest, and the unbiased deviation sqrt((2.25 + 0.25 + 0.25 + 2.25) / 3).
    rewards_G = tensor([0.0, 1.0, 2.0, 3.0])
    assert group_relative(rewards_G, normalize_std=False).tolist() == [-1.5, -0.5, 0.5, 1.5]
    std = math.sqrt(5 / 3)
    assert group_relative(rewards_G, normalize_std=True).tolist() == pytest.approx(
        [-1.5 / std, -0.5 / std, 0.5 / std, 1.5 / std]
    )


def test_group_relative_of_one_success_in_four_by_hand():
    # Mean 1/4, deviation sqrt((9/16 + 3/16) / 3) = 1/2.
    rewards_G = tensor([1.0, 0.0, 0.0, 0.0])
    assert group_relative(rewards_G, normalize_std=True).tolist() == [1.5, -0.5, -0.5, -0.5]


@pytest.mark.parametrize("normalize_std", [True, False])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1e6 / 3])
def test_equal_rewards_have_no_advantage(reward: float, normalize_std: bool):
    advantages_G = group_relative(tensor([reward] * 7), normalize_std=normalize_std)
    assert advantages_G.tolist() == pytest.approx([0.0] * 7, abs=1e-9)


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="at least 2 episodes, got 1"):
        group_relative(tensor([1.0]), normalize_std=True)


@quick
@given(groups_of_rewards, st.booleans())
def test_advantages_of_a_group_sum_to_zero(rewards: list[float], normalize_std: bool):
    advantages_G = group_relative(tensor(rewards), normalize_std=normalize_std)
    assert float(advantages_G.sum()) == pytest.approx(0.0, abs=1e-6)


@quick
@given(groups_of_rewards, st.floats(-5, 5), st.floats(0.1, 10))
def test_normalised_advantages_ignore_shift_and_scale(
    rewards: list[float], shift: float, scale: float
):
    rewards_G = tensor(rewards)
    if rewards_G.std() < 1e-3:
        return
    advantages_G = group_relative(rewards_G, normalize_std=True)
    assert float(advantages_G.std()) == pytest.approx(1.0)
    changed_G = group_relative(rewards_G * scale + shift, normalize_std=True)
    assert changed_G.tolist() == pytest.approx(advantages_G.tolist(), abs=1e-6)


def test_clipped_loss_by_hand():
    # Range 0.8 to 1.3. Ratio 1.5: 2 * 1.3 gains no more, -2 * 1.5 costs in full.
    # Ratio 0.5: 2 * 0.5 in full, -2 * 0.8 gains no more. Inside the range nothing is clipped.
    loss_A = clipped_policy_loss(RATIOS_A.log(), torch.zeros(6), ADVANTAGES_A, **CLIP)
    assert loss_A.tolist() == pytest.approx([-2.6, 3.0, -1.0, 1.6, -3.3, 2.7])


def test_clip_fraction_by_hand():
    clipped_A = clip_fraction(RATIOS_A.log(), torch.zeros(6), ADVANTAGES_A, **CLIP)
    assert clipped_A.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


@quick
@given(st.floats(-1, 1), st.sampled_from([-2.0, -0.5, 0.5, 2.0]))
def test_clip_fraction_counts_the_tokens_without_gradient(log_ratio: float, advantage: float):
    logprobs_A = tensor([log_ratio]).requires_grad_()
    inputs = (logprobs_A, tensor([0.0]), tensor([advantage]))
    clipped_policy_loss(*inputs, **CLIP).sum().backward()
    assert (float(logprobs_A.grad) == 0.0) == bool(clip_fraction(*inputs, **CLIP))


def test_the_first_pass_has_the_policy_gradient():
    # Ratios are 1, and d(-ratio * advantage) / d logprob = -advantage.
    old_A = tensor([-0.1, -2.0, -5.0])
    logprobs_A = old_A.clone().requires_grad_()
    loss_A = clipped_policy_loss(logprobs_A, old_A, tensor([2.0, -3.0, 0.5]), **CLIP)
    assert loss_A.tolist() == [-2.0, 3.0, -0.5]
    loss_A.sum().backward()
    assert logprobs_A.grad.tolist() == [-2.0, 3.0, -0.5]


def test_k3_by_hand():
    # ratio - 1 - log(ratio): 2 - 1 - 0.6931, 0.5 - 1 + 0.6931, and 0 where nothing changed.
    log_ratios_A = tensor([math.log(2), -math.log(2), 0.0])
    assert k3_divergence(log_ratios_A, torch.zeros(3)).tolist() == pytest.approx(
        [0.306853, 0.193147, 0.0], abs=1e-6
    )


@quick
@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_k3_is_the_divergence_in_expectation_and_never_negative(logits: list[float]):
    old = tensor([0.3, -1.0, 2.0, 0.0]).log_softmax(dim=0)
    new = tensor(logits).log_softmax(dim=0)
    estimates = k3_divergence(new, old)
    assert float(estimates.min()) >= 0.0
    divergence = (old.exp() * (old - new)).sum()
    assert float((old.exp() * estimates).sum()) == pytest.approx(float(divergence), abs=1e-9)


def test_grpo_gives_every_action_token_the_advantage_of_its_episode():
    first = Group(TASK, (make_episode(0, 1.0, 3), make_episode(1, 0.0, 1, 2)))
    second = Group(TASK, (make_episode(0, 5.0, 1), make_episode(1, 5.0, 2)))
    algorithm = GRPO(GRPOConfig(normalize_std=False))
    result = algorithm.advantages([first, second])
    assert [[item.advantages for item in group] for group in result] == [
        [(0.5, 0.5, 0.5), (-0.5,), (-0.5, -0.5)],
        [(0.0,), (0.0, 0.0)],
    ]
    samples = [sample for group in (first, second) for e in group.episodes for sample in e.samples]
    assert [item.sample for group in result for item in group] == samples


def test_grpo_loss_is_the_clipped_one_less_the_entropy_bonus():
    batch = TokenBatch(RATIOS_A.log(), torch.zeros(6), ADVANTAGES_A, torch.full((6,), 2.0))
    plain = GRPO(GRPOConfig(clip_low=0.2, clip_high=0.3)).loss(batch)
    with_bonus = GRPO(GRPOConfig(clip_low=0.2, clip_high=0.3, entropy_coef=0.1)).loss(batch)
    assert plain.loss_A.tolist() == pytest.approx([-2.6, 3.0, -1.0, 1.6, -3.3, 2.7])
    assert (plain.loss_A - with_bonus.loss_A).tolist() == pytest.approx([0.2] * 6)
    assert float(plain.metrics["train/clip_fraction"].sum()) == 2.0
