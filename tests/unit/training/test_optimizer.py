"""The optimiser: rates by hand, float32 masters of bfloat16 weights, and bad gradients."""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch import Tensor, nn

from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.training.learner.optimizer import MasterAdamW, Schedule, learning_rate
from agentgym_rl.types import Sample
from chat_families import small_model

NO_CLIP = 1e9


def rates(schedule: Schedule, updates: int, **settings: float) -> list[float]:
    return [
        learning_rate(update, peak=8.0, schedule=schedule, **settings)
        for update in range(1, updates + 1)
    ]


def test_a_constant_rate_warms_up_and_stays():
    assert rates("constant", 6, num_warmup=4) == [2.0, 4.0, 6.0, 8.0, 8.0, 8.0]
    assert rates("constant", 2) == [8.0, 8.0]


def test_a_linear_rate_falls_to_zero_at_the_last_update_and_stays():
    # From 8 at update 2 to 0 at update 6, by 8 / 4 each.
    found = rates("linear", 8, num_warmup=2, num_updates=6)
    assert found == pytest.approx([4.0, 8.0, 6.0, 4.0, 2.0, 0.0, 0.0, 0.0])
    assert rates("linear", 4, num_updates=4) == pytest.approx([6.0, 4.0, 2.0, 0.0])


def test_a_cosine_rate_falls_slowly_fast_and_slowly():
    # Half a cosine from 8 to 0: 8 * (1 + cos(pi * k / 4)) / 2.
    found = rates("cosine", 6, num_warmup=1, num_updates=5)
    tilt = 4 * math.sqrt(0.5)
    assert found == pytest.approx([8.0, 4 + tilt, 4.0, 4 - tilt, 0.0, 0.0])


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_without_room_for_it_is_refused(schedule: Schedule):
    with pytest.raises(ValueError, match=r"needs more updates \(3\) than its warm-up \(3\)"):
        learning_rate(4, peak=1.0, schedule=schedule, num_warmup=3, num_updates=3)


def test_impossible_updates_are_refused():
    with pytest.raises(ValueError, match="counted from 1, got 0"):
        learning_rate(0, peak=1.0)


def set_gradients(weights: list[nn.Parameter], *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for weight in weights:
        weight.grad = torch.randn(weight.shape, generator=generator).to(weight.dtype)


def make_weights(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(7)
    return [
        nn.Parameter(torch.randn(shape, generator=generator).bfloat16().to(dtype))
        for shape in ((4, 6), (6,), (3, 4))
    ]


def train(optimizer: MasterAdamW, weights: list[nn.Parameter], seeds: range) -> None:
    for seed in seeds:
        set_gradients(weights, seed=seed)
        optimizer.collect_gradients()
        optimizer.step(lr=1e-3, max_grad_norm=0.5)


def test_in_float32_it_is_bitwise_torchs_adamw():
    ours, theirs = make_weights(), make_weights()
    train(MasterAdamW(ours, weight_decay=0.1), ours, range(5))
    adamw = torch.optim.AdamW(
        [
            {"params": [w for w in theirs if w.ndim == 2], "weight_decay": 0.1},
            {"params": [w for w in theirs if w.ndim == 1], "weight_decay": 0.0},
        ],
        lr=1e-3,
    )
    for seed in range(5):
        set_gradients(theirs, seed=seed)
        torch.nn.utils.clip_grad_norm_(theirs, 0.5)
        adamw.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_masters_follow_float32_training_where_bfloat16_would_stand_still():
    # A bfloat16 just below 1 has steps of 2**-8, a hundred times an update of 4e-5.
    weights = [nn.Parameter(torch.ones(2, 2, dtype=torch.bfloat16))]
    optimizer = MasterAdamW(weights, weight_decay=0.0)
    seen: list[float] = []
    for _ in range(200):
        weights[0].grad = torch.ones_like(weights[0])
        optimizer.collect_gradients()
        optimizer.step(lr=4e-5, max_grad_norm=NO_CLIP)
        seen.append(float(weights[0][0, 0].detach()))
    assert seen[0] == 1.0
    assert seen[-1] == pytest.approx(1.0 - 200 * 4e-5, abs=2**-9)
    assert weights[0].dtype == torch.bfloat16


def test_the_gradients_of_many_passes_are_summed_in_float32():
    weights = [nn.Parameter(torch.zeros(1, 1, dtype=torch.bfloat16))]
    optimizer = MasterAdamW(weights, weight_decay=0.0)
    for _ in range(1000):
        weights[0].grad = torch.full_like(weights[0], 1.0)
        optimizer.collect_gradients()
        assert weights[0].grad is None
    # In bfloat16 the sum would stop at 256.
    assert optimizer.step(lr=0.0, max_grad_norm=NO_CLIP).grad_norm == 1000.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(dtype: torch.dtype, bad: float):
    weights, others = make_weights(dtype), make_weights(dtype)
    optimizer, fresh = (MasterAdamW(w, weight_decay=0.1) for w in (weights, others))
    set_gradients(weights, seed=0)
    weights[1].grad[3] = bad
    optimizer.collect_gradients()
    result = optimizer.step(lr=1e-2, max_grad_norm=1.0)
    assert not result.is_applied and not math.isfinite(result.grad_norm)
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))
    # The next update is the first.
    train(optimizer, weights, range(1, 2))
    train(fresh, others, range(1, 2))
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


def test_gradients_are_clipped_and_their_norm_is_told():
    weights = [nn.Parameter(torch.zeros(2, 1)), nn.Parameter(torch.zeros(1))]
    optimizer = MasterAdamW(weights, weight_decay=0.0)
    weights[0].grad, weights[1].grad = torch.tensor([[2.0], [3.0]]), torch.tensor([6.0])
    assert optimizer.step(lr=0.0, max_grad_norm=1.4).grad_norm == 7.0
    # After one update the first moment is a tenth of the gradient, here of a fifth of it.
    assert optimizer.state[weights[1]]["exp_avg"].item() == pytest.approx(6.0 / 5 / 10, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_optimiser_goes_on_bitwise(dtype: torch.dtype):
    weights = make_weights(dtype)
    optimizer = MasterAdamW(weights, weight_decay=0.1)
    train(optimizer, weights, range(3))
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "weights": weights}, file)
    train(optimizer, weights, range(3, 6))

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    restored_weights = [nn.Parameter(weight.detach()) for weight in saved["weights"]]
    restored = MasterAdamW(restored_weights, weight_decay=0.1)
    restored.load_state_dict(saved["optimizer"])
    train(restored, restored_weights, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(weights, restored_weights, strict=True))


def test_a_checkpoint_of_another_precision_is_refused():
    state = MasterAdamW(make_weights(torch.bfloat16), weight_decay=0.0).state_dict()
    with pytest.raises(ValueError, match="has 3 master weights where the model needs 0"):
        MasterAdamW(make_weights(), weight_decay=0.0).load_state_dict(state)


def test_frozen_weights_are_left_alone_and_all_frozen_is_refused():
    weights = make_weights()
    weights[0].requires_grad_(False)
    before = weights[0].detach().clone()
    optimizer = MasterAdamW(weights, weight_decay=0.1)
    train(optimizer, weights[1:], range(2))
    assert torch.equal(weights[0], before)
    for weight in weights:
        weight.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"):
        MasterAdamW(weights, weight_decay=0.1)


def losses_of_training(dtype: torch.dtype) -> list[Tensor]:
    """Return the loss before each of eight updates that teach a model three sequences."""
    model = small_model("qwen3", vocab_size=64)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    optimizer = MasterAdamW(model.parameters(), weight_decay=0.01)
    samples = [
        Sample(tuple((k * n) % 61 for n in range(20)), (0,) * 4 + (1,) * 16, (), (), (), 0)
        for k in (3, 7, 11)
    ]
    losses = []
    for update in range(1, 9):
        for sample in samples:
            loss = -action_logprobs(model, [sample], temperature=1.0).logprobs_A.mean() / 3
            loss.backward()
            optimizer.collect_gradients()
            losses.append(loss.detach())
        lr = learning_rate(update, peak=1e-2, schedule="cosine", num_warmup=2, num_updates=8)
        assert optimizer.step(lr=lr, max_grad_norm=1.0).is_applied
    return losses


def test_bfloat16_with_masters_learns_as_float32_does():
    exact, rounded = (torch.stack(losses_of_training(d)) for d in (torch.float32, torch.bfloat16))
    start, end = exact[:3].sum(), exact[-3:].sum()
    assert end < 0.6 * start
    assert rounded[:3].sum() == pytest.approx(float(start), rel=0.02)
    assert rounded[-3:].sum() == pytest.approx(float(end), rel=0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_seed_gives_bitwise_the_same_losses(dtype: torch.dtype):
    first, second = losses_of_training(dtype), losses_of_training(dtype)
    assert torch.equal(torch.stack(first), torch.stack(second))


def test_a_checkpoint_of_a_gpu_goes_on_as_the_device_at_hand_does():
    weights = make_weights(torch.bfloat16)
    optimizer = MasterAdamW(weights, weight_decay=0.0)
    train(optimizer, weights, range(2))
    state = optimizer.state_dict()
    adamw = state["adamw"]
    assert isinstance(adamw, dict)
    on_gpu = [group | {"fused": True} for group in adamw["param_groups"]]
    other = MasterAdamW(make_weights(torch.bfloat16), weight_decay=0.0)
    other.load_state_dict(state | {"adamw": adamw | {"param_groups": on_gpu}})
    assert all(group["fused"] is None for group in other._adamw.param_groups)
