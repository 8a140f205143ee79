"""Tokens a second and the part of the GPU's peak, with a clock set by hand."""

from __future__ import annotations

import time

import pytest

from agentgym_rl.models.flops import update_flops
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.learner import speed
from agentgym_rl.types import Sample
from chat_families import small_model


def sample(length: int, num_actions: int) -> TrainingSample:
    mask = (0,) * (length - num_actions) + (1,) * num_actions
    zeros = (0.0,) * length
    own = Sample((1,) * length, mask, logprobs=zeros, rewards=zeros, segments=(), version=0)
    return TrainingSample(own, (1.0,) * num_actions)


def test_rates_are_of_all_updates_since_they_were_taken(monkeypatch: pytest.MonkeyPatch):
    model = small_model("qwen2", vocab_size=96)
    flops = update_flops(model)
    assert flops is not None
    monkeypatch.setattr(speed, "peak_flops_of", lambda _: 1e9)
    rates = speed.Speed(model)
    assert rates.take() == {}
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    rates.add([[sample(30, 10)], [sample(20, 5)]], started=8.0)
    rates.add([[sample(50, 1)]], started=9.5)
    work = flops.total([30, 20], num_actions=15) + flops.total([50], num_actions=1)
    # 100 tokens in 2.5 seconds.
    found = rates.take()
    assert found == {
        "train/tokens_per_s": 40.0,
        "train/mfu": pytest.approx(work / 2.5 / 1e9),
    }
    assert rates.take() == {}


def test_where_the_peak_is_not_known_there_is_no_mfu():
    rates = speed.Speed(small_model("qwen2", vocab_size=96))
    rates.add([[sample(30, 10)]], started=time.monotonic() - 1.0)
    assert set(rates.take()) == {"train/tokens_per_s"}
