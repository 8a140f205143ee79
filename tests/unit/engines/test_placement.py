"""Which engine gets which GPU, and settings of `[cluster]` that make no sense."""

from __future__ import annotations

import pytest
import torch

from agentgym_rl.config import RunConfig, parse_config
from agentgym_rl.engines.placement import engine_gpus
from agentgym_rl.errors import ConfigError

LOCAL = "cluster.type=local"


def make_config(*overrides: str) -> RunConfig:
    return parse_config({}, overrides, source="test")


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("training.shards=4", "cluster.engines=4"), [("0",), ("1",), ("2",), ("3",)]),
        (("training.shards=2", "cluster.engines=1"), [("0",)]),
        (
            ("training.shards=2", "cluster.engines=2", "cluster.shared=false"),
            [("2",), ("3",)],
        ),
        (
            ("cluster.shared=false", "engine.type=vllm", "engine.tensor_parallel_size=3"),
            [("1", "2", "3")],
        ),
        (
            (
                "training.shards=4",
                "cluster.engines=2",
                "engine.type=vllm",
                "engine.tensor_parallel_size=2",
            ),
            [("0", "1"), ("2", "3")],
        ),
    ],
)
def test_engines_use_the_learners_gpus_or_those_after_them(
    four_gpus: None, overrides: tuple[str, ...], expected: list[tuple[str, ...]]
):
    assert engine_gpus(make_config(LOCAL, *overrides)) == expected


@pytest.mark.parametrize("is_shared", [True, False])
def test_overlap_on_the_learners_gpus_is_warned_of(
    four_gpus: None, caplog: pytest.LogCaptureFixture, is_shared: bool
):
    overlap = ("rollout.overlap=true", "rollout.max_staleness=1", "policy_loss.importance_cap=2")
    engine_gpus(make_config(LOCAL, *overlap, f"cluster.shared={str(is_shared).lower()}"))
    assert ("hold each other up" in caplog.text) == is_shared


def test_gpus_have_the_names_that_this_process_was_given(
    four_gpus: None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,3")
    config = make_config(LOCAL, "cluster.engines=2", "cluster.shared=false")
    assert engine_gpus(config) == [("5",), ("3",)]


def test_too_few_gpus_are_refused_with_the_remedy(four_gpus: None):
    with pytest.raises(ConfigError, match=r"2 of the learner's GPUs; available: 1.*shared=false"):
        engine_gpus(make_config(LOCAL, "cluster.engines=2"))
    with pytest.raises(ConfigError, match="of the GPUs after the learner's; available: 0"):
        engine_gpus(make_config(LOCAL, "training.shards=4", "cluster.shared=false"))


def test_a_cpu_holds_any_number():
    assert engine_gpus(make_config(LOCAL, "cluster.engines=3", "model.device=cpu")) == [()] * 3


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (("cluster.engines=2",), "set cluster.type=local"),
        ((LOCAL, "engine.type=openai"), "engine.type=openai: set cluster.type=none"),
        (
            (LOCAL, "engine.type=vllm", "engine.url=http://10.0.0.7:8000"),
            "a server that already runs",
        ),
        (("cluster.type=kubernetes",), "local"),
    ],
)
def test_impossible_combinations_are_refused(overrides: tuple[str, ...], reason: str):
    with pytest.raises(ConfigError, match=reason):
        make_config(*overrides)
