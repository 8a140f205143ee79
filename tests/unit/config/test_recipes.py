"""Recipes: how they are found and extended, and that those of the paper have its settings."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from agentgym_rl.config import (
    GRPOConfig,
    PPOConfig,
    RunConfig,
    dump_config,
    find_recipe,
    load_config,
    packaged_recipes,
    parse_config,
    read_table,
)
from agentgym_rl.envs.scenarios.searchqa.options import EMBEDDED, SearchOptions
from agentgym_rl.errors import ConfigError

SCENARIOS = ("webarena", "searchqa", "textcraft", "babyai", "sciworld")
ALGORITHMS = {
    "grpo": "grpo",
    "scaling-inter": "grpo",
    "reinforce-pp": "reinforce_pp",
    "rloo": "rloo",
    "ppo": "ppo",
    "sft": "sft",
    "dpo": "dpo",
    "agentevol": "agentevol",
}
REPOSITORY = Path(__file__).parents[3]


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def paper(name: str) -> RunConfig:
    return load_config(f"paper/{name}")


@pytest.mark.parametrize("name", packaged_recipes())
def test_every_recipe_loads_by_name_and_by_path(name: str):
    config = load_config(name)
    file = REPOSITORY / "recipes" / f"{name}.toml"
    assert config == load_config(str(file))
    assert parse_config(tomllib.loads(dump_config(config)), source=name) == config
    assert find_recipe(name).samefile(file)


def test_every_file_is_a_recipe():
    files = {file.resolve() for file in (REPOSITORY / "recipes").rglob("*.toml")}
    assert {file.resolve() for file in packaged_recipes().values()} == files


def test_a_byte_order_mark_does_not_matter(tmp_path: Path):
    file = write(tmp_path, "mine.toml", "\ufeffseed = 12\nextends = 'quickstart'\n")
    assert load_config(str(file)) == load_config("quickstart", ["seed=12"])


def test_there_is_a_quickstart():
    assert "quickstart" in packaged_recipes()
    assert load_config("quickstart", ["seed=12"]).seed == 12


def test_every_recipe_is_in_the_documentation():
    text = (REPOSITORY / "docs" / "recipes.md").read_text()
    listed = [name for name in packaged_recipes() if not name.startswith("paper/")]
    listed += [f"-{algorithm}`" for algorithm in ALGORITHMS]
    listed += [f"`{scenario}`" for scenario in SCENARIOS]
    assert [name for name in listed if name not in text] == []


def test_a_missing_recipe_is_named_with_the_known_ones(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no recipe 'quickstrat' .did you mean 'quickstart'"):
        load_config("quickstrat")
    with pytest.raises(ConfigError, match=r"no recipe 'nothing like it'; available: .*quickstart"):
        load_config("nothing like it")
    with pytest.raises(ConfigError, match=r"no recipe 'babyai'; available: qwen_babyai, .*small/b"):
        load_config("babyai")
    with pytest.raises(ConfigError, match=r"file 'small/web.toml'; the recipe .* is 'small/web'"):
        load_config("small/web.toml")
    missing = tmp_path / "missing.toml"
    with pytest.raises(ConfigError, match=r"no recipe file '.*missing.toml'"):
        load_config(str(missing))


def test_a_missing_recipe_of_a_folder_is_told_those_of_the_folder():
    with pytest.raises(ConfigError, match="more are in paper/ and small/") as caught:
        load_config("textcraft-gpro")
    assert "paper/babyai" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"paper/babyai-sft, .*paper/webarena-grpo") as caught:
        load_config("paper/nothing")
    assert "quickstart" not in str(caught.value)


@pytest.mark.parametrize("name", ["small/", "small"])
def test_a_folder_of_recipes_lists_its_recipes(name: str):
    with pytest.raises(ConfigError) as caught:
        load_config(name)
    first, *listed = str(caught.value).splitlines()
    assert first == "small/ is a folder of recipes; name one of them:"
    assert "  small/two-envs" in listed and all(line.startswith("  small/") for line in listed)


@pytest.mark.parametrize("content", [b"seed = ", b"[env\n", b"\xff\xfe", b"seed = 1\nseed = 2"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes):
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot read .*bad\.toml: "):
        load_config(str(file))


def test_a_folder_is_no_recipe(tmp_path: Path):
    with pytest.raises(ConfigError, match="no recipe file"):
        load_config(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot read"):
        read_table(tmp_path)


def test_a_recipe_extends_another_key_by_key(tmp_path: Path):
    write(tmp_path, "first.toml", "seed = 3\n[training]\nlr = 1e-3\nsteps = 7\n")
    second = write(tmp_path, "second.toml", 'extends = "first.toml"\n[training]\nsteps = 9\n')
    third = write(tmp_path, "sub/third.toml", 'extends = "../second.toml"\n[env]\nname = "x"\n')
    assert read_table(second) == {"seed": 3, "training": {"lr": 1e-3, "steps": 9}}
    assert read_table(third) == read_table(second) | {"env": {"name": "x"}}


def test_a_recipe_extends_a_packaged_one_and_takes_overrides(tmp_path: Path):
    file = write(tmp_path, "mine.toml", 'extends = "quickstart"\n[training]\nlr = 0.25\n')
    expected = load_config("quickstart", ["training.lr=0.25", "seed=5"])
    assert load_config(str(file), ["seed=5"]) == expected


def test_another_type_replaces_the_whole_section(tmp_path: Path):
    write(tmp_path, "first.toml", '[algorithm]\ntype = "ppo"\nvalue_clip = 0.7\ngroup_size = 5\n')
    same = write(tmp_path, "same.toml", 'extends = "first.toml"\n[algorithm]\ngroup_size = 6\n')
    other = write(tmp_path, "other.toml", 'extends = "first.toml"\n[algorithm]\ntype = "grpo"\n')
    assert load_config(str(same)).algorithm == PPOConfig(value_clip=0.7, group_size=6)
    assert load_config(str(other)).algorithm == GRPOConfig()


@pytest.mark.parametrize("kind", ["sft", "dpo", "agentevol"])
def test_what_only_reinforcement_learning_uses_is_not_taken_over(kind: str, tmp_path: Path):
    training = "[training]\nlr = 0.5\nupdates_per_step = 2\nepochs_per_step = 3\n"
    rewards = "[kl]\ncoef = 0.1\n[credit]\ndiscount = 0.9\n[rollout]\nmax_refills = 2\n"
    rewards += "drop_without_spread = true\nrest_solved = 2\n"
    write(tmp_path, "first.toml", training + rewards)
    text = f'extends = "first.toml"\n[algorithm]\ntype = "{kind}"\n'
    text += 'data = "runs/a"\n' if kind == "dpo" else ""
    config = load_config(str(write(tmp_path, "second.toml", text)))
    assert (config.training.lr, config.training.updates_per_step) == (0.5, 1)
    assert config.training.epochs_per_step == (3 if kind == "agentevol" else 1)
    assert config.rollout.rest_solved == (2 if kind == "agentevol" else 0)
    assert not config.rollout.drop_without_spread
    own = write(tmp_path, "third.toml", text + "[kl]\ncoef = 0.1\n")
    with pytest.raises(ConfigError, match=r"kl\.coef=0\.1 acts on advantages"):
        load_config(str(own))


@pytest.mark.parametrize("recipe", ["quickstart", "qwen_textcraft", "small/textcraft-grpo"])
@pytest.mark.parametrize(
    "kind", ["grpo", "rloo", "gigpo", "ppo", "reinforce_pp", "agentevol", "sft"]
)
def test_a_recipe_can_be_tried_with_another_algorithm(recipe: str, kind: str):
    assert load_config(recipe, [f"algorithm.type={kind}"]).algorithm.type == kind


@pytest.mark.parametrize("base", ['"self.toml"', '"other.toml"'])
def test_recipes_that_extend_each_other_are_refused(tmp_path: Path, base: str):
    file = write(tmp_path, "self.toml", f"extends = {base}\n")
    write(tmp_path, "other.toml", 'extends = "self.toml"\n')
    with pytest.raises(ConfigError, match="which extends this recipe in turn"):
        load_config(str(file))


@pytest.mark.parametrize(
    ("base", "told"),
    [
        ('"quickstrat"', r"mine\.toml: extends: no recipe 'quickstrat' .did you mean 'quickstart'"),
        ('"nowhere.toml"', r"mine\.toml: extends: no recipe file 'nowhere\.toml'"),
        ('["a", "b"]', r"mine\.toml: extends must name one recipe, got \['a', 'b'\]"),
    ],
)
def test_a_base_that_is_not_there_is_named(tmp_path: Path, base: str, told: str):
    file = write(tmp_path, "mine.toml", f"extends = {base}\n")
    with pytest.raises(ConfigError, match=told):
        load_config(str(file))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_paper_has_a_recipe_for_every_scenario_and_algorithm(scenario: str, algorithm: str):
    config = paper(f"{scenario}-{algorithm}")
    assert config.env.name == scenario
    assert config.algorithm.type == ALGORITHMS[algorithm]
    assert config.model.dtype == "bfloat16" and config.training.gradient_checkpointing


def test_the_recipes_of_the_paper_have_its_published_settings():
    # Appendix B of arXiv:2509.08755: limit on rounds, learning rate, samples of a task.
    published = {
        "webarena": (15, 5e-7, 4),
        "searchqa": (4, 1e-6, 8),
        "textcraft": (20, 1e-6, 8),
        "babyai": (20, 1e-6, 8),
        "sciworld": (20, 1e-6, 8),
    }
    for scenario, (rounds, lr, group_size) in published.items():
        config = paper(f"{scenario}-grpo")
        assert isinstance(config.algorithm, GRPOConfig)
        found = (config.rounds.longest, config.training.lr, config.algorithm.group_size)
        assert found == (rounds, lr, group_size)
        assert (config.kl.coef, config.kl.place, config.kl.estimator) == (0.001, "loss", "k3")
        assert config.rollout.temperature == 1.0
        assert paper(f"{scenario}-sft").training.lr == 1e-4


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_deep_search_asks_the_public_data_sets_in_our_own_environment(algorithm: str):
    env = paper(f"searchqa-{algorithm}").env
    options = SearchOptions(**env.options)  # type: ignore[arg-type]  # checked by itself
    assert (env.url, options.retriever) == ("", "remote")
    assert options.data != EMBEDDED


def test_the_stages_of_scaling_inter_are_the_published_ones():
    published = {
        "webarena": ((8, 12, 15), 80),
        "searchqa": ((5, 8, 10), 100),
        "textcraft": ((10, 20, 30), 100),
        "babyai": ((6, 13, 20), 100),
        "sciworld": ((10, 20, 30), 100),
    }
    for scenario, (rounds, steps_per_stage) in published.items():
        schedule = paper(f"{scenario}-scaling-inter").rounds
        assert schedule.type == "scaling_inter_stepwise"
        assert (schedule.rounds, schedule.steps_per_stage) == (rounds, steps_per_stage)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scaling_inter_and_grpo_differ_in_the_schedule_and_its_room_alone(scenario: str):
    fixed, growing = paper(f"{scenario}-grpo"), paper(f"{scenario}-scaling-inter")
    room = growing.rollout.model_copy(update={"max_tokens": fixed.rollout.max_tokens})
    assert growing.model_copy(update={"rounds": fixed.rounds, "rollout": room}) == fixed
    assert fixed.eval_max_rounds == growing.eval_max_rounds
