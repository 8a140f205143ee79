"""Where a model computes."""

from __future__ import annotations

import pytest
import torch

from agentgym_rl.config import ModelConfig, TinyModelConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.device import choose_device, on_device
from agentgym_rl.models.loading import load_policy


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch):
    for is_there, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda is_there=is_there: is_there)
        assert choose_device("auto") == torch.device(expected)
        assert choose_device("cpu") == torch.device("cpu")


def test_a_missing_gpu_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"model\.device=cuda.*set model\.device=cpu"):
        choose_device("cuda")
    config = ModelConfig(device="cuda", tiny=TinyModelConfig(hidden_size=32))
    with pytest.raises(ConfigError, match=r"model\.device=cuda"):
        load_policy(config, seed=0, texts=lambda: ["go to the red ball"])


def test_numbers_arrive_in_the_type_that_is_asked_for():
    cpu = torch.device("cpu")
    assert on_device([1, 2], device=cpu, dtype=torch.int32).tolist() == [1, 2]
    halves = on_device(torch.tensor([0.5], dtype=torch.float64), device=cpu, dtype=torch.float32)
    assert halves.dtype == torch.float32 and halves.tolist() == [0.5]
    assert on_device([], device=cpu, dtype=torch.long).dtype == torch.long
