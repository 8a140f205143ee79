"""The learner: an update does not depend on how it is split, and a bad one does no harm."""

from __future__ import annotations

import io
import logging
import math
import random

import pytest
import torch
from torch import Tensor

from agentgym_rl.config import GRPOConfig, TrainingConfig
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import Policy
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.algorithms.grpo import GRPO
from agentgym_rl.training.algorithms.online import SharedSettings
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.packing import split_by_tokens
from agentgym_rl.types import Sample
from chat_families import small_policy

TEMPERATURE = 0.8
NO_CLIP = 1e9
BETA1 = 0.9
"""Of AdamW: after one update its first moment is (1 - BETA1) times the gradient."""

grpo_loss = GRPO(GRPOConfig(), SharedSettings()).loss


def make_learner(policy: Policy, **changes: float) -> Learner:
    fields = {"lr": 1e-4, "max_grad_norm": NO_CLIP} | changes
    return Learner(policy, TrainingConfig(**fields), temperature=TEMPERATURE)


def make_item(length: int, num_actions: int, advantage: float, *, seed: int) -> TrainingSample:
    """A sequence of random tokens, of which as many random ones were sampled."""
    rng = random.Random(seed)
    actions = set(rng.sample(range(1, length), num_actions))
    mask = tuple(int(place in actions) for place in range(length))
    sample = Sample(
        token_ids=tuple(rng.randrange(400) for _ in range(length)),
        loss_mask=mask,
        logprobs=tuple(-6.0 * rng.random() * m for m in mask),
        rewards=(0.0,) * length,
        segments=(),
        version=0,
    )
    return TrainingSample(sample, (advantage,) * num_actions)


def make_items(*, seed: int = 0) -> list[TrainingSample]:
    """Samples of many lengths, none of them longer than 64 tokens, with advantages of all sorts."""
    rng = random.Random(seed)
    return [
        make_item(length, rng.randint(1, length - 1), rng.uniform(-2, 2), seed=seed * 100 + length)
        for length in (5, 60, 17, 2, 33, 64, 8, 21, 40, 12)
    ]


def sampled_now(policy: Policy, items: list[TrainingSample]) -> list[TrainingSample]:
    """The same, as if the present weights had sampled the tokens."""
    result = []
    for item in items:
        with torch.inference_mode():
            now = action_logprobs(policy.model, [item.sample], temperature=TEMPERATURE)
        logprobs = iter(now.logprobs_A.tolist())
        sample = Sample(
            token_ids=item.sample.token_ids,
            loss_mask=item.sample.loss_mask,
            logprobs=tuple(next(logprobs) if m else 0.0 for m in item.sample.loss_mask),
            rewards=item.sample.rewards,
            segments=(),
            version=0,
        )
        result.append(TrainingSample(sample, item.advantages))
    return result


def parameters(policy: Policy) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in policy.model.parameters()]


def gradient(learner: Learner, policy: Policy) -> dict[str, Tensor]:
    """Return the gradient (after clipping) of a learner's first update, by parameter."""
    state = learner._optimizer.state
    return {
        name: state[parameter]["exp_avg"] / (1 - BETA1)
        for name, parameter in policy.model.named_parameters()
    }


def largest_difference(first: list[Tensor], second: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(first, second, strict=True))


def first_update(tokens_per_batch: int) -> tuple[list[Tensor], list[Tensor], dict[str, float]]:
    """Return gradient, parameters and metrics after an update in passes of so many tokens."""
    policy = small_policy("qwen3")
    learner = make_learner(policy, tokens_per_batch=tokens_per_batch)
    metrics = learner.update(make_items(), grpo_loss).metrics()
    return list(gradient(learner, policy).values()), parameters(policy), metrics


@pytest.mark.parametrize("tokens_per_batch", [64, 65, 100, 200])
def test_an_update_does_not_depend_on_how_it_is_split_into_passes(tokens_per_batch: int):
    whole_gradient, whole_parameters, whole_metrics = first_update(10**6)
    split_gradient, split_parameters, split_metrics = first_update(tokens_per_batch)
    assert max(float(grad.abs().max()) for grad in whole_gradient) > 1e-2
    assert largest_difference(whole_gradient, split_gradient) < 1e-6
    assert largest_difference(whole_parameters, split_parameters) < 1e-6
    assert split_metrics == pytest.approx(whole_metrics, rel=1e-4)


def test_samples_are_packed_in_order_up_to_the_limit():
    items = [make_item(length, 1, 1.0, seed=length) for length in (30, 34, 1 + 1, 62, 100, 3)]
    batches = split_by_tokens(items, lambda item: item.length, max_tokens=64)
    # 30 + 34 fill a batch to the last token, 100 is alone because nothing could hold it.
    assert [[len(item.sample.token_ids) for item in batch] for batch in batches] == [
        [30, 34],
        [2, 62],
        [100],
        [3],
    ]
    assert split_by_tokens([], len, max_tokens=64) == []


def test_the_first_pass_has_the_policy_gradient():
    policy = small_policy("qwen3")
    items = sampled_now(policy, make_items())
    samples = [item.sample for item in items]
    advantages_A = torch.tensor([a for item in items for a in item.advantages])
    logprobs_A = action_logprobs(policy.model, samples, temperature=TEMPERATURE).logprobs_A
    (-advantages_A * logprobs_A).mean().backward()
    expected = {name: p.grad.clone() for name, p in policy.model.named_parameters()}
    learner = make_learner(policy)
    metrics = learner.update(items, grpo_loss).metrics()
    found = gradient(learner, policy)
    for name, grad in expected.items():
        assert (grad - found[name]).abs().max() < 1e-6, name
    norm = math.sqrt(sum(float(grad.double().pow(2).sum()) for grad in expected.values()))
    assert metrics["train/grad_norm"] == pytest.approx(norm, rel=1e-5)
    # Ratios are 1: the loss is the mean over tokens of -advantage.
    assert metrics["train/loss"] == pytest.approx(float(-advantages_A.mean()), abs=1e-5)
    assert metrics["train/logprob_diff"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["train/kl"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["train/clip_fraction"] == 0.0


def test_updates_make_good_tokens_more_likely_and_bad_ones_less():
    policy = small_policy("qwen3")
    items = sampled_now(policy, [make_item(20, 8, 1.0, seed=1), make_item(20, 8, -1.0, seed=2)])
    learner = make_learner(policy, lr=1e-3)
    for _ in range(5):
        learner.update(items, grpo_loss)
    good, bad = sampled_now(policy, items)
    assert sum(good.sample.logprobs) > sum(items[0].sample.logprobs) + 0.1
    assert sum(bad.sample.logprobs) < sum(items[1].sample.logprobs) - 0.1


def test_a_sample_without_action_tokens_changes_nothing():
    silent = TrainingSample(Sample((1, 2, 3), (0, 0, 0), (0.0,) * 3, (0.0,) * 3, (), 0), ())
    with_it, without = small_policy("qwen3"), small_policy("qwen3")
    # Alone in its pass at the end, and in company at the start.
    for items in ([*make_items(), make_item(64, 5, 1.0, seed=9), silent], [silent, *make_items()]):
        make_learner(with_it, tokens_per_batch=64).update(items, grpo_loss)
        spoken = [item for item in items if item is not silent]
        make_learner(without, tokens_per_batch=64).update(spoken, grpo_loss)
        assert largest_difference(parameters(with_it), parameters(without)) < 1e-6


def test_an_update_without_action_tokens_is_refused():
    learner = make_learner(small_policy("qwen3"))
    silent = TrainingSample(Sample((1, 2), (0, 0), (0.0, 0.0), (0.0, 0.0), (), 0), ())
    for items in ([], [silent]):
        with pytest.raises(ValueError, match="needs at least one action token"):
            learner.update(items, grpo_loss)


@pytest.mark.parametrize("advantage", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_skipped_and_counted(
    advantage: float, caplog: pytest.LogCaptureFixture
):
    policy, items = small_policy("qwen3"), make_items()
    learner = make_learner(policy, warmup_steps=4)
    before = parameters(policy)
    with caplog.at_level(logging.WARNING):
        metrics = learner.update([*items, make_item(9, 3, advantage, seed=5)], grpo_loss).metrics()
    assert metrics["train/updates_skipped"] == 1.0
    assert metrics["train/grad_norm"] == 0.0
    assert "update 1 has a gradient of norm" in caplog.text
    assert largest_difference(before, parameters(policy)) == 0.0
    # Nothing of it is left: the next update is the first for the optimiser.
    after = learner.update(items, grpo_loss).metrics()
    fresh = small_policy("qwen3")
    make_learner(fresh, lr=1e-4 / 2).update(items, grpo_loss)
    assert after["train/updates_skipped"] == 0.0
    assert largest_difference(parameters(policy), parameters(fresh)) < 1e-9


def test_gradients_are_scaled_down_to_the_largest_norm():
    policy = small_policy("qwen3")
    learner = make_learner(policy, max_grad_norm=0.01)
    metrics = learner.update(make_items(), grpo_loss).metrics()
    assert metrics["train/grad_norm"] > 0.1
    grads = gradient(learner, policy).values()
    norm = math.sqrt(sum(float(grad.double().pow(2).sum()) for grad in grads))
    assert norm == pytest.approx(0.01, rel=1e-3)


def test_learning_rate_rises_linearly_and_then_stays():
    learner = make_learner(small_policy("qwen3"), lr=1e-3, warmup_steps=4)
    items = make_items()[:2]
    rates = [learner.update(items, grpo_loss).lr for _ in range(6)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3])
    assert {group["lr"] for group in learner._optimizer._adamw.param_groups} == {1e-3}


def test_without_warm_up_the_first_update_has_the_full_rate():
    learner = make_learner(small_policy("qwen3"), lr=1e-3)
    assert learner.update(make_items()[:2], grpo_loss).lr == 1e-3


def test_weight_decay_shrinks_matrices_and_leaves_vectors():
    # Without advantages the gradient is zero, and a step is the decay alone: 1 - 0.1 * 0.5.
    policy = small_policy("qwen3")
    before = parameters(policy)
    learner = make_learner(policy, lr=0.1, weight_decay=0.5)
    learner.update([make_item(9, 3, 0.0, seed=1)], grpo_loss)
    for old, new in zip(before, parameters(policy), strict=True):
        factor = 0.95 if old.ndim >= 2 else 1.0
        assert torch.allclose(new, old * factor, atol=1e-7)


def test_a_restored_learner_goes_on_bitwise_as_if_never_stopped():
    policy, items = small_policy("qwen3"), make_items()
    learner = make_learner(policy, warmup_steps=5)
    for _ in range(2):
        learner.update(items, grpo_loss)
    checkpoint = io.BytesIO()
    torch.save({"learner": learner.state(), "weights": policy.model.state_dict()}, checkpoint)
    expected = [learner.update(items, grpo_loss) for _ in range(3)]

    checkpoint.seek(0)
    saved = torch.load(checkpoint, weights_only=True)
    restored_policy = small_policy("qwen3")
    restored_policy.model.load_state_dict(saved["weights"])
    restored = make_learner(restored_policy, warmup_steps=5)
    restored.load_state(saved["learner"])
    assert [restored.update(items, grpo_loss) for _ in range(3)] == expected
    assert largest_difference(parameters(policy), parameters(restored_policy)) == 0.0
