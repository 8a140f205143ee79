"""Training scripts of AgentGym-RL as recipes: their settings, script by script."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from agentgym_rl.cli import preparing
from agentgym_rl.config import RunConfig, find_recipe, parse_config, read_table
from agentgym_rl.config.base import BaseConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.migration.convert import Conversion, convert_script, recipe_text
from agentgym_rl.migration.shell import hydra_overrides, read_script

SCRIPTS = json.loads(
    (Path(__file__).parents[2] / "data" / "agentgym_rl_scripts.json").read_text(encoding="utf-8")
)
TRAINING = [name for name in SCRIPTS if "/train/" in name]


def script_of(name: str, program: str = "main_ppo", **changes: str) -> str:
    """Return a script with the settings of a published one, in the form that those have."""
    variables = "\n".join(f'{key}="{text}"' for key, text in SCRIPTS[name]["variables"].items())
    overrides = " \\\n".join(
        f"    {key}={text}" for key, text in (SCRIPTS[name]["overrides"] | changes).items()
    )
    return (
        f"#!/bin/bash\nset -x\n# a comment with 'a quote\nexport HYDRA_FULL_ERROR=1\n{variables}\n"
        "mkdir -p ${model_save_path}\n"
        f"WANDB_MODE=online python3 -m verl.agent_trainer.{program} \\\n{overrides}\nexit $?\n"
    )


def converted(name: str, **changes: str) -> tuple[Conversion, RunConfig]:
    found = convert_script(script_of(name, **changes), source="script.sh")
    return found, parse_config(tomllib.loads(recipe_text(found)), source="recipe")


@pytest.mark.parametrize("name", TRAINING)
def test_every_training_script_is_a_recipe_that_says_what_became_of_each_setting(name: str):
    found, config = converted(name)
    told = [note.key for note in (*found.kept, *found.left)]
    assert sorted(told) == sorted(SCRIPTS[name]["overrides"])
    assert not [note for note in found.left if "not a setting that is known" in note.told]
    assert config.env.tasks_file == f"AgentItemId/{config.env.name}_train.json"
    assert config.model.path == "models/Qwen2.5-7B-Instruct"


@pytest.mark.parametrize("name", TRAINING)
def test_it_agrees_with_the_recipe_of_the_paper_where_that_follows_the_script(name: str):
    kind, env = name.split("/")[2], name.split("/")[-1].removesuffix("_train.sh")
    recipe = f"paper/{env}-{'grpo' if kind == 'AgentGym-RL' else 'scaling-inter'}"
    paper = parse_config(read_table(find_recipe(recipe)), source=recipe)
    _, config = converted(name)
    same: list[tuple[BaseConfig, BaseConfig]] = [
        (config.policy_loss, paper.policy_loss),
        (config.kl, paper.kl),
    ]
    assert all(ours == theirs for ours, theirs in same)
    assert config.env.options == paper.env.options
    if kind == "AgentGym-RL":
        assert config.rollout.max_tokens == paper.rollout.max_tokens
        assert config.training.updates_per_step == paper.training.updates_per_step
        assert config.training.steps == paper.training.steps or env == "searchqa"


def test_textcraft_by_hand():
    found, config = converted("examples/train/ScalingInter-RL/textcraft_train.sh")
    assert config.rounds.model_dump() == {
        "type": "scaling_inter_stepwise", "rounds": (10, 20, 30), "steps_per_stage": 100
    }  # fmt: skip
    # 374 tasks in batches of 32 are 11 steps, 30 times; mini-batches of 8 tasks are 4 updates.
    assert (config.training.steps, config.training.updates_per_step) == (330, 4)
    assert (config.algorithm.type, config.algorithm.group_size) == ("grpo", 8)
    assert config.rollout.max_tokens == 512 + 10240
    assert any("depend on the machine" in text for text in found.advice)
    left = {note.key: note.told for note in found.left}
    assert "nothing reads it" in left["actor_rollout_ref.actor.ppo_epochs"]
    assert "--run-dir" in left["trainer.default_local_dir"]


@pytest.mark.parametrize(("freq", "every"), [("25", 25), ("-1", 25), ("9999", 25), ("100", 100)])
def test_a_run_has_checkpoints_before_its_end(freq: str, every: int):
    found, config = converted(TRAINING[0], **{"trainer.save_freq": freq})
    assert (config.training.steps, config.checkpoint.every) == (500, every)
    told = [text for text in found.advice if text.startswith("checkpoint.every=25")]
    assert bool(told) == (freq in ("-1", "9999"))
    assert all(f"trainer.save_freq={freq}" in text and "=500 does as" in text for text in told)


@pytest.mark.parametrize(
    ("path", "hub"),
    [
        ("models/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("/weights/own", "OWNER/NAME"),
        ("Qwen/Qwen2.5-7B-Instruct", ""),
    ],
)
def test_what_is_on_the_authors_machine_is_named_with_what_to_write(path: str, hub: str):
    found, config = converted(TRAINING[0], **{"actor_rollout_ref.model.path": path})
    assert config.model.path == path
    told = [text for text in found.advice if text.startswith("model.path=")]
    expected = f"model.path={path} is not a folder here: .* such as {hub}."
    assert bool(told) == bool(hub) and all(re.fullmatch(expected, text) for text in told)
    assert f"# {told[0]}" in recipe_text(found) if told else True
    assert any("env.tasks_file=AgentItemId/" in text for text in found.advice)


@pytest.mark.parametrize(
    ("estimator", "ours"),
    [("gae", "ppo"), ("rloo", "rloo"), ("reinforce_plus_plus", "reinforce_pp")],
)
def test_each_estimator_is_an_algorithm(estimator: str, ours: str):
    _, config = converted(TRAINING[0], **{"algorithm.adv_estimator": estimator})
    assert config.algorithm.type == ours


def test_kl_in_the_reward_takes_its_own_coefficient():
    changes = {"actor_rollout_ref.actor.use_kl_loss": "False", "algorithm.kl_ctrl.kl_coef": "0.05"}
    _, config = converted(TRAINING[0], **changes)
    assert (config.kl.place, config.kl.coef, config.kl.estimator) == ("reward", 0.05, "k1")


def test_a_setting_that_is_not_known_is_told():
    found, _ = converted(TRAINING[0], **{"trainer.invented": "3"})
    told = {note.key: note.told for note in found.left}
    assert told["trainer.invented"].startswith("it is not a setting that is known here")


def test_a_value_that_only_a_shell_knows_is_left_out_and_told():
    found, config = converted(TRAINING[0], **{"actor_rollout_ref.actor.optim.lr": "$(cat lr)"})
    assert config.training.lr == 1e-6
    (note,) = [note for note in found.left if note.key.endswith("optim.lr")]
    assert "$(cat lr) is not assigned" in note.told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("echo hello\n", "does not call the trainer"),
        ("python3 -m verl.agent_trainer.main_ppo data.x='a", "never closed"),
        (
            "python3 -m verl.agent_trainer.main_ppo actor_rollout_ref.agentgym.task_name=webshop",
            "no environment 'webshop'",
        ),
        (
            "python3 -m verl.agent_trainer.main_ppo algorithm.adv_estimator=remax",
            "remax has no counterpart",
        ),
        ("python3 -m verl.agent_trainer.main_ppo actor_rollout_ref.rollout.n=many", "not a number"),
    ],
)
def test_what_cannot_be_converted_is_refused_in_words(text: str, told: str):
    with pytest.raises(ConfigError, match=told.replace("(", r"\(")):
        convert_script(text, source="script.sh")


def test_an_evaluation_script_names_the_command_that_does_it():
    name = "examples/eval/babyai_eval.sh"
    with pytest.raises(ConfigError) as refused:
        convert_script(script_of(name, "main_generation"), source="babyai_eval.sh")
    assert "--env babyai --tasks AgentEval/babyai/babyai_test.json --rounds 20" in str(
        refused.value
    )


SPLIT = "actor_rollout_ref.actor.ulysses_sequence_parallel_size"


def test_sequences_that_were_split_are_split_here_too():
    found, config = converted(TRAINING[0], **{SPLIT: "4"})
    assert (config.training.sequence_parallel, config.training.shards) == (4, 8)
    assert SPLIT in [note.key for note in found.kept]
    found, config = converted(TRAINING[0], **{SPLIT: "1"})
    assert (config.training.sequence_parallel, config.training.shards) == (1, 1)
    with pytest.raises(ConfigError, match="does not divide"):
        converted(TRAINING[0], **{SPLIT: "3"})


@pytest.mark.parametrize(
    "written",
    ["$1", "$@", "${1:-x}", "$#", "$$", "${A%.sh}", "${#A}", "${A[@]}", "${A:-$B}", "$((1 + 2))",
     "$'a\\n'", "${B:-`x`}", "${A/{/x}}"],
)  # fmt: skip
def test_what_else_a_shell_expands_is_left_out_and_told(written: str):
    script = read_script(f'A=1; run x={written} y=2 z=$ "$"')
    assert script.unresolved == [written]
    assert script.commands == [["run", f"x={written}", "y=2", "z=$", "$"]]
    found, config = converted(TRAINING[0], **{"actor_rollout_ref.model.path": written})
    assert "$" not in config.model.path
    assert [note.told for note in found.left if note.key.endswith("model.path")]


@pytest.mark.parametrize(
    "text", ["A=aaaaaaaa\n" + "A=$A$A\n" * 40, "A=" + "a" * 1000 + "\nrun " + "x=$A " * 9000]
)
def test_variables_that_grow_without_end_are_refused(text: str):
    with pytest.raises(ConfigError, match="grow beyond"):
        convert_script(text, source="script.sh")


def test_nothing_of_a_script_runs(tmp_path: Path):
    mark = tmp_path / "ran"
    text = (
        f"touch {mark}; X=$(touch {mark}) Y=`touch {mark}`\n"
        f"python3 -m verl.agent_trainer.main_ppo algorithm.adv_estimator=grpo "
        f"trainer.experiment_name='$(touch {mark})' actor_rollout_ref.rollout.n=8\n"
    )
    convert_script(text, source="script.sh")
    assert not mark.exists()


def test_a_hostile_value_stays_a_comment_or_a_text():
    changes = {
        "trainer.experiment_name": "'x\n[env]\nname = \"evil\"\n'",
        "actor_rollout_ref.model.path": "'a\" \n[kl]\ncoef = 9\n#'",
    }
    _, config = converted(TRAINING[0], **changes)
    assert config.env.name == "babyai" and config.kl.coef == 0.001
    assert config.model.path == 'a" \n[kl]\ncoef = 9\n#'


def test_no_text_of_a_script_reaches_the_terminal_as_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    changes = {"trainer.experiment_name": "'x\x1b]0;title\x07\u202e'"}
    changes["actor_rollout_ref.model.path"] = "'/a\x1b[2Jb'"
    changes["data.val_files"] = "'$(\x1b[2J)'"
    (tmp_path / "script.sh").write_text(script_of(TRAINING[0], **changes), encoding="utf-8")
    preparing.convert_script(tmp_path / "script.sh", None)
    preparing.convert_script(tmp_path / "script.sh", tmp_path / "my recipe.toml")
    printed = "".join(capsys.readouterr())
    assert not {"\x1b", "\x07", "\u202e"} & set(printed)
    assert f"agentgym train '{tmp_path / 'my recipe.toml'}' --dry-run" in printed


def test_the_shell_reader_fills_in_variables_as_a_shell_does():
    script = read_script(
        "A=1; B=\"$A two\" # not this\nexport C='$A' D=${A}3\n"
        "run x=$B y='${C}' z=${E:-4} \\\n w=$F\n"
    )
    assert script.variables == {"A": "1", "B": "1 two", "C": "$A", "D": "13"}
    assert script.commands == [["run", "x=1 two", "y=${C}", "z=4", "w=$F"]]
    assert script.unresolved == ["$F"]
    assert hydra_overrides(["run", "+x.y=1", "~z", "u=a=b"]) == {"x.y": "1", "u": "a=b"}
