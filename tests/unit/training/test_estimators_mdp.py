"""Every estimator against theory, on a decision process that can be enumerated.

The gradient is that of the package's own path: `advantages`, `token_batch`, `loss`, `mean_loss`,
as the learner calls them. Unbiased estimators must have the true gradient as their mean; the
others the mean of their published formula, which the tests write out once more in plain Python.

Shape legend: A action tokens.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
import torch
from torch import Tensor

from agentgym_rl.config import (
    CreditConfig,
    GiGPOConfig,
    GRPOConfig,
    KLConfig,
    PolicyLossConfig,
    PPOConfig,
    ReinforcePPConfig,
    RLOOConfig,
)
from agentgym_rl.models.forward import ActionLogprobs
from agentgym_rl.training.algorithms.base import Algorithm, ScoredEpisode, ScoredSample, Scores
from agentgym_rl.training.algorithms.gigpo import GiGPO
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.algorithms.online import SharedSettings
from agentgym_rl.training.algorithms.ppo import PPO
from agentgym_rl.training.algorithms.reinforce_pp import ReinforcePP
from agentgym_rl.training.algorithms.rloo import RLOO
from agentgym_rl.training.learner.batching import mean_loss, token_batch
from agentgym_rl.types import Sample
from tiny_mdp import State, TinyMDP, Trajectory, actions_in

MDP, OTHER = TinyMDP(), TinyMDP(seed=1)
CONSTANT = 10
"""Of the constant aggregation: the sum over tokens is divided by episodes times this."""

Critic = Callable[[State], float]


def shared(discount: float = 1.0, aggregation: str = "constant", **kl: object) -> SharedSettings:
    return SharedSettings(
        credit=CreditConfig(discount=discount),
        policy_loss=PolicyLossConfig(aggregation=aggregation),
        kl=KLConfig(**kl),
        max_tokens=CONSTANT,
    )


def score_episode(
    mdp: TinyMDP,
    trajectory: Trajectory,
    critic: Critic | None,
    *,
    ends_with_observation: bool,
    bootstrap: Critic | None,
) -> ScoredEpisode:
    """What the learner's `score` would say with this critic."""
    episode = mdp.episode(trajectory, ends_with_observation=ends_with_observation)
    states = [decision.state for decision in trajectory.decisions]
    values = tuple(map(critic, states)) if critic is not None else None
    # The other policy is the reference; algorithms that did not ask for one must not look at it.
    ref_logprobs = tuple(map(OTHER.logprob, trajectory.decisions)) if mdp is MDP else None
    is_cut = episode.stop_reason.is_truncation and bootstrap is not None
    return ScoredEpisode(
        episode,
        (ScoredSample(episode.samples[0], Scores(None, ref_logprobs, values)),),
        final_value=bootstrap(trajectory.next_state) if is_cut and bootstrap else 0.0,
    )


def mean_gradient(
    algorithm: Algorithm,
    size: int,
    *,
    mdp: TinyMDP = MDP,
    critic: Critic | None = None,
    bootstrap: Critic | None = None,
    ends_with_observation: bool = False,
    in_two_samples: bool = False,
) -> Tensor:
    """Return the mean over all batches of what gradient ascent follows (minus the loss's)."""
    table = mdp.log_table()
    scored = {
        id(trajectory): score_episode(
            mdp,
            trajectory,
            critic,
            ends_with_observation=ends_with_observation,
            bootstrap=bootstrap,
        )
        for trajectory in mdp.trajectories
    }
    if in_two_samples:
        scored = {key: split_into_two(item) for key, item in scored.items()}
    total = torch.zeros((), dtype=torch.float64)
    for probability, batch in mdp.batches(size):
        items = algorithm.advantages([[scored[id(trajectory)] for trajectory in batch]]).groups[0]
        decisions = [decision for trajectory in batch for decision in trajectory.decisions]
        rows = torch.tensor([mdp.row(decision.state) for decision in decisions])
        logprobs_A = table[rows, torch.tensor([decision.token for decision in decisions])]
        values_A = torch.zeros_like(logprobs_A)  # the critic's loss is no matter of the policy's
        tokens = token_batch(
            items, ActionLogprobs(logprobs_A, torch.zeros_like(logprobs_A)), values_A
        )
        loss = mean_loss(algorithm.loss(tokens), items, algorithm.aggregation.weights(items))
        total = total + probability * loss
    return -torch.autograd.grad(total, mdp.logits)[0]


def split_into_two(scored: ScoredEpisode) -> ScoredEpisode:
    """The episode as an agent leaves it that begins a new context, with the same content, after
    the first round: what was sampled before is repeated there, and not learned from again."""
    (item,) = scored.samples
    sample = item.sample
    replies = [s for s in sample.segments if s.kind.is_reply]
    if len(replies) == 1:
        return scored
    end = replies[0].end
    first = Sample(
        sample.token_ids[:end],
        sample.loss_mask[:end],
        sample.logprobs[:end],
        sample.rewards[:end],
        tuple(s for s in sample.segments if s.end <= end),
        sample.version,
    )
    blank = (0,) * end
    second = replace(
        sample,
        loss_mask=blank + sample.loss_mask[end:],
        logprobs=blank + sample.logprobs[end:],
        rewards=blank + sample.rewards[end:],
    )
    number = first.num_action_tokens

    def parts(entries: tuple[float, ...] | None) -> tuple[tuple[float, ...] | None, ...]:
        return (entries[:number], entries[number:]) if entries is not None else (None, None)

    columns = (parts(item.scores.ref_logprobs), parts(item.scores.values))
    scores = [Scores(None, ref, values) for ref, values in zip(*columns, strict=True)]
    episode = replace(scored.episode, samples=(first, second))
    samples = (ScoredSample(first, scores[0]), ScoredSample(second, scores[1]))
    return replace(scored, episode=episode, samples=samples)


def assert_same(found: Tensor, expected: Tensor) -> None:
    assert float(expected.abs().max()) > 1e-3, "there is something to compare"
    assert float((found - expected).abs().max()) < 1e-10


def exact(discount: float) -> Critic:
    return lambda state: MDP.value(state, discount)


def wrong(state: State) -> float:
    """A critic that has learned nothing, but not nothing in particular."""
    return math.sin(sum(3 * token + 1 for token in state))


def test_the_process_has_every_case():
    trajectories = MDP.trajectories
    assert len(trajectories) == 17
    assert sum(map(MDP.probability, trajectories)) == pytest.approx(1.0)
    assert {len(t.rewards) for t in trajectories} == {1, 2}
    assert {len(t.decisions) for t in trajectories} == {1, 2, 3, 4}
    lengths = {len(MDP.episode(t).samples[0].token_ids) for t in trajectories}
    assert len(lengths) > 3


def test_theory_agrees_with_itself():
    assert_same(MDP.policy_gradient(discount=1.0), MDP.true_gradient(discount=1.0))
    reinforce = MDP.expected_gradient(
        1, lambda batch: [[t.to_go(0, 0.7)] * len(t.decisions) for t in batch]
    )
    assert_same(reinforce, MDP.true_gradient(discount=0.7))
    assert_same(MDP.score(MDP.trajectories[0].decisions[0]), _score_by_autograd())


def _score_by_autograd() -> Tensor:
    decision = MDP.trajectories[0].decisions[0]
    picked = MDP.log_table()[MDP.row(decision.state), decision.token]
    return torch.autograd.grad(picked, MDP.logits)[0]


# Groups of three take seconds, so they meet only the hardest case.
GROUP_CASES = [
    (2, 1.0, False),
    (2, 0.7, True),
    pytest.param(3, 0.7, True, marks=pytest.mark.long),
]


@pytest.mark.parametrize(("size", "discount", "ends_with_observation"), GROUP_CASES)
def test_rloo_is_unbiased(size: int, discount: float, ends_with_observation: bool):
    found = mean_gradient(
        RLOO(RLOOConfig(), shared(discount)), size, ends_with_observation=ends_with_observation
    )
    assert_same(found * CONSTANT, MDP.true_gradient(discount=discount))


@pytest.mark.parametrize(("size", "discount", "ends_with_observation"), GROUP_CASES)
def test_dr_grpo_is_unbiased_up_to_its_factor(
    size: int, discount: float, ends_with_observation: bool
):
    algorithm = GRPO(GRPOConfig(normalize_std=False), shared(discount))
    found = mean_gradient(algorithm, size, ends_with_observation=ends_with_observation)
    expected = MDP.true_gradient(discount=discount) * (size - 1) / size
    assert_same(found * CONSTANT, expected)


@pytest.mark.parametrize("discount", [1.0, 0.7])
def test_comparing_round_by_round_is_unbiased_although_the_policy_ends_episodes(discount: float):
    expected = MDP.policy_gradient(discount=discount)
    rloo = RLOO(RLOOConfig(level="round"), shared(discount))
    assert_same(mean_gradient(rloo, 2) * CONSTANT, expected)
    grpo = GRPO(GRPOConfig(level="round", normalize_std=False), shared(discount))
    assert_same(mean_gradient(grpo, 2) * CONSTANT, expected / 2)


Unwhitened = TypeVar("Unwhitened", ReinforcePP, PPO)


def unwhitened(algorithm: Unwhitened) -> Unwhitened:
    """Return the algorithm with advantages as it estimates them."""
    algorithm.whitens = False
    return algorithm


@pytest.mark.parametrize("ends_with_observation", [False, True])
@pytest.mark.parametrize("discount", [1.0, 0.7])
def test_reinforce_pp_without_whitening_is_unbiased(discount: float, ends_with_observation: bool):
    algorithm = unwhitened(ReinforcePP(ReinforcePPConfig(), shared(discount)))
    found = mean_gradient(algorithm, 1, ends_with_observation=ends_with_observation)
    assert_same(found * CONSTANT, MDP.policy_gradient(discount=discount))


@pytest.mark.parametrize("lambda_", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("discount", [1.0, 0.7])
def test_ppo_with_an_exact_critic_is_unbiased_for_every_lambda(discount: float, lambda_: float):
    algorithm = unwhitened(PPO(PPOConfig(gae_lambda=lambda_), shared(discount)))
    for ends_with_observation in (False, True):
        found = mean_gradient(
            algorithm, 1, critic=exact(discount), ends_with_observation=ends_with_observation
        )
        assert_same(found * CONSTANT, MDP.policy_gradient(discount=discount))


@pytest.mark.parametrize("discount", [1.0, 0.7])
def test_ppo_with_lambda_1_is_unbiased_whatever_the_critic_says(discount: float):
    algorithm = unwhitened(PPO(PPOConfig(), shared(discount)))
    found = mean_gradient(algorithm, 1, critic=wrong)
    assert_same(found * CONSTANT, MDP.policy_gradient(discount=discount))


def test_ppo_with_a_wrong_critic_has_the_bias_of_its_formula():
    discount, lambda_ = 0.7, 0.6
    algorithm = unwhitened(PPO(PPOConfig(gae_lambda=lambda_), shared(discount)))
    found = mean_gradient(algorithm, 1, critic=wrong)

    def weights(batch: Sequence[Trajectory]) -> list[list[float]]:
        """The double sum of the paper: later deltas, decayed by every token between."""
        (trajectory,) = batch
        made = trajectory.decisions
        ends = [
            place
            for place, d in enumerate(made)
            if place + 1 == len(made) or made[place + 1].round_index != d.round_index
        ]
        deltas, decays = [], []
        for place, decision in enumerate(made):
            is_end = place in ends
            reward = trajectory.rewards[decision.round_index] if is_end else 0.0
            later = wrong(made[place + 1].state) if place + 1 < len(made) else 0.0
            gamma = discount if is_end else 1.0
            deltas.append(reward + gamma * later - wrong(decision.state))
            decays.append(gamma * lambda_)
        return [
            [
                sum(
                    math.prod(decays[place:later]) * deltas[later]
                    for later in range(place, len(made))
                )
                for place in range(len(made))
            ]
        ]

    assert_same(found * CONSTANT, MDP.expected_gradient(1, weights))
    off = found * CONSTANT - MDP.policy_gradient(discount=discount)
    assert float(off.abs().max()) > 1e-2, "the bias is there"


def test_an_exact_value_at_the_cut_gives_the_gradient_of_the_whole_horizon():
    cut = TinyMDP(horizon=1)
    for row, state in enumerate(cut.states):
        cut.logits.data[row] = MDP.logits.data[MDP.row(state)]
    algorithm = unwhitened(PPO(PPOConfig(gae_lambda=0.6), shared(0.7)))
    found = mean_gradient(algorithm, 1, mdp=cut, critic=exact(0.7), bootstrap=exact(0.7))
    rows = [MDP.row(state) for state in cut.states]
    assert_same(found * CONSTANT, MDP.policy_gradient(discount=0.7)[rows])
    without = mean_gradient(algorithm, 1, mdp=cut, critic=exact(0.7))
    assert float((without - found).abs().max()) > 1e-3


def relative(values: Sequence[float], *, std: bool) -> list[float]:
    """(value - mean) / deviation, in plain Python."""
    mean = statistics.fmean(values)
    spread = statistics.stdev(values) if std else 1.0
    return [(value - mean) / spread if spread > 1e-8 else 0.0 for value in values]


def same_for_all(batch: Sequence[Trajectory], advantages: Sequence[float]) -> list[list[float]]:
    return [[a] * len(t.decisions) for t, a in zip(batch, advantages, strict=True)]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_grpo_has_the_gradient_of_its_formula(size: int):
    found = mean_gradient(GRPO(GRPOConfig(), shared(aggregation="token_mean")), size)

    def weights(batch: Sequence[Trajectory]) -> list[list[float]]:
        num_tokens = sum(len(trajectory.decisions) for trajectory in batch)
        advantages = relative([sum(trajectory.rewards) for trajectory in batch], std=True)
        return same_for_all(batch, [advantage / num_tokens for advantage in advantages])

    assert_same(found, MDP.expected_gradient(size, weights))


def test_grpo_with_means_over_episodes_has_the_gradient_of_its_formula():
    found = mean_gradient(GRPO(GRPOConfig(), shared(0.7, aggregation="episode_mean")), 2)

    def weights(batch: Sequence[Trajectory]) -> list[list[float]]:
        advantages = relative([trajectory.to_go(0, 0.7) for trajectory in batch], std=True)
        return [
            [advantage / len(trajectory.decisions) / len(batch)] * len(trajectory.decisions)
            for trajectory, advantage in zip(batch, advantages, strict=True)
        ]

    assert_same(found, MDP.expected_gradient(2, weights))


@pytest.mark.parametrize("discount", [1.0, 0.7])
def test_whitened_reinforce_pp_has_the_gradient_of_its_formula(discount: float):
    algorithm = ReinforcePP(ReinforcePPConfig(), shared(discount, aggregation="token_mean"))

    def weights(batch: Sequence[Trajectory]) -> list[list[float]]:
        returns = [t.to_go(d.round_index, discount) for t in batch for d in t.decisions]
        whitened = iter(relative(returns, std=True))
        return [[next(whitened) / len(returns) for _ in t.decisions] for t in batch]

    assert_same(mean_gradient(algorithm, 2), MDP.expected_gradient(2, weights))


def test_whitened_ppo_has_the_gradient_of_its_formula():
    algorithm = PPO(PPOConfig(), shared(aggregation="token_mean"))

    def weights(batch: Sequence[Trajectory]) -> list[list[float]]:
        errors = [t.to_go(d.round_index, 1.0) - wrong(d.state) for t in batch for d in t.decisions]
        whitened = iter(relative(errors, std=True))
        return [[next(whitened) / len(errors) for _ in t.decisions] for t in batch]

    assert_same(mean_gradient(algorithm, 2, critic=wrong), MDP.expected_gradient(2, weights))


@pytest.mark.parametrize("std", [True, pytest.param(False, marks=pytest.mark.long)])
def test_gigpo_has_the_gradient_of_its_formula(std: bool):
    discount = 0.7
    algorithm = GiGPO(GiGPOConfig(normalize_std=std), shared(discount, aggregation="token_mean"))

    def weights(batch: Sequence[Trajectory]) -> list[list[float]]:
        num_tokens = sum(len(trajectory.decisions) for trajectory in batch)
        whole = relative([sum(trajectory.rewards) for trajectory in batch], std=std)
        met: defaultdict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
        for number, trajectory in enumerate(batch):
            for index in range(len(trajectory.rewards)):
                met[trajectory.observations[0] if index else ()].append((number, index))
        step = {}
        for places in met.values():
            returns = [batch[number].to_go(index, discount) for number, index in places]
            alone = len(places) == 1
            step |= dict(zip(places, [0.0] if alone else relative(returns, std=std), strict=True))
        return [
            [
                (whole[number] + step[number, d.round_index]) / num_tokens
                for d in trajectory.decisions
            ]
            for number, trajectory in enumerate(batch)
        ]

    size = 3 if std else 2
    assert_same(mean_gradient(algorithm, size), MDP.expected_gradient(size, weights))


def test_gigpo_compares_different_histories_that_look_alike():
    batch = [t for t in MDP.trajectories if len(t.rewards) == 2]
    seen = {t.observations[0] for t in batch}
    starts = {t.decisions[2].state[:3] for t in batch}
    assert len(seen) == 2 and len(starts) == 3


BETA = 0.3


@pytest.mark.parametrize("algorithm", [RLOO, ReinforcePP], ids=["rloo", "reinforce_pp"])
def test_k1_in_the_reward_has_the_gradient_of_return_minus_divergence(
    algorithm: type[RLOO] | type[ReinforcePP],
):
    settings = shared(coef=BETA, place="reward", estimator="k1")
    if algorithm is RLOO:
        found = mean_gradient(RLOO(RLOOConfig(), settings), 2)
    else:
        found = mean_gradient(unwhitened(ReinforcePP(ReinforcePPConfig(), settings)), 1)
    table, other = MDP.log_table(), OTHER.log_table().detach()
    total = torch.zeros((), dtype=torch.float64)
    for trajectory in MDP.trajectories:
        places = [(MDP.row(d.state), d.token) for d in trajectory.decisions]
        logprob = torch.stack([table[place] for place in places]).sum()
        reference = torch.stack([other[place] for place in places]).sum()
        total = total + logprob.exp() * (sum(trajectory.rewards) - BETA * (logprob - reference))
    assert_same(found * CONSTANT, torch.autograd.grad(total, MDP.logits)[0])


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_a_divergence_in_the_loss_has_the_gradient_it_is_said_to_have(estimator: str):
    plain = mean_gradient(RLOO(RLOOConfig(), shared()), 2)
    found = mean_gradient(RLOO(RLOOConfig(), shared(coef=BETA, estimator=estimator)), 2) - plain
    table, other = MDP.log_table(), OTHER.log_table().detach()
    total = torch.zeros((), dtype=torch.float64)
    for row, state in enumerate(MDP.states):
        met = sum(
            MDP.probability(t) for t in MDP.trajectories if state in {d.state for d in t.decisions}
        )
        own, ref = (logs[row, list(actions_in(state))] for logs in (table, other))
        first, second = (own, ref) if estimator == "k2" else (ref, own)
        total = total - BETA * met * (first.exp() * (first - second)).sum()
    assert_same(found * CONSTANT, torch.autograd.grad(total, MDP.logits)[0])


@pytest.mark.parametrize(
    "aggregation",
    [
        "token_mean",
        *(pytest.param(how, marks=pytest.mark.long) for how in ("episode_mean", "constant")),
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        lambda s: GRPO(GRPOConfig(), s),
        lambda s: GRPO(GRPOConfig(level="round"), s),
        lambda s: RLOO(RLOOConfig(level="round"), s),
        lambda s: GiGPO(GiGPOConfig(), s),
        lambda s: ReinforcePP(ReinforcePPConfig(), s),
        lambda s: PPO(PPOConfig(gae_lambda=0.6), s),
    ],
    ids=["grpo", "grpo-round", "rloo-round", "gigpo", "reinforce++", "ppo"],
)
def test_an_episode_in_two_samples_has_the_gradient_of_one(
    make: Callable[[SharedSettings], Algorithm], aggregation: str
):
    algorithm = make(shared(0.7, aggregation, coef=0.1, place="reward", estimator="k1"))
    whole = mean_gradient(algorithm, 2, critic=wrong)
    assert_same(mean_gradient(algorithm, 2, critic=wrong, in_two_samples=True), whole)
