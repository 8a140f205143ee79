"""Sections that name classes of the user's own, and settings of older recipes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import pytest

from agentgym_rl.agents.formats import make_format
from agentgym_rl.config import GRPOConfig, RunConfig, dump_config, load_config, parse_config
from agentgym_rl.config.algorithms import BUILTIN_ALGORITHMS
from agentgym_rl.config.recipes import packaged_recipes, read_table
from agentgym_rl.config.removed import REMOVED, Removed, without_removed
from agentgym_rl.errors import ConfigError
from agentgym_rl.lookup import load_class
from agentgym_rl.training.algorithms.base import Algorithm
from agentgym_rl.training.make import make_algorithm
from agentgym_rl.training.rounds import make_scheduler
from fakes import CountingEnv
from own_classes import Inheriting, LinearConfig, Plain, Scaled, ScaledConfig, Shouting

SCALED = {"algorithm": {"type": "own_classes:Scaled", "scale": 0.5, "group_size": 4}}


def parse(*overrides: str, table: Mapping[str, object] | None = None) -> RunConfig:
    return parse_config(table or {}, overrides, source="test.toml")


def complaint(*overrides: str, table: Mapping[str, object] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(*overrides, table=table)
    return str(caught.value)


def test_the_settings_of_an_own_algorithm_are_validated_by_its_own_class():
    config = parse(table=SCALED)
    assert isinstance(config.algorithm, ScaledConfig)
    assert (config.algorithm.scale, config.algorithm.group_size) == (0.5, 4)
    assert config.algorithm.type == "own_classes:Scaled"
    algorithm = make_algorithm(config)
    assert isinstance(algorithm, Scaled) and algorithm.config == config.algorithm


def test_a_recipe_with_own_classes_survives_being_written_and_read():
    config = parse("rounds.type=own_classes:Linear", "rounds.steps=7", table=SCALED)
    again = parse_config(tomllib.loads(dump_config(config)), source="config.toml")
    assert again == config
    assert config.model_dump()["rounds"]["steps"] == 7


def test_an_own_class_without_settings_takes_those_of_its_base():
    config = parse("algorithm.type=own_classes:Inheriting", "algorithm.level=round")
    assert isinstance(config.algorithm, GRPOConfig) and config.algorithm.level == "round"
    assert isinstance(make_algorithm(config), Inheriting)
    plain = parse("algorithm.type=own_classes:Plain", "algorithm.group_size=3")
    assert isinstance(make_algorithm(plain), Plain)


def test_a_recipe_keeps_what_the_own_class_knows_when_an_override_names_it():
    table = {"algorithm": {"type": "grpo", "group_size": 6, "normalize_std": False}}
    config = parse("algorithm.type=own_classes:Plain", table=table)
    assert config.algorithm.model_dump() == {"type": "own_classes:Plain", "group_size": 6}


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("algorithm.scal=2", "algorithm.scal: unknown key (did you mean 'scale'?); legal here: "),
        ("algorithm.scale=much", "algorithm.scale: "),
        ("algorithm.group_size=1", "algorithm.group_size: "),
    ],
)
def test_mistakes_in_own_settings_are_named_as_any_other(override: str, told: str):
    assert f"test.toml: {told}" in complaint(override, table=SCALED)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("own_classes:Scalled", "has no 'Scalled' (did you mean 'Scaled'?)"),
        ("own_clases:Scaled", "there is no module 'own_clases'; check the spelling"),
        ("own_classes:", 'is not of the form "module:Class"'),
        ("fakes:CountingEnv", "has no settings: give the class a `config_class`"),
    ],
)
@pytest.mark.parametrize("section", ["algorithm", "rounds", "engine"])
def test_own_classes_that_cannot_be_used_are_refused(section: str, name: str, told: str):
    message = complaint(f"{section}.type={name}")
    assert f"{section}.type={name!r}" in message and told in message
    assert told in complaint(table={section: {"type": name}})


def test_an_own_class_must_fit_its_section_and_be_made_as_the_built_in_ones():
    assert "has no settings" in complaint("algorithm.type=own_classes:Linear")
    with pytest.raises(ValueError, match="is made with GRPOConfig and SharedSettings"):
        make_algorithm(parse("algorithm.type=own_classes:OtherMaker"))


def test_a_class_that_a_program_hands_over_is_not_imported():
    class Local(Scaled):
        """No import finds it."""

    name = "<object>:Local"
    overrides = [f"algorithm.type={name}", "algorithm.scale=3"]
    config = parse_config({}, overrides, source="x", classes={name: Local})
    assert isinstance(config.algorithm, ScaledConfig) and config.algorithm.scale == 3
    assert isinstance(make_algorithm(config, Local), Local)
    table = tomllib.loads(dump_config(config))
    assert parse_config(table, source="x", classes={name: Local}) == config
    # Without it the section is data, so that whoever resumes the run can be told what is missing.
    assert parse_config(table, source="x").algorithm.type == name


def test_own_schedules_and_formats_are_made():
    config = parse("rounds.type=own_classes:Linear", "rounds.rounds=[2, 6]", "rounds.steps=5")
    assert isinstance(config.rounds, LinearConfig) and config.rounds.longest == 6
    scheduler = make_scheduler(config.rounds)
    assert [scheduler.max_rounds(step) for step in range(1, 8)] == [2, 3, 4, 5, 6, 6, 6]
    assert isinstance(make_format("own_classes:Shouting", CountingEnv.spec), Shouting)
    with pytest.raises(ValueError, match="not a subclass of ActionFormat"):
        make_format("own_classes:Linear", CountingEnv.spec)


@pytest.mark.parametrize("name", list(BUILTIN_ALGORITHMS))
def test_every_built_in_algorithm_and_its_settings_name_each_other(name: str):
    settings = BUILTIN_ALGORITHMS[name]
    target = getattr(settings, "implementation", "")
    if target:
        found = load_class(target, Algorithm, setting="algorithm.type")
        assert found.config_class is settings


def test_every_recipe_uses_present_settings():
    for name, file in packaged_recipes().items():
        table = read_table(file)
        assert without_removed(table, source=name) == table
        load_config(name, ["algorithm.data=x"] if "dpo" in name else [])


@pytest.mark.parametrize(("key", "removed"), REMOVED.items())
def test_a_removed_setting_is_explained_and_accepted_at_what_holds_now(key: str, removed: Removed):
    section, _, name = key.rpartition(".")
    table: dict[str, object] = {name: "something else"}
    for part in reversed(section.split(".")):
        table = {part: table}
    message = complaint(table=table)
    assert f"{key}=something else is gone: {removed.now}" in message
    for value in removed.accepted:
        assert parse(f"{key}={value if not isinstance(value, bool) else str(value).lower()}") == (
            parse()
        )
    assert parse_config(table, source="a run", is_data=True) == parse()


def test_a_type_that_is_gone_is_explained():
    assert "rounds.type=linear is gone: use" in complaint("rounds.type=linear")
