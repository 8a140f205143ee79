"""Settings and overrides: what is accepted, and what a mistake is told."""

from __future__ import annotations

import copy
import logging
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentgym_rl.config import (
    FixedRoundsConfig,
    GRPOConfig,
    RunConfig,
    SFTConfig,
    StepRoundsConfig,
    dump_config,
    parse_config,
)
from agentgym_rl.errors import ConfigError

STAGED = {"rounds": {"type": "scaling_inter_stepwise", "rounds": [2, 3], "steps_per_stage": 4}}


def parse(*overrides: str, table: dict[str, object] | None = None) -> RunConfig:
    """Return the configuration of overrides over a table (default: over nothing)."""
    return parse_config(copy.deepcopy(table or {}), overrides, source="test.toml")


def complaint(*overrides: str, table: dict[str, object] | None = None) -> str:
    """Return the message of the error that overrides over a table give."""
    with pytest.raises(ConfigError) as caught:
        parse(*overrides, table=table)
    return str(caught.value)


def test_overrides_reach_every_depth_and_take_toml_values():
    config = parse(
        "seed=7",
        "training.lr=1e-5",
        "model.tiny.hidden_size=32",
        "agent.include_instructions=false",
        "env.levels=['GoTo', \"Open\"]",
        "env.options.largest=3",
        "env.options.mode=fast",
    )
    assert config.seed == 7
    assert config.training.lr == 1e-5
    assert config.model.tiny.hidden_size == 32
    assert config.agent.include_instructions is False
    assert config.env.levels == ("GoTo", "Open")
    assert config.env.options == {"largest": 3, "mode": "fast"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tiny", "tiny"),
        ('"tiny"', "tiny"),
        ("models/my model", "models/my model"),
        ("a=b", "a=b"),
        (" org/name ", "org/name"),
        ("", ""),
    ],
)
def test_a_value_that_is_no_toml_is_a_string(text: str, value: str):
    assert parse(f"model.path={text}").model.path == value


def test_an_override_beats_the_recipe_and_a_later_one_an_earlier():
    table = {"training": {"steps": 5, "lr": 1.0}}
    config = parse("training.steps=6", "training.steps=7", table=table)
    assert (config.training.steps, config.training.lr) == (7, 1.0)


@pytest.mark.parametrize("override", ["training", "=3", "a..b=3", ".seed=3", "training.=3"])
def test_an_override_that_is_no_assignment_is_refused(override: str):
    assert complaint(override) == (
        f"override {override!r} is not of the form key=value, e.g. training.lr=1e-5"
    )


def test_an_override_cannot_go_inside_a_value():
    message = complaint("seed.x=3", table={"seed": 1})
    assert message == "override 'seed.x=3': 'seed' is a value, not a section"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("sead=1", "test.toml: sead: unknown key (did you mean 'seed'?); legal here: seed, env,"),
        ("modle.path=x", "modle: unknown key (did you mean 'model'?)"),
        ("training.step=3", "training.step: unknown key (did you mean 'steps'?); legal here:"),
        ("model.tiny.hiden_size=32", "model.tiny.hiden_size: unknown key (did you mean 'hidden_"),
        ("algorithm.groupsize=4", "algorithm.groupsize: unknown key (did you mean 'group_size'?)"),
        ("rounds.round=4", "rounds.round: unknown key (did you mean 'rounds'?)"),
        ("algorithm.xyz=4", "algorithm.xyz: unknown key; legal here: type, group_size,"),
        ("engine.tensor_parallel_size=2", "unknown key (only with engine.type=vllm); legal here:"),
        ("algorithm.type=gpro", "got 'gpro' (did you mean 'grpo'?)"),
        ("engine.xyz.deep=4", "engine.xyz: unknown key; legal here: type, timeout_s,"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known(override: str, told: str):
    assert told in complaint(override)


def test_a_format_is_built_in_or_a_class():
    assert "agent.format: 'tag' is not a format (did you mean 'tags'?)" in complaint(
        "agent.format=tag"
    )
    assert parse("agent.format=mine:Format").agent.format == "mine:Format"


def test_the_legal_keys_are_those_of_the_chosen_type():
    assert "legal here: type, data, num_demos" in complaint("algorithm.type=sft", "algorithm.x=4")
    assert "steps_per_stage" in complaint("rounds.stages=1", table=STAGED)


@pytest.mark.parametrize(
    ("override", "key", "allowed"),
    [
        ("training.steps=many", "training.steps", "a whole number, got 'many'"),
        ("training.steps=true", "training.steps", "a whole number, got 'true'"),
        ("training.lr=false", "training.lr", "a number, got 'false'"),
        ("seed=1.5", "seed", "a whole number, got 1.5"),
        ("seed=-1", "seed", "at least 0, got -1"),
        ("training.lr=0", "training.lr", "above 0, got 0"),
        ("training.lr=inf", "training.lr", "a finite number, got inf"),
        ("training.lr=high", "training.lr", "a number, got 'high'"),
        ("training.compile=perhaps", "training.compile", "true or false, got 'perhaps'"),
        (
            "training.lr_schedule=up",
            "training.lr_schedule",
            "'constant', 'linear' or 'cosine', got 'up'",
        ),
        ("training=3", "training", "a section, whose keys are set one by one, got 3"),
        ("algorithm=grpo", "algorithm", "a section, whose keys are set one by one, got 'grpo'"),
        ("algorithm.group_size=1", "algorithm.group_size", "at least 2, got 1"),
        ("env.levels=Foo", "env.levels", "a list like [1, 2] or ['a', 'b'], got 'Foo'"),
        ("env.name=5", "env.name", "text, got 5"),
        ("env.options=5", "env.options", "a table like {name = 1}, got 5"),
        ("model.tiny.hidden_size=40", "model.tiny.hidden_size", "a multiple of 16, got 40"),
        ("rounds.rounds=[2, 3]", "rounds.rounds", "a whole number, got [2, 3]"),
        ("policy_loss.clip_low=2", "policy_loss.clip_low", "at most 1, got 2"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_what_is_allowed(
    override: str, key: str, allowed: str
):
    assert complaint(override) == f"test.toml: {key}: must be {allowed}"


def test_an_unknown_type_is_told_the_known_ones():
    message = complaint("algorithm.type=ppp")
    assert message.startswith("test.toml: algorithm.type: must be 'grpo', 'ppo', 'rloo', ")
    assert message.endswith("""or "module:Class", got 'ppp' (did you mean 'ppo'?)""")


def test_every_mistake_is_told_at_once():
    lines = complaint("sead=1", "training.steps=0", "algorithm.groupsize=4").splitlines()
    keys = {line.removeprefix("test.toml: ").split(": ")[0] for line in lines}
    assert keys == {"sead", "training.steps", "algorithm.groupsize"}


@pytest.mark.parametrize(
    ("overrides", "told", "remedy"),
    [
        (["rollout.temperature=0"], "rollout.temperature=0", "set rollout.temperature=1"),
        (
            ["training.updates_per_step=17"],
            "training.updates_per_step=17 needs at least as many groups",
            "training.tasks_per_step=16",
        ),
        (
            ["algorithm.type=ppo", "rollout.max_refills=2"],
            "does not compare within a group",
            "set rollout.max_refills=0",
        ),
        (
            ["algorithm.type=reinforce_pp", "rollout.drop_without_spread=true"],
            "rollout.drop_without_spread=true drops groups whose rewards are equal",
            "set rollout.drop_without_spread=false",
        ),
        (
            ["credit.truncated=bootstrap"],
            "credit.truncated=bootstrap needs a critic",
            "set credit.truncated to as_is or mask",
        ),
        (
            ["kl.coef=0.1", "kl.estimator=k1"],
            "kl.estimator=k1 in the loss has a gradient of mean zero",
            "or kl.place=reward",
        ),
        (
            ["training.lr_schedule=cosine", "training.steps=10", "training.warmup_steps=10"],
            "training.warmup_steps=10 leaves none of the run's 10 updates",
            "lr_schedule=constant",
        ),
        (
            ["algorithm.type=agentevol", "training.lr_schedule=linear"],
            "training.lr_schedule=linear needs the number of updates",
            "lr_schedule=constant",
        ),
        (
            ["algorithm.type=agentevol", "training.updates_per_step=2"],
            "algorithm.batch_size and training.epochs_per_step decide",
            "training.updates_per_step=1",
        ),
        (
            ["algorithm.type=dpo", "algorithm.data=runs/a", "kl.coef=0.1"],
            "kl.coef=0.1 acts on advantages, which only reinforcement learning has",
            "with algorithm.type=dpo leave it out or set kl.coef=0.0",
        ),
        (
            ["algorithm.type=sft", "policy_loss.clip_high=0.28", "credit.discount=0.9"],
            "credit.discount=0.9 acts on advantages",
            "with algorithm.type=sft leave it out or set credit.discount=1.0",
        ),
        (
            ["algorithm.type=agentevol", "credit.truncated=mask"],
            "credit.truncated=mask acts on advantages",
            "with algorithm.type=agentevol leave it out or set credit.truncated=as_is",
        ),
        (
            ["algorithm.type=sft", "training.updates_per_step=2"],
            "training.updates_per_step=2 is about the episodes of a step",
            "set training.updates_per_step=1",
        ),
        (
            ["algorithm.type=dpo", "algorithm.data=runs/a", "training.epochs_per_step=2"],
            "training.epochs_per_step=2 is about the episodes of a step",
            "set training.epochs_per_step=1",
        ),
        (
            ["algorithm.type=sft", "rollout.max_refills=2"],
            "rollout.max_refills=2 is about the episodes of a step",
            "set rollout.max_refills=0",
        ),
        (
            ["policy_loss.entropy_target=0.4"],
            "policy_loss.entropy_target=0.4 has no bonus to fade",
            "set policy_loss.entropy_coef above 0",
        ),
        (
            ["rollout.max_tokens=64", "rollout.max_tokens_per_round=64"],
            "leaves no room for a prompt",
            "lower the first or raise the second",
        ),
        (
            ["algorithm.type=sft", "warm_start.steps=5"],
            "warm_start.steps=5 is supervised learning before another method",
            "set warm_start.steps=0",
        ),
        (
            ["rollout.max_staleness=1"],
            "rollout.max_staleness=1 learns from tokens that older weights sampled",
            "set policy_loss.importance_cap",
        ),
        (
            [
                "rollout.max_staleness=1",
                "rollout.max_refills=2",
                "policy_loss.importance_cap=2",
            ],
            "rollout.max_refills=2 both decide when a step has enough groups",
            "set one of them to 0",
        ),
        (
            [
                "rollout.max_staleness=1",
                "rollout.rest_solved=2",
                "policy_loss.importance_cap=2",
            ],
            "rollout.max_staleness=1 begins groups ahead",
            "rollout.rest_solved=2 to 0",
        ),
        (
            ["rollout.overlap=true"],
            "rollout.overlap=true samples with the weights of the step before",
            "set rollout.max_staleness=1, or rollout.overlap=false",
        ),
        (
            ["rollout.overlap=true", "rollout.max_staleness=1", "policy_loss.importance_cap=2"],
            "rollout.overlap=true needs an engine with weights of its own, and engine.type=native",
            "set cluster.type=local, or rollout.overlap=false",
        ),
        (
            ["algorithm.type=agentevol", "rollout.overlap=true"],
            "rollout.overlap=true lets episodes continue with newer weights",
            "set rollout.overlap=false",
        ),
        (
            ["algorithm.type=agentevol", "rollout.max_staleness=1"],
            "explores with one policy",
            "set rollout.max_staleness=0",
        ),
        (
            ["algorithm.type=sft", "rollout.max_staleness=1"],
            "rollout.max_staleness=1 is about the episodes of a step",
            "set rollout.max_staleness=0",
        ),
    ],
)
def test_an_impossible_combination_names_the_remedy(overrides: list[str], told: str, remedy: str):
    message = complaint(*overrides)
    assert told in message and remedy in message


@pytest.mark.parametrize("rounds", ["[3, 2]", "[2, 2]", "[0, 1]", "[-1]"])
def test_stages_of_rounds_must_grow(rounds: str):
    message = complaint(f"rounds.rounds={rounds}", table=STAGED)
    assert f"got {rounds}" in message and "use rounds.type=fixed" in message


@pytest.mark.parametrize("kind", ["ppo", "reinforce_pp"])
def test_only_algorithms_that_compare_episodes_need_groups(kind: str):
    overrides = ["algorithm.group_size=1"]
    assert parse(f"algorithm.type={kind}", *overrides).algorithm.group_size == 1
    assert "algorithm.group_size: " in complaint("algorithm.type=rloo", *overrides)


def test_combinations_that_look_alike_are_accepted():
    parse("kl.estimator=k1", "kl.place=reward", "kl.coef=0.1")
    parse("algorithm.type=ppo", "credit.truncated=bootstrap")
    parse("algorithm.type=gigpo", "rollout.max_refills=2", "credit.truncated=mask")
    stale = ("rollout.max_staleness=2", "policy_loss.importance_cap=2", "algorithm.type=ppo")
    parse(*stale)
    parse(*stale, "rollout.overlap=true", "cluster.type=local")
    parse(*stale, "rollout.overlap=true", "engine.type=vllm")


def test_growing_rounds_know_their_last():
    adaptive = parse("rounds.type=adaptive", "rounds.rounds=[3, 5, 7]")
    assert adaptive.rounds.longest == 7
    assert "use rounds.type=fixed" in complaint("rounds.type=adaptive", "rounds.rounds=[3, 3]")


def test_stages_of_rounds_need_their_settings():
    message = complaint("rounds.type=scaling_inter_stepwise")
    assert "rounds.rounds: is required; set rounds.rounds=..." in message
    assert "rounds.steps_per_stage: is required" in message


def test_a_sft_recipe_may_have_settings_that_make_no_sense_online():
    config = parse("algorithm.type=sft", "rollout.temperature=0")
    assert isinstance(config.algorithm, SFTConfig)


def test_another_algorithm_drops_what_it_makes_no_use_of_with_a_warning(
    caplog: pytest.LogCaptureFixture,
):
    table = {"kl": {"coef": 0.1}, "training": {"updates_per_step": 2, "lr": 0.5}}
    with caplog.at_level(logging.WARNING):
        config = parse("algorithm.type=sft", table=table)
    assert (config.kl.coef, config.training.updates_per_step, config.training.lr) == (0.0, 1, 0.5)
    assert "kl of the recipe is ignored by algorithm.type=sft: left out" in caplog.text
    assert "training.updates_per_step of the recipe" in caplog.text
    told = complaint("training.updates_per_step=3", "algorithm.type=sft", table=table)
    assert "training.updates_per_step=3 is about the episodes" in told, (
        "an override is never dropped"
    )


def test_another_type_drops_the_keys_it_does_not_know_with_a_warning(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.WARNING):
        config = parse("rounds.type=fixed", "rounds.rounds=5", table=STAGED)
    assert config.rounds == FixedRoundsConfig(rounds=5)
    assert "rounds.steps_per_stage of the recipe is not a setting of type fixed" in caplog.text


def test_another_type_drops_keys_where_the_recipe_left_its_type_to_the_default(
    caplog: pytest.LogCaptureFixture,
):
    with caplog.at_level(logging.WARNING):
        config = parse("algorithm.type=sft", table={"algorithm": {"group_size": 4}})
    assert config.algorithm == SFTConfig()
    assert "algorithm.group_size" in caplog.text


def test_another_type_keeps_what_both_know_and_what_was_set_for_it(
    caplog: pytest.LogCaptureFixture,
):
    table = {"algorithm": {"type": "grpo", "group_size": 4}}
    config = parse("algorithm.num_demos=3", "algorithm.type=sft", table=table)
    assert config.algorithm == SFTConfig(num_demos=3)
    same = parse("algorithm.type=grpo", table=table)
    assert same.algorithm == GRPOConfig(group_size=4)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_another_type_never_drops_an_override(order: int):
    overrides = ["algorithm.group_size=4", "algorithm.type=sft"][::order]
    assert "algorithm.group_size: unknown key" in complaint(*overrides)


def test_a_section_without_a_type_has_the_first():
    assert parse(table={"rounds": {"rounds": 5}}).rounds == FixedRoundsConfig(rounds=5)
    assert parse(table={"algorithm": {"group_size": 4}}).algorithm == GRPOConfig(group_size=4)


def test_nothing_at_all_is_a_whole_configuration():
    assert parse() == RunConfig()


def test_a_configuration_is_frozen():
    config = RunConfig()
    with pytest.raises(ValidationError):
        config.seed = 3  # type: ignore[misc]  # what is tested


def test_dump_and_parse_give_the_same_configuration():
    config = parse(
        "seed=3",
        "env.options.flag=true",
        "env.options.size=2",
        "env.options.scale=0.5",
        "env.options.word='a \"b\" \\\\ c'",
        "env.categories=['depth 2']",
        "training.lr=3e-7",
        table=STAGED,
    )
    text = dump_config(config)
    assert parse(table=tomllib.loads(text)) == config
    assert dump_config(parse(table=tomllib.loads(text))) == text


@given(
    seed=st.integers(0, 2**40),
    lr=st.floats(1e-12, 1.0),
    path=st.text(st.characters(exclude_categories=["Cs"])),
    rounds=st.lists(st.integers(1, 99), min_size=1, unique=True).map(sorted),
)
def test_dump_and_parse_give_the_same_configuration_whatever_it_holds(
    seed: int, lr: float, path: str, rounds: list[int]
):
    table = {
        "seed": seed,
        "training": {"lr": lr},
        "model": {"path": path},
        "rounds": {"type": "scaling_inter_stepwise", "rounds": rounds, "steps_per_stage": 1},
    }
    config = parse(table=table)
    assert config.training.lr == lr and config.model.path == path
    assert parse(table=tomllib.loads(dump_config(config))) == config


def test_the_longest_horizon_is_that_of_the_last_stage():
    assert parse(table=STAGED).rounds.longest == 3
    assert parse("rounds.rounds=7").rounds.longest == 7
    assert isinstance(parse(table=STAGED).rounds, StepRoundsConfig)


def test_evaluation_takes_the_longest_horizon_unless_told():
    assert parse(table=STAGED).eval_max_rounds == 3
    assert parse("eval.max_rounds=9", table=STAGED).eval_max_rounds == 9


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["env.url=[]"], "an address, or a list of addresses"),
        (["env.url=[1]"], "an address, or a list of addresses"),
        (['env.url=["http://a:1", "http://a:1/"]'], "'http://a:1/' is there twice"),
        (['env.url=["http://a:1", "a:2"]'], "'a:2' is not an address"),
        (["cluster.env_servers=2"], "set cluster.type=local"),
        (["cluster.rollout_workers=2"], "set cluster.type=local"),
        (
            ["cluster.type=local", "cluster.env_servers=2", "env.url=http://a:1"],
            "has one already, env.url=http://a:1: leave one of the two out",
        ),
        (
            ["cluster.type=local", "cluster.env_servers=2", "env.workers=3"],
            "env.workers=3 are both processes .* set one of them to 0",
        ),
    ],
)
def test_servers_of_environments_that_cannot_be_are_refused(settings: list[str], told: str):
    with pytest.raises(ConfigError, match=told):
        parse_config({}, settings, source="test")


def test_an_environment_has_one_address_or_several():
    several = parse_config({}, ['env.url=["http://a:1","http://b:2"]'], source="test")
    assert several.env.urls == ("http://a:1", "http://b:2")
    assert parse_config(tomllib.loads(dump_config(several)), source="test") == several
    assert parse_config({}, ["env.url=http://a:1"], source="test").env.urls == ("http://a:1",)
    assert parse_config({}, source="test").env.urls == ()


def test_the_run_starts_servers_for_environments_without_an_address():
    table = {"envs": {"babyai": {}, "textcraft": {"url": "http://a:1"}}}
    settings = ["cluster.type=local", "cluster.env_servers=2"]
    config = parse_config(table, settings, source="test")
    assert [env.env.urls for env in config.environments.values()] == [(), ("http://a:1",)]
