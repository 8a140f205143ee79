"""Settings under the names they had before are still read."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.config import renamed
from agentgym_rl.config.load import load_config
from agentgym_rl.config.renamed import with_present_keys
from agentgym_rl.errors import ConfigError

RECIPE = """
[agent.reflection]
attempts = 3
[rollout]
max_attempts = 1
"""


def write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "recipe.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def test_a_recipe_with_old_names_loads(tmp_path: Path):
    config = load_config(write(tmp_path, RECIPE))
    assert (config.agent.reflection.tries, config.rollout.max_restarts) == (3, 0)


@pytest.mark.parametrize("key", ["agent.reflection.tries", "agent.reflection.attempts"])
def test_an_override_wins_over_the_recipe_by_either_name(tmp_path: Path, key: str):
    config = load_config(write(tmp_path, RECIPE), [f"{key}=2", "rollout.max_attempts=4"])
    assert (config.agent.reflection.tries, config.rollout.max_restarts) == (2, 3)


def test_old_values_are_checked_like_present_ones(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"rollout\.max_restarts.*-1"):
        load_config(write(tmp_path, RECIPE), ["rollout.max_attempts=0"])
    with pytest.raises(ConfigError, match=r"rollout\.max_restarts.*'many'"):
        load_config(write(tmp_path, RECIPE), ["rollout.max_attempts=many"])


def test_both_names_in_one_recipe_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"agent\.reflection\.attempts is now called agent"):
        load_config(write(tmp_path, RECIPE.replace("attempts = 3", "attempts = 3\ntries = 3")))


def test_both_names_as_overrides_are_refused(tmp_path: Path):
    both = ["rollout.max_attempts=4", "rollout.max_restarts=3"]
    told = r"rollout\.max_attempts is now called rollout\.max_restarts, and both are set"
    with pytest.raises(ConfigError, match=told):
        load_config(write(tmp_path, ""), both)


def test_an_old_name_is_reported_once_with_what_to_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    renamed._report.cache_clear()
    for _ in range(2):
        load_config(write(tmp_path, RECIPE), ["rollout.max_attempts=4"])
    told = "rollout.max_attempts is now called rollout.max_restarts: write rollout.max_restarts=3"
    assert caplog.messages.count(told) == 1


def test_a_flat_record_of_settings_gets_present_names():
    old = {"rollout.max_attempts": 3, "agent.reflection.attempts": 2, "seed": 0}
    now = {"rollout.max_restarts": 2, "agent.reflection.tries": 2, "seed": 0}
    assert with_present_keys(old) == now
