"""Several environments from Python, on resumption, and when their model is evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgym_rl.api.arguments import EnvsArgument, names_and_objects
from agentgym_rl.api.eval_plan import eval_config, trained_envs
from agentgym_rl.api.plan import RunPlan, opened, plan_run
from agentgym_rl.config.overrides import override_texts
from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.ui.catalog import Config
from fakes import CountingEnv

RUN = """
[envs.easy]
name = "babyai"
levels = ["GoToRedBall"]
token_file = "/etc/passwd"
agent = { format = "tags" }
rollout = { max_tokens = 8192 }
options = { x = 1 }

[envs.hard]
name = "babyai"

[envs.textcraft]

[envs.mine]
name = "evil:Env"

[agent]
include_instructions = false

[rollout]
follow_learnable = 0.5
"""


def plan(run_dir: Path, envs: EnvsArgument | None, *texts: str, resume: bool = False) -> RunPlan:
    names, objects = names_and_objects(envs=envs)
    recipe = None if resume else "quickstart"
    overrides = [*override_texts(names), *texts]
    return plan_run(recipe, overrides, run_dir=run_dir, resume=resume, objects=objects)


def begin(made: RunPlan) -> None:
    with opened(made):
        made.folder.metrics_file.write_text("")


def test_names_classes_and_tables_take_the_place_of_the_recipes_environment(tmp_path: Path):
    table = {"name": "babyai", "levels": ["GoToRedBall"], "weight": 2}
    made = plan(tmp_path, {"textcraft": "textcraft", "mine": CountingEnv, "easy": table})
    configs = made.config.environments
    assert [config.env.name for config in configs.values()] == [
        "textcraft",
        "fakes:CountingEnv",
        "babyai",
    ]
    assert configs["easy"].env.levels == ("GoToRedBall",) and made.config.weight("easy") == 2
    assert made.objects.of_env("mine").env is CountingEnv
    assert made.objects.of_env("easy").env is None


@pytest.mark.parametrize(
    ("envs", "told"),
    [
        ({}, "is not a table of environments"),
        ({"a": CountingEnv()}, r"env=CountingEnv\(\.\.\.\) is one episode"),
        ({"a": {"name": "babyai", "wieght": 2}}, r"envs\.a\.wieght: unknown key"),
        ({"a b": "babyai"}, "'a b' cannot be the label"),
        ({"a": "babyia"}, r"envs\.a: unknown environment 'babyia'"),
        ({"a": {"name": "babyai", "levels": ["GoToMars"]}}, r"envs\.a: envs\.a\.levels: babyai"),
    ],
)
def test_what_is_no_environment_is_refused(tmp_path: Path, envs: EnvsArgument, told: str):
    with pytest.raises((ConfigError, ValueError), match=told):
        plan(tmp_path, envs)


def test_one_or_several_but_not_both():
    with pytest.raises(ValueError, match="give one"):
        names_and_objects(env="babyai", envs={"a": "babyai"})


def test_a_run_resumes_with_its_classes_and_may_change_where_they_run(tmp_path: Path):
    class Hidden(CountingEnv):
        pass

    envs: EnvsArgument = {"babyai": "babyai", "mine": Hidden}
    begin(plan(tmp_path / "a", envs))
    with pytest.raises(ConfigError, match=r"envs\.mine\.name=<object>.*train\(\.\.\., envs=\.\.\."):
        plan(tmp_path / "a", None, resume=True)
    again = plan(tmp_path / "a", envs, "envs.babyai.workers=2", resume=True)
    assert again.config.environments["babyai"].env.workers == 2
    with pytest.raises(
        ConfigError, match=r"changed against the run in .*: envs\.babyai\.weight .*, now"
    ):
        plan(tmp_path / "a", envs, "envs.babyai.weight=2", resume=True)


def test_a_model_plays_an_environment_of_its_run_under_the_settings_that_hold_there(tmp_path: Path):
    RunFolder(tmp_path).create(RUN)
    model = str(tmp_path)
    assert trained_envs(model) == ["easy", "hard", "textcraft"], "no code that a run folder names"
    easy = eval_config(model, "easy")
    assert (easy.env.name, easy.env.levels, easy.env.token_file) == ("babyai", ("GoToRedBall",), "")
    assert easy.agent.format == "tags" and not easy.agent.include_instructions
    assert easy.rollout.max_tokens == 8192 and not easy.envs
    assert eval_config(model, "textcraft").rollout.max_tokens == 4096
    assert eval_config(model, "sciworld").env.name == "sciworld"
    for env, told in {
        "babyai": "as easy, hard: name one of these labels",
        "": "was trained on easy, hard, textcraft, mine: say which",
        "mine": "name evil:Env itself if you trust it",
    }.items():
        with pytest.raises(ConfigError, match=told):
            eval_config(model, env)


def test_the_ui_replays_under_the_name_and_options_of_the_label():
    table: dict[str, object] = {
        "envs": {"easy": {"name": "babyai", "options": {"x": 1}, "agent": {"format": "tags"}}},
        "agent": {"format": "react", "include_instructions": False},
    }
    config = Config(table=table)
    assert config.replayed_env("easy") == ("babyai", {"x": 1}) and config.envs == "easy"
    assert config.agent_in("babyai") == {"format": "tags", "include_instructions": False}
    assert config.agent_in("textcraft")["format"] == "react"
    one = Config(table={"env": {"name": "babyai", "options": {"y": 2}}})
    assert one.replayed_env("babyai") == ("babyai", {"y": 2}) and one.envs == "babyai"
    assert Config(table={"envs": {"a": 3}, "agent": 4}).replayed_env("a") == ("a", {})
