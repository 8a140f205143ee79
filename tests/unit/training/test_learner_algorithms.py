"""The learner with every algorithm: splitting, scoring, critic, reference, resuming."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from agentgym_rl.config import RunConfig, TrainingConfig, parse_config
from agentgym_rl.models.critic import Critic
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.training.algorithms.base import Algorithm
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.make import make_algorithm
from agentgym_rl.types import Group, Sample, SegmentKind, StopReason
from case_shares import spread_over
from chat_families import small_policy
from episode_groups import make_episode, make_groups

TEMPERATURE = 0.8

ALGORITHMS = {
    "grpo": [],
    "grpo rounds": ["algorithm.level=round", "credit.discount=0.9"],
    "grpo + kl": ["kl.coef=0.1", "policy_loss.entropy_coef=0.01"],
    "gspo": ["policy_loss.objective=gspo", "policy_loss.clip_low=0.9"],
    "cispo": ["policy_loss.objective=cispo", "policy_loss.importance_cap=2"],
    "rloo": ["algorithm.type=rloo", "kl.coef=0.1", "kl.place=reward", "kl.estimator=k1"],
    "reinforce_pp": ["algorithm.type=reinforce_pp", "kl.coef=0.1", "kl.place=reward"],
    "gigpo": ["algorithm.type=gigpo", "credit.discount=0.95"],
    "ppo own": ["algorithm.type=ppo", "algorithm.gae_lambda=0.9", "credit.truncated=bootstrap"],
    "ppo shared": ["algorithm.type=ppo", "algorithm.critic=shared"],
}
AGGREGATIONS = ("token_mean", "episode_mean", "constant")


def recipe(*overrides: str) -> RunConfig:
    return parse_config({}, overrides, source="test")


def make_learner(policy: Policy, algorithm: Algorithm, **fields: float) -> Learner:
    training = TrainingConfig(**{"lr": 1e-4, "max_grad_norm": 1e9} | fields)
    return Learner(
        policy,
        training,
        temperature=TEMPERATURE,
        needs=algorithm.needs,
        aggregation=algorithm.aggregation,
    )


def step(learner: Learner, algorithm: Algorithm, *, number: int = 1) -> dict[str, float]:
    """One training step as the trainer makes it, in one update."""
    batch = algorithm.advantages(learner.score(make_groups()))
    items = [item for group in batch.groups for item in group]
    updates_policy = algorithm.updates_policy(number)
    report = learner.update(items, algorithm.loss, updates_policy=updates_policy)
    return report.metrics() | batch.metrics


def gradients(learner: Learner, policy: Policy) -> list[Tensor]:
    """Return the gradients of a learner's first update: AdamW's first moments, scaled."""
    found = [learner._optimizer.state[weight]["exp_avg"] for weight in policy.model.parameters()]
    if learner._critic is not None and learner._critic_optimizer is not None:
        state = learner._critic_optimizer.state
        found += [state[weight]["exp_avg"] for weight in learner._critic.parameters()]
    return [moment / 0.1 for moment in found]


def first_gradients(overrides: Sequence[str], tokens_per_batch: int) -> list[Tensor]:
    algorithm, policy = make_algorithm(recipe(*overrides)), small_policy("qwen3")
    learner = make_learner(policy, algorithm, tokens_per_batch=tokens_per_batch)
    if learner._critic is not None:  # a head of zeros would hide what the trunk gets
        torch.nn.init.constant_(learner._critic.head.weight, 0.1)
    step(learner, algorithm)
    return gradients(learner, policy)


@pytest.mark.parametrize(
    ("name", "aggregation"), spread_over(itertools.product(ALGORITHMS, AGGREGATIONS), 10)
)
def test_no_update_depends_on_how_it_is_split_into_passes(name: str, aggregation: str):
    overrides = [*ALGORITHMS[name], f"policy_loss.aggregation={aggregation}"]
    if aggregation == "constant":
        overrides += ["rollout.max_tokens=16", "rollout.max_tokens_per_round=8"]
    whole = first_gradients(overrides, 10**6)
    scale = max(float(grad.abs().max()) for grad in whole)
    assert scale > 1e-3
    split = first_gradients(overrides, 64)
    off = max(float((a - b).abs().max()) for a, b in zip(whole, split, strict=True))
    assert off < 1e-5 * scale


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_restored_learner_goes_on_bitwise_with_every_algorithm(name: str):
    algorithm, policy = make_algorithm(recipe(*ALGORITHMS[name])), small_policy("qwen3")
    learner = make_learner(policy, algorithm, lr=1e-3)
    step(learner, algorithm)
    file = io.BytesIO()
    torch.save({"learner": learner.state(), "weights": policy.model.state_dict()}, file)
    expected = [step(learner, algorithm) for _ in range(2)]

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = small_policy("qwen3")
    other.model.load_state_dict(saved["weights"])
    restored = make_learner(other, algorithm, lr=1e-3)
    restored.load_state(saved["learner"])
    assert [step(restored, algorithm) for _ in range(2)] == expected


def test_scores_are_those_of_the_present_weights_and_of_the_first():
    algorithm = make_algorithm(recipe("kl.coef=0.1", "policy_loss.importance_cap=2"))
    policy = small_policy("qwen3")
    learner = make_learner(policy, algorithm, lr=1e-2)
    before = learner.score(make_groups())
    step(learner, algorithm)
    after = learner.score(make_groups())
    for old, new in zip((e for g in before for e in g), (e for g in after for e in g), strict=True):
        old_scores, new_scores = old.samples[0].scores, new.samples[0].scores
        assert old_scores.logprobs == pytest.approx(old_scores.ref_logprobs, abs=1e-6)
        assert new_scores.ref_logprobs == old_scores.ref_logprobs
        assert new_scores.logprobs != pytest.approx(old_scores.logprobs, abs=1e-3)
        now = action_logprobs(policy.model, [new.samples[0].sample], temperature=TEMPERATURE)
        assert new_scores.logprobs == pytest.approx(now.logprobs_A.tolist(), abs=1e-5)


def test_tokens_of_older_weights_are_weighed_and_compared_with_the_present_ones():
    # The engine's log-probabilities are random numbers here, so as if of very old weights.
    algorithm = make_algorithm(recipe("policy_loss.importance_cap=1.5"))
    policy = small_policy("qwen3")
    samples = [s for group in make_groups() for e in group.episodes for s in e.samples]
    now_A = action_logprobs(policy.model, samples, temperature=TEMPERATURE).logprobs_A
    engine = [lp for s in samples for lp, mask in zip(s.logprobs, s.loss_mask, strict=True) if mask]
    weights_A = (now_A.detach() - torch.tensor(engine)).exp().clamp(max=1.5)
    metrics = step(make_learner(policy, algorithm), algorithm)
    assert metrics["train/importance_mean"] == pytest.approx(float(weights_A.mean()), rel=1e-4)
    assert 0 < metrics["train/importance_capped"] < 1
    # Ratios are those to the weights before the update: 1 in the first, so that nothing is clipped.
    assert metrics["train/clip_fraction"] == 0
    assert metrics["train/kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["train/logprob_diff"] > 1


def test_a_lora_policy_is_its_own_reference():
    algorithm = make_algorithm(recipe("kl.coef=0.1"))

    def make_lora_learner() -> Learner:
        policy = small_policy("qwen3")
        add_lora(policy.model, rank=4, alpha=8, seed=0)
        return make_learner(policy, algorithm, lr=1e-2)

    def reference_of(learner: Learner) -> list[tuple[float, ...] | None]:
        scored = learner.score(make_groups())
        return [item.scores.ref_logprobs for group in scored for e in group for item in e.samples]

    learner = make_lora_learner()
    first = reference_of(learner)
    assert step(learner, algorithm)["train/grad_norm"] > 0
    assert reference_of(learner) == first
    assert learner.state()["reference"] == {}
    other = make_lora_learner()
    step(other, algorithm)  # its adapter is no longer fresh when the state is loaded
    other.load_state(learner.state())
    assert reference_of(other) == first


def test_an_algorithm_that_needs_no_scores_gets_none():
    algorithm = make_algorithm(recipe())
    scored = make_learner(small_policy("qwen3"), algorithm).score(make_groups())
    assert {item.scores for group in scored for e in group for item in e.samples} == {
        type(scored[0][0].samples[0].scores)()
    }


def test_values_are_read_before_their_tokens_and_see_nothing_later():
    policy = small_policy("qwen3")
    critic = Critic(policy.model, trunk="own")
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
    sample = make_groups()[0].episodes[2].samples[0]
    values = critic.values([sample])
    assert len(values) == sample.num_action_tokens
    last = max(place for place, mask in enumerate(sample.loss_mask) if mask)
    changed = Sample(
        (*sample.token_ids[:last], 3, *sample.token_ids[last + 1 :]),
        sample.loss_mask,
        sample.logprobs,
        sample.rewards,
        sample.segments,
        0,
    )
    assert critic.values([changed]).tolist() == pytest.approx(values.tolist(), abs=1e-5)
    # The value after a prefix is the value of the action token that follows it.
    first = sample.loss_mask.index(1)
    final = critic.final_values([list(sample.token_ids[:first]), list(sample.token_ids[:last])])
    assert final.tolist() == pytest.approx([values[0].item(), values[-1].item()], abs=1e-5)


def test_a_new_critic_says_zero_and_learns_the_returns():
    algorithm = make_algorithm(
        recipe("algorithm.type=ppo", "algorithm.critic_lr=3e-3", "algorithm.value_clip=0")
    )
    learner = make_learner(small_policy("qwen3"), algorithm, lr=1e-9)
    first = step(learner, algorithm)
    assert first["train/value_mean"] == 0.0
    for _ in range(60):
        last = step(learner, algorithm)
    assert last["train/value_loss"] < 0.2 * first["train/value_loss"]
    assert last["train/explained_variance"] > 0.8


@pytest.mark.parametrize("critic", ["own", "shared"])
def test_in_its_warm_up_the_critic_alone_learns(critic: str):
    algorithm = make_algorithm(
        recipe(
            "algorithm.type=ppo", f"algorithm.critic={critic}", "algorithm.critic_warmup_steps=2"
        )
    )
    policy = small_policy("qwen3")
    learner = make_learner(policy, algorithm, lr=1e-3)
    before = [weight.detach().clone() for weight in policy.model.parameters()]

    def is_unchanged() -> bool:
        pairs = zip(before, policy.model.parameters(), strict=True)
        return all(torch.equal(old, new) for old, new in pairs)

    for number in (1, 2):
        assert step(learner, algorithm, number=number)["train/critic_grad_norm"] > 0
        assert is_unchanged()
    assert learner._critic is not None and learner._critic.head.weight.any()
    step(learner, algorithm, number=3)
    assert not is_unchanged()


def test_kinds_of_tokens_that_are_not_trained_on_still_teach_the_critic():
    def first_step(weight: float) -> tuple[float, float]:
        """Return the norms of the critic's and the policy's gradients, with this weight."""
        algorithm = make_algorithm(recipe("algorithm.type=ppo", "algorithm.value_clip=0"))
        learner = Learner(
            small_policy("qwen3"),
            TrainingConfig(max_grad_norm=1e9),
            temperature=TEMPERATURE,
            needs=algorithm.needs,
            aggregation=algorithm.aggregation,
            kind_weights=dict.fromkeys(SegmentKind, weight),
        )
        metrics = step(learner, algorithm)
        return metrics["train/critic_grad_norm"], metrics["train/grad_norm"]

    trained, muted = first_step(1.0), first_step(0.0)
    assert trained[0] > 0 and muted[0] == trained[0]
    assert trained[1] > 0 and muted[1] == 0.0


def test_an_own_critic_leaves_the_policy_alone_and_a_shared_one_does_not():
    norms = {}
    for critic in ("own", "shared"):
        overrides = ["algorithm.type=ppo", f"algorithm.critic={critic}", "algorithm.value_clip=0"]
        algorithm, policy = make_algorithm(recipe(*overrides)), small_policy("qwen3")
        learner = make_learner(policy, algorithm)
        assert learner._critic is not None
        torch.nn.init.constant_(learner._critic.head.weight, 1.0)
        norms[critic] = step(learner, algorithm)["train/grad_norm"]
        trained = {id(weight) for weight in learner._critic.parameters()}
        assert not trained & {id(weight) for weight in policy.model.parameters()}
        assert len(trained) == (2 if critic == "shared" else len(trained))
    assert norms["shared"] > 1.5 * norms["own"]


@pytest.mark.parametrize("reason", [r for r in StopReason if not r.is_failure])
def test_only_episodes_that_a_limit_on_length_cut_are_bootstrapped(reason: StopReason):
    overrides = ["algorithm.type=ppo", "credit.truncated=bootstrap"]
    learner = make_learner(small_policy("qwen3"), make_algorithm(recipe(*overrides)))
    assert learner._critic is not None
    torch.nn.init.constant_(learner._critic.head.weight, 0.1)
    episode = make_episode(1, num_rounds=2, stop_reason=reason)
    ((scored,),) = learner.score([Group(episode.task, (episode,))])
    is_cut = reason in (StopReason.MAX_ROUNDS, StopReason.MAX_TOKENS)
    assert (scored.final_value != 0.0) == is_cut


def test_an_episode_is_over_where_the_context_of_the_model_ends():
    overrides = ["algorithm.type=ppo", "credit.truncated=bootstrap"]
    policy = small_policy("qwen3")
    learner = make_learner(policy, make_algorithm(recipe(*overrides)))
    assert learner._critic is not None
    torch.nn.init.constant_(learner._critic.head.weight, 0.1)
    episode = make_episode(1, num_rounds=2, stop_reason=StopReason.MAX_TOKENS)
    ids = list(episode.samples[0].token_ids)
    ids += policy.renderer.turn(episode.rounds[-1].observation, reply_ids=ids)
    for room, is_bootstrapped in ((1, True), (0, False)):
        policy.model.config.max_position_embeddings = len(ids) + room
        ((scored,),) = learner.score([Group(episode.task, (episode,))])
        assert (scored.final_value != 0.0) == is_bootstrapped


def test_the_value_at_a_cut_is_that_before_the_reply_that_would_have_come():
    overrides = ["algorithm.type=ppo", "credit.truncated=bootstrap"]
    policy = small_policy("qwen3")
    learner = make_learner(policy, make_algorithm(recipe(*overrides)), tokens_per_batch=64)
    critic = learner._critic
    assert critic is not None
    torch.nn.init.constant_(critic.head.weight, 0.1)
    scored = [e for group in learner.score(make_groups()) for e in group]
    cut = [e for e in scored if e.episode.stop_reason is StopReason.MAX_ROUNDS]
    assert len(cut) == 4
    for item in cut:
        ids = list(item.episode.samples[0].token_ids)
        ids += policy.renderer.turn(item.episode.rounds[-1].observation, reply_ids=ids)
        assert item.final_value == pytest.approx(critic.final_values([ids]).item(), abs=1e-5)
