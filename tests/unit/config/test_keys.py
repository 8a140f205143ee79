"""A key that is not known is looked up in all sections."""

from __future__ import annotations

import pytest

from agentgym_rl.config import load_config
from agentgym_rl.config.keys import setting_keys
from agentgym_rl.errors import ConfigError


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("training.temperature", "'rollout.temperature' or 'eval.temperature'"),
        ("lr", "'training.lr' or 'warm_start.lr'"),
        ("trainin.lr", "'training'"),
        ("training.max_tokens_per_rond", "'rollout.max_tokens_per_round'"),
        ("training.stepps", "'steps'"),
        ("algorithm.clip_high", "'policy_loss.clip_high'"),
    ],
)
def test_a_misplaced_or_misspelt_key_names_the_right_one(key: str, meant: str):
    with pytest.raises(ConfigError) as refused:
        load_config("quickstart", [f"{key}=1"])
    assert f"(did you mean {meant}?)" in str(refused.value)


def test_a_key_that_is_like_none_suggests_none():
    with pytest.raises(ConfigError) as refused:
        load_config("quickstart", ["zzz.qqq=1"])
    assert "did you mean" not in str(refused.value)


def test_keys_of_every_type_of_a_section_are_known():
    assert {
        "algorithm.gae_lambda",
        "engine.url",
        "rounds.steps_per_stage",
        "model.tiny.num_layers",
    } <= set(setting_keys())
