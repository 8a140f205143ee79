"""Overrides from Python: tables and texts mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.config import load_config
from agentgym_rl.config.overrides import override_texts
from agentgym_rl.errors import ConfigError


def test_a_table_means_what_the_texts_mean():
    table = {
        "training.steps": 20,
        "training": {"lr": 1e-5},
        "env.levels": ["GoToObjS6"],
        "env": {"options": {"show_actions": True}},
        "rounds": {"type": "fixed", "rounds": 8},
        "model.path": Path("some/model"),
    }
    texts = [
        "training.steps=20",
        "training.lr=1e-5",
        "env.levels=['GoToObjS6']",
        "env.options.show_actions=true",
        "rounds.type=fixed",
        "rounds.rounds=8",
        "model.path=some/model",
    ]
    assert load_config("quickstart", table) == load_config("quickstart", texts)


def test_texts_are_kept_to_the_letter():
    odd = 'a "quoted" \\ word\nand ünïcode 🙂'
    config = load_config("quickstart", {"model.path": odd, "agent.type": "true"})
    assert (config.model.path, config.agent.type) == (odd, "true")


def test_a_dotted_key_replaces_a_table_and_a_nested_one_changes_it():
    base = ["env.options={show_actions=true}"]
    kept = load_config("quickstart", [*base, *override_texts({"env": {"options": {"b": 1}}})])
    assert dict(kept.env.options) == {"show_actions": True, "b": 1}
    new = load_config("quickstart", [*base, *override_texts({"env.options": {"b": 1}})])
    assert dict(new.env.options) == {"b": 1}
    none = load_config("quickstart", [*base, *override_texts({"env": {"options": {}}})])
    assert dict(none.env.options) == {}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training.steps": None}, "training.steps=None is a NoneType"),
        ({3: 1}, "got 3"),
        ("training.steps=3", "a list of texts such as"),
        (5, "overrides=5: write a table"),
        ([5], "a list of texts such as"),
        ({"training.stepz": 3}, "did you mean 'steps'"),
        ({"training.steps": "many"}, "training.steps"),
    ],
)
def test_mistakes_are_named(overrides: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        load_config("quickstart", overrides)
