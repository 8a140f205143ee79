"""Several environments in a recipe: tables, labels, what differs for one, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from agentgym_rl.config import (
    EnvTableConfig,
    FixedRoundsConfig,
    RunConfig,
    StepRoundsConfig,
    dump_config,
    load_config,
    parse_config,
)
from agentgym_rl.errors import ConfigError

TWO = """
[envs.babyai]
levels = ["GoTo"]
weight = 2

[envs.hard]
name = "textcraft"
rounds = { rounds = 30 }
agent = { format = "tags", memory = { type = "window" } }
rollout = { max_tokens = 8192 }

[agent]
include_instructions = false
memory = { rounds = 4 }

[rollout]
temperature = 0.7
max_tokens = 2048

[rounds]
type = "scaling_inter_stepwise"
rounds = [5, 10]
steps_per_stage = 3
"""


def parse(*overrides: str, text: str = TWO) -> RunConfig:
    return parse_config(tomllib.loads(text), overrides, source="recipe")


def refused(*overrides: str, text: str = TWO) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(*overrides, text=text)
    return str(caught.value)


def test_each_environment_has_its_settings_over_those_of_the_run():
    babyai, hard = parse().environments.values()
    assert babyai.env.name == "babyai" and babyai.env.levels == ("GoTo",)
    assert babyai.agent.format == "react" and isinstance(babyai.rounds, StepRoundsConfig)
    assert hard.env.name == "textcraft" and hard.rounds == FixedRoundsConfig(rounds=30)
    assert hard.agent.format == "tags" and not hard.agent.include_instructions
    assert (hard.agent.memory.type, hard.agent.memory.rounds) == ("window", 4)
    assert (hard.rollout.max_tokens, hard.rollout.temperature) == (8192, 0.7)
    assert (babyai.rollout.max_tokens, parse().max_tokens) == (2048, 8192)
    assert (babyai.eval_max_rounds, hard.eval_max_rounds) == (10, 30)


def test_one_environment_is_the_run_itself():
    config = parse(text='[env]\nname = "sciworld"')
    assert dict(config.environments) == {"sciworld": config} and config.weight("sciworld") == 1


def test_a_table_made_in_python_is_named_by_its_label_too():
    config = RunConfig(envs={"babyai": EnvTableConfig(weight=2), "b": EnvTableConfig(name="web")})
    assert [of_env.env.name for of_env in config.environments.values()] == ["babyai", "web"]


def test_what_is_written_out_is_read_back():
    config = parse("envs.hard.agent.format=direct", "envs.babyai.weight=0")
    table = tomllib.loads(dump_config(config))
    assert "env" not in table and table["envs"]["hard"]["rollout"] == {"max_tokens": 8192}
    again = parse_config(table, ["rollout.max_seconds=9"], source="again")
    assert again.environments["hard"].rollout.max_seconds == 9, "only differences are kept"
    assert parse_config(table, source="again") == config
    assert "envs" not in tomllib.loads(dump_config(RunConfig()))


def test_overrides_reach_one_environment_and_may_add_another():
    config = parse(
        "envs.hard.weight=0.5", "envs.third.name=sciworld", "envs.third.options={limit = 3}",
        "envs.babyai.rounds.type=fixed",
    )  # fmt: skip
    assert config.weight("hard") == 0.5 and list(config.envs) == ["babyai", "hard", "third"]
    assert config.environments["third"].env.options == {"limit": 3}
    assert config.environments["babyai"].rounds == FixedRoundsConfig()


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["envs.babyia.weight=2"], ["with the label 'babyia' (did you mean 'babyai'"]),
        (["env.name=babyai"], ["[env] (name 'babyai') and [envs] (babyai, hard) are both set"]),
        (["envs.babyai.weight=0", "envs.hard.weight=0"], ["nothing to train on", "weight=1"]),
        (["envs.hard.weight=-1"], ["envs.hard.weight: must be at least 0, got -1"]),
        (["envs.hard.wieght=1"], ["envs.hard.wieght: unknown key (did you mean 'weight'?)"]),
        (["envs.hard.rollout.temperature=1"], ["envs.hard.rollout.temperature: unknown key"]),
        (["envs.hard.agent.train={plan = 0}"], ["envs.hard.agent.train: unknown key"]),
        (["envs.hard.rounds.rounds=0"], ["envs.hard.rounds.rounds: must be at least 1, got 0"]),
        (["envs.hard.agent.format=tag"], ["envs.hard.agent.format", "did you mean 'tags'"]),
        (
            ["envs.hard.rollout.max_tokens=64"],
            ["envs.hard: rollout.max_tokens_per_round=256 leaves no room"],
        ),
        (["envs.env.name=babyai"], ["'env' cannot be the label", "rollout/env/"]),
        (
            ['envs={"gymnasium/Taxi-v4" = {}}'],
            ["'gymnasium/Taxi-v4' cannot be the label", "[envs.taxi_v4]", 'name = "gymnasium/'],
        ),
        (["rollout.follow_learnable=1"], ["rollout.follow_learnable: must be below 1, got 1"]),
        (
            ["rollout.follow_learnable=0.5", "algorithm.type=ppo", "algorithm.group_size=1"],
            ["compares the episodes of a group", "algorithm.group_size=1"],
        ),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_the_remedy(overrides: list[str], told: list[str]):
    message = refused(*overrides)
    assert all(text in message for text in told), message


def test_following_needs_a_choice():
    assert "the run has one" in refused("rollout.follow_learnable=0.5", text="")


def test_tables_take_the_place_of_an_inherited_environment_and_the_other_way_round(tmp_path: Path):
    (tmp_path / "one.toml").write_text('[env]\nname = "sciworld"\nlevels = ["x"]')
    (tmp_path / "two.toml").write_text('extends = "one.toml"\n[envs.babyai]\n[envs.textcraft]')
    (tmp_path / "three.toml").write_text('extends = "two.toml"\n[envs.textcraft]\nweight = 3')
    (tmp_path / "back.toml").write_text('extends = "three.toml"\n[env]\nname = "searchqa"')
    assert list(load_config(tmp_path / "two.toml").environments) == ["babyai", "textcraft"]
    three = load_config(tmp_path / "three.toml")
    assert (three.weight("babyai"), three.weight("textcraft")) == (1, 3)
    back = load_config(tmp_path / "back.toml")
    assert list(back.environments) == ["searchqa"] and back.env.levels == ()


def test_an_agent_of_ones_own_is_not_taken_from_a_run_folder():
    table = tomllib.loads('[envs.a]\nname = "babyai"\nagent = { type = "evil:Agent" }')
    with pytest.raises(ConfigError, match=r"envs\.a\.agent\.type='evil:Agent' of the run is not"):
        parse_config(table, source="run", is_data=True)
