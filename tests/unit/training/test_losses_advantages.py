"""Advantages and losses against numbers worked out by hand, and their laws.

Shape legend: G episodes of one group, K rounds, N any entries, A action tokens.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from agentgym_rl.config import CreditConfig, GiGPOConfig, GRPOConfig, KLConfig, PolicyLossConfig
from agentgym_rl.training.algorithms.advantages import (
    group_relative,
    leave_one_out,
    relative_in_equal_states,
    rounds_group_relative,
    whiten,
)
from agentgym_rl.training.algorithms.base import (
    ScoredEpisode,
    ScoredSample,
    Scores,
    TokenBatch,
)
from agentgym_rl.training.algorithms.gigpo import GiGPO
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.algorithms.kl import divergence, drift
from agentgym_rl.training.algorithms.losses import (
    clip_fraction,
    clipped_policy_loss,
    importance_weights,
    sequence_log_ratios,
    value_loss,
    weighted_logprob_loss,
)
from agentgym_rl.training.algorithms.online import OnlineAlgorithm, SharedSettings
from agentgym_rl.training.algorithms.policy_loss import PolicyLoss
from agentgym_rl.types import Episode, Sample, StopReason, Task

quick = settings(max_examples=100)
groups_of_rewards = st.lists(st.floats(-10, 10), min_size=2, max_size=16)

TASK = Task("counting", "train", 0)
CLIP = {"clip_low": 0.2, "clip_high": 0.3}
SMALL_PENALTY = SharedSettings(kl=KLConfig(coef=0.001, place="reward", estimator="k1"))

# One token for each way in which a ratio can leave the clip range, and one inside it.
RATIOS_A = torch.tensor([1.5, 1.5, 0.5, 0.5, 1.1, 0.9], dtype=torch.float64)
ADVANTAGES_A = torch.tensor([2.0, -2.0, 2.0, -2.0, 3.0, -3.0], dtype=torch.float64)


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def make_sample(num_actions: int, reward: float) -> Sample:
    mask = (0, *(1 for _ in range(num_actions)))
    rewards = (*(0.0 for _ in mask[1:]), reward)
    return Sample((5,) * len(mask), mask, (-1.0,) * len(mask), rewards, (), 0)


def make_episode(
    reward: float,
    *num_actions: int,
    task: Task = TASK,
    stop_reason: StopReason = StopReason.TERMINATED,
) -> ScoredEpisode:
    """An episode with a sample for each number of action tokens, the reward on the very last."""
    last = len(num_actions) - 1
    samples = tuple(
        make_sample(num, reward if place == last else 0.0) for place, num in enumerate(num_actions)
    )
    episode = Episode(task, 0, stop_reason, reward, False, (), (), samples, 0.0)
    return ScoredEpisode(episode, tuple(map(ScoredSample, samples)))


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


def test_a_penalty_weighs_what_it_is_beside_what_was_earned_by_hand():
    # All earned 1: penalties of 0.001 and 0.003 stay small, where their own deviation, 0.0014,
    # would make +-0.7 of them.
    earned_G, returns_G = tensor([1.0, 1.0]), tensor([0.999, 0.997])
    advantages_G = group_relative(returns_G, normalize_std=True, earned_G=earned_G)
    assert advantages_G.tolist() == pytest.approx([0.001, -0.001])
    # With spread the deviation is that of what was earned, sqrt(0.5).
    earned_G, returns_G = tensor([1.0, 0.0]), tensor([0.9, 0.0])
    advantages_G = group_relative(returns_G, normalize_std=True, earned_G=earned_G)
    assert advantages_G.tolist() == pytest.approx([0.45 / math.sqrt(0.5), -0.45 / math.sqrt(0.5)])


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
    loss_A = clipped_policy_loss(RATIOS_A.log(), ADVANTAGES_A, **CLIP)
    assert loss_A.tolist() == pytest.approx([-2.6, 3.0, -1.0, 1.6, -3.3, 2.7])


def test_clip_fraction_by_hand():
    clipped_A = clip_fraction(RATIOS_A.log(), ADVANTAGES_A, **CLIP)
    assert clipped_A.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0]


@quick
@given(st.floats(-1, 1), st.sampled_from([-2.0, -0.5, 0.5, 2.0]))
def test_clip_fraction_counts_the_tokens_without_gradient(log_ratio: float, advantage: float):
    logprobs_A = tensor([log_ratio]).requires_grad_()
    inputs = (logprobs_A, tensor([advantage]))
    clipped_policy_loss(*inputs, **CLIP).sum().backward()
    assert (float(logprobs_A.grad) == 0.0) == bool(clip_fraction(*inputs, **CLIP))


def test_the_first_pass_has_the_policy_gradient():
    # Ratios are 1, and d(-ratio * advantage) / d logprob = -advantage.
    old_A = tensor([-0.1, -2.0, -5.0])
    logprobs_A = old_A.clone().requires_grad_()
    loss_A = clipped_policy_loss(logprobs_A - old_A, tensor([2.0, -3.0, 0.5]), **CLIP)
    assert loss_A.tolist() == [-2.0, 3.0, -0.5]
    loss_A.sum().backward()
    assert logprobs_A.grad.tolist() == [-2.0, 3.0, -0.5]


def test_drift_by_hand():
    # ratio - 1 - log(ratio): 2 - 1 - 0.6931, 0.5 - 1 + 0.6931, and 0 where nothing changed.
    log_ratios_A = tensor([math.log(2), -math.log(2), 0.0])
    assert drift(log_ratios_A, torch.zeros(3)).tolist() == pytest.approx(
        [0.306853, 0.193147, 0.0], abs=1e-6
    )


@quick
@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_drift_is_the_divergence_in_expectation_and_never_negative(logits: list[float]):
    old = tensor([0.3, -1.0, 2.0, 0.0]).log_softmax(dim=0)
    new = tensor(logits).log_softmax(dim=0)
    estimates = drift(new, old)
    assert float(estimates.min()) >= 0.0
    divergence = (old.exp() * (old - new)).sum()
    assert float((old.exp() * estimates).sum()) == pytest.approx(float(divergence), abs=1e-9)


def test_leave_one_out_by_hand():
    # Means of the others: (0 + 2) / 2 = 1, (3 + 2) / 2 = 2.5, (3 + 0) / 2 = 1.5.
    assert leave_one_out(tensor([3.0, 0.0, 2.0])).tolist() == [2.0, -2.5, 0.5]
    with pytest.raises(ValueError, match="at least 2 episodes, got 1"):
        leave_one_out(tensor([1.0]))


@quick
@given(groups_of_rewards)
def test_leave_one_out_is_the_group_relative_one_scaled(rewards: list[float]):
    size = len(rewards)
    relative_G = group_relative(tensor(rewards), normalize_std=False) * size / (size - 1)
    assert leave_one_out(tensor(rewards)).tolist() == pytest.approx(relative_G.tolist(), abs=1e-9)


def test_rounds_are_compared_with_the_same_round_of_all_by_hand():
    # Round 0: mean 2, deviation 2. Round 1: the second episode is over and counts as 0; mean 1.
    returns_GK = torch.tensor([[4.0, 3.0], [0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    relative_GK = rounds_group_relative(returns_GK, normalize_std=False)
    assert relative_GK.tolist() == [[2.0, 2.0], [-2.0, -1.0], [0.0, -1.0]]
    scaled_GK = rounds_group_relative(returns_GK, normalize_std=True)
    assert scaled_GK.tolist() == [[1.0, 1.0], [-1.0, -0.5], [0.0, -0.5]]
    # Without itself: (0 + 2) / 2 = 1 and (0 + 0) / 2 = 0 for the first episode.
    assert leave_one_out(returns_GK)[0].tolist() == [3.0, 3.0]


def test_equal_states_are_compared_by_hand():
    returns_N = tensor([1.0, 5.0, 3.0, 7.0, 2.0])
    states = ["a", "b", "a", "c", "a"]
    # State a: mean of 1, 3, 2 is 2, deviation 1. States b and c occur once.
    for normalize_std in (False, True):
        relative_N = relative_in_equal_states(returns_N, states, normalize_std=normalize_std)
        assert relative_N.tolist() == [-1.0, 0.0, 1.0, 0.0, 0.0]


def test_whitened_values_by_hand():
    assert whiten(tensor([1.0, 2.0, 3.0])).tolist() == [-1.0, 0.0, 1.0]
    assert whiten(tensor([4.0, 4.0])).tolist() == [0.0, 0.0]
    assert whiten(tensor([4.0])).tolist() == [0.0]
    assert whiten(tensor([])).tolist() == []


def test_sequence_ratios_are_geometric_means_by_hand():
    # First sample: mean of 0.2 and 0.4; second: of -0.3, 0 and 0.6.
    log_ratios_A = tensor([0.2, 0.4, -0.3, 0.0, 0.6]).requires_grad_()
    means_A = sequence_log_ratios(log_ratios_A, torch.tensor([0, 0, 1, 1, 1]))
    assert means_A.tolist() == pytest.approx([0.3, 0.3, 0.1, 0.1, 0.1])
    means_A[0].backward()
    assert log_ratios_A.grad.tolist() == pytest.approx([0.5, 0.5, 0.0, 0.0, 0.0])


def test_cispo_by_hand():
    # Ratios 1.5 and 0.5 are clipped to 1.3 and 0.8, and still have a gradient.
    ratios_A = tensor([1.5, 0.5, 1.1])
    logprobs_A = tensor([-1.0, -2.0, -3.0]).requires_grad_()
    loss_A = weighted_logprob_loss(logprobs_A, ratios_A.log(), tensor([2.0, 2.0, -1.0]), **CLIP)
    assert loss_A.tolist() == pytest.approx([2.6, 3.2, -3.3])
    loss_A.sum().backward()
    assert logprobs_A.grad.tolist() == pytest.approx([-2.6, -1.6, 1.1])


def test_importance_weights_are_truncated_by_hand():
    old_A, engine_A = tensor([0.5, 1.0, 0.9]).log(), tensor([0.4, 0.1, 0.9]).log()
    weights_A = importance_weights(old_A, engine_A, cap=2.0)
    assert weights_A.tolist() == pytest.approx([1.25, 2.0, 1.0])


def test_value_loss_by_hand():
    # Old 0, limit 0.2, return 1. Value 0.5: (0.5 - 1)^2 against (0.2 - 1)^2, half of the larger.
    # Value -1: (-1 - 1)^2 against (-0.2 - 1)^2. Value 0.1 is within the limit.
    values_A, old_A, returns_A = tensor([0.5, -1.0, 0.1]), torch.zeros(3), torch.ones(3)
    clipped_A = value_loss(values_A, old_A, returns_A, clip=0.2)
    assert clipped_A.tolist() == pytest.approx([0.32, 2.0, 0.405])
    free_A = value_loss(values_A, old_A, returns_A, clip=0.0)
    assert free_A.tolist() == pytest.approx([0.125, 2.0, 0.405])


def test_divergence_by_hand():
    logprobs_A, ref_A = tensor([0.5, 0.25]).log(), tensor([0.25, 0.5]).log()
    two = math.log(2)
    k1_A = divergence(logprobs_A, ref_A, estimator="k1")
    assert k1_A.tolist() == pytest.approx([two, -two])
    k2_A = divergence(logprobs_A, ref_A, estimator="k2")
    assert k2_A.tolist() == pytest.approx([two**2 / 2, two**2 / 2])
    # reference / policy - 1 - log of it: 0.5 - 1 + 0.6931, and 2 - 1 - 0.6931.
    k3_A = divergence(logprobs_A, ref_A, estimator="k3")
    assert k3_A.tolist() == pytest.approx([two - 0.5, 1 - two])


@quick
@given(st.lists(st.floats(-3, 3), min_size=4, max_size=4))
def test_values_and_gradients_of_divergences_are_what_they_are_said_to_be(values: list[float]):
    logits, ref = tensor(values).requires_grad_(), tensor([0.3, -1.0, 2.0, 0.0]).log_softmax(dim=0)
    logprobs = logits.log_softmax(dim=0)
    probs = logprobs.detach().exp()
    forward, backward = (
        (ref.exp() * (ref - logprobs)).sum(),
        (logprobs.exp() * (logprobs - ref)).sum(),
    )

    def gradient(scalar: Tensor) -> list[float]:
        return torch.autograd.grad(scalar, logits, retain_graph=True)[0].tolist()

    def expected(estimator: str) -> Tensor:
        # Tokens are drawn from the policy, and the loss differentiates the estimate alone.
        return (probs * divergence(logprobs, ref, estimator=estimator)).sum()

    for estimator in ("k1", "k3"):
        assert expected(estimator).item() == pytest.approx(backward.item(), abs=1e-9)
    assert gradient(expected("k1")) == pytest.approx([0.0] * 4, abs=1e-9)
    assert gradient(expected("k2")) == pytest.approx(gradient(backward), abs=1e-9)
    assert gradient(expected("k3")) == pytest.approx(gradient(forward), abs=1e-9)


def advantages_of(algorithm: GRPO, *groups: list[ScoredEpisode]) -> list[list[list[float]]]:
    """Return the advantages of each sample of each group, rounded."""
    batch = algorithm.advantages(groups)
    return [[[round(a, 6) for a in item.advantages] for item in group] for group in batch.groups]


def test_grpo_gives_every_action_token_the_advantage_of_its_episode():
    first = [make_episode(1.0, 3), make_episode(0.0, 1, 2)]
    second = [make_episode(5.0, 1), make_episode(5.0, 2)]
    algorithm = GRPO(GRPOConfig(normalize_std=False), SharedSettings())
    assert advantages_of(algorithm, first, second) == [
        [[0.5, 0.5, 0.5], [-0.5], [-0.5, -0.5]],
        [[0.0], [0.0, 0.0]],
    ]
    items = [item for group in algorithm.advantages([first, second]).groups for item in group]
    samples = [item.sample for group in (first, second) for e in group for item in e.samples]
    assert [item.sample for item in items] == samples
    assert [item.num_episode_tokens for item in items] == [3, 3, 3, 1, 2]


def test_a_reward_off_the_action_tokens_is_an_error():
    lost = make_episode(1.0, 2)
    sample = Sample((5, 5, 5), (0, 1, 0), (0.0,) * 3, (0.0, 0.0, 1.0), (), 0)
    episode = ScoredEpisode(lost.episode, (ScoredSample(sample),))
    with pytest.raises(ValueError, match="rewards belong on the last action token"):
        GRPO(GRPOConfig(), SharedSettings()).advantages([[lost, episode]])


def test_masked_episodes_are_compared_with_but_not_learned_from():
    cut = make_episode(0.0, 2, stop_reason=StopReason.MAX_ROUNDS)
    lazy = make_episode(0.0, 1, stop_reason=StopReason.INVALID_ACTIONS)
    shared = SharedSettings(credit=CreditConfig(truncated="mask"))
    algorithm = GRPO(GRPOConfig(normalize_std=False), shared)
    group = [make_episode(1.0, 1), cut, lazy]
    assert advantages_of(algorithm, group) == [[[0.666667], [-0.333333]]]
    assert algorithm.advantages([group]).metrics["train/episodes_masked"] == 1.0


def test_the_divergence_in_the_reward_is_taken_from_every_token_by_hand():
    # k1 with engine log-probs -1: -1 - (-1.5) = 0.5 for each token, times 0.1.
    # Returns 1 - 2 * 0.05 = 0.9 and 0 - 0.05; mean 0.425.
    def scored(item: ScoredEpisode) -> ScoredEpisode:
        (own,) = item.samples
        scores = Scores(ref_logprobs=(-1.5,) * own.sample.num_action_tokens)
        return ScoredEpisode(item.episode, (ScoredSample(own.sample, scores),))

    shared = SharedSettings(kl=KLConfig(coef=0.1, place="reward", estimator="k1"))
    algorithm = GRPO(GRPOConfig(normalize_std=False), shared)
    assert algorithm.needs.reference
    group = [scored(make_episode(1.0, 2)), scored(make_episode(0.0, 1))]
    assert advantages_of(algorithm, group) == [[[0.475, 0.475], [-0.475]]]


@pytest.mark.parametrize(
    "algorithm",
    [
        GRPO(GRPOConfig(), SMALL_PENALTY),
        GRPO(GRPOConfig(level="round"), SMALL_PENALTY),
        GiGPO(GiGPOConfig(), SMALL_PENALTY),
    ],
    ids=["grpo", "grpo rounds", "gigpo"],
)
def test_a_small_divergence_in_the_reward_does_not_decide_a_group_without_spread(
    algorithm: OnlineAlgorithm,
):
    def scored(reference: float) -> ScoredEpisode:
        (own,) = make_episode(1.0, 1).samples
        scores = Scores(ref_logprobs=(reference,))
        return ScoredEpisode(make_episode(1.0, 1).episode, (ScoredSample(own.sample, scores),))

    # k1 with engine log-probs -1: divergences of 1 and 3, times 0.001.
    ((first, second),) = advantages_of(algorithm, [scored(-2.0), scored(-4.0)])
    assert 0 < first[0] <= 0.002 and -0.002 <= second[0] < 0


def policy_loss(kl: KLConfig | None = None, **fields: object) -> PolicyLoss:
    return PolicyLoss(PolicyLossConfig(clip_low=0.2, clip_high=0.3, **fields), kl or KLConfig())


def ratio_batch(**fields: Tensor) -> TokenBatch:
    zeros_A = torch.zeros(6, dtype=torch.float64)
    return TokenBatch(RATIOS_A.log(), zeros_A, ADVANTAGES_A, torch.full((6,), 2.0), **fields)


PLAIN = [-2.6, 3.0, -1.0, 1.6, -3.3, 2.7]


def test_the_policy_loss_is_the_clipped_one_less_the_entropy_bonus():
    plain, with_bonus = policy_loss()(ratio_batch()), policy_loss(entropy_coef=0.1)(ratio_batch())
    assert plain.loss_A.tolist() == pytest.approx(PLAIN)
    assert (plain.loss_A - with_bonus.loss_A).tolist() == pytest.approx([0.2] * 6)
    assert float(plain.metrics["train/clip_fraction"].sum()) == 2.0


@pytest.mark.parametrize(
    ("entropy", "coef"), [(None, 0.0), (0.0, 0.1), (0.1, 0.075), (0.4, 0.0), (1.0, 0.0)]
)
def test_the_entropy_bonus_fades_towards_its_target(entropy: float | None, coef: float):
    loss = policy_loss(entropy_coef=0.1, entropy_target=0.4)
    loss.prepare(entropy)
    assert loss.entropy_coef == pytest.approx(coef)
    bonus_A = policy_loss()(ratio_batch()).loss_A - loss(ratio_batch()).loss_A
    assert bonus_A.tolist() == pytest.approx([2.0 * coef] * 6)


def test_a_step_that_learned_nothing_says_nothing_of_the_entropy():
    shared = SharedSettings(policy_loss=PolicyLossConfig(entropy_coef=0.1, entropy_target=0.4))
    algorithm = GRPO(GRPOConfig(), shared)
    algorithm.prepare([{"train/entropy": 0.9}, {"train/entropy": 0.1}, {"train/entropy": 0.0}])
    group = [make_episode(1.0, 2), make_episode(0.0, 1)]
    assert algorithm.advantages([group]).metrics["train/entropy_coef"] == pytest.approx(0.075)


def test_the_policy_loss_adds_the_divergence_only_where_it_belongs():
    batch = ratio_batch(ref_logprobs_A=RATIOS_A.log() - 1)
    in_loss = policy_loss(KLConfig(coef=0.1, estimator="k2"))(batch)
    # Half of 1 squared, times 0.1.
    assert in_loss.loss_A.tolist() == pytest.approx([loss + 0.05 for loss in PLAIN])
    assert in_loss.metrics["train/kl_reference"].tolist() == pytest.approx([0.5] * 6)
    in_reward = policy_loss(KLConfig(coef=0.1, place="reward"))(batch)
    assert in_reward.loss_A.tolist() == pytest.approx(PLAIN)


def test_the_policy_loss_weighs_tokens_by_learner_over_engine():
    batch = ratio_batch(engine_logprobs_A=torch.tensor([0.5, 0.1, 1, 1, 1, 1]).log().double())
    result = policy_loss(importance_cap=4.0)(batch)
    weights = [2.0, 4.0, 1.0, 1.0, 1.0, 1.0]
    assert result.loss_A.tolist() == pytest.approx(
        [loss * weight for loss, weight in zip(PLAIN, weights, strict=True)]
    )
    assert result.metrics["train/importance_capped"].tolist() == [0, 1, 0, 0, 0, 0]


def test_the_policy_loss_takes_the_ratio_of_whole_sequences():
    samples_A = torch.tensor([0, 0, 0, 0, 1, 1])
    result = policy_loss(objective="gspo")(ratio_batch(samples_A=samples_A))
    # Geometric means sqrt(1.5 * 0.5) of the first four, sqrt(1.1 * 0.9) of the rest: in range.
    first, second = math.sqrt(0.75), math.sqrt(0.99)
    assert result.loss_A.tolist() == pytest.approx(
        [-2 * first, 2 * first, -2 * first, 2 * first, -3 * second, 3 * second]
    )


@pytest.mark.parametrize("objective", ["clip", "gspo"])
@pytest.mark.parametrize("log_ratio", [-500.0, 500.0])
def test_a_token_whose_probability_changed_beyond_measure_does_no_harm(
    log_ratio: float, objective: str
):
    logprobs_A = tensor([log_ratio, -1.0]).requires_grad_()
    samples_A = torch.tensor([0, 1])
    batch = TokenBatch(
        logprobs_A,
        tensor([0.0, -1.0]),
        tensor([-1.0, -1.0]),
        torch.zeros(2),
        samples_A=samples_A,
    )
    policy_loss(objective=objective)(batch).loss_A.sum().backward()
    # Clipped, on whichever side; the token beside it is untouched.
    assert logprobs_A.grad.tolist() == [0.0, 1.0]
    assert drift(logprobs_A, batch.old_logprobs_A).isfinite().all()


def test_cispo_leaves_every_token_a_gradient():
    logprobs_A = RATIOS_A.log().requires_grad_()
    batch = TokenBatch(logprobs_A, torch.zeros(6), ADVANTAGES_A, torch.zeros(6))
    result = policy_loss(objective="cispo")(batch)
    result.loss_A.sum().backward()
    assert logprobs_A.grad.tolist() == pytest.approx([-2.6, 2.6, -1.6, 1.6, -3.3, 2.7])
    assert result.metrics["train/clip_fraction"].tolist() == [1, 1, 1, 1, 0, 0]
