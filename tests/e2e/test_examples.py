"""The examples run: short settings of what they show."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path

import pytest

import agentgym_rl as ag
from training_runs import RECIPE, succeeded, train

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ["training.steps=2", "warm_start.steps=2", "eval.tasks=0"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_the_whole_method_trains():
    import whole_method  # an example, on the path for these tests

    work = whole_method.train(steps=2, warm_start_steps=2, num_eval_tasks=4)
    before, after = asyncio.run(work)
    assert 0.0 <= before <= 1.0 and 0.0 <= after <= 1.0


def test_the_whole_method_fits_into_one_reading():
    assert len((EXAMPLES / "whole_method.py").read_text().splitlines()) <= 220


def test_a_custom_algorithm_from_a_recipe_and_from_python(tmp_path: Path):
    from custom_algorithm import OnlyBetter  # as above

    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    named = "algorithm.type=examples.custom_algorithm:OnlyBetter"
    assert succeeded(train(recipe, *SHORT, named, "--run-dir", tmp_path / "named"))
    run = ag.train(recipe, SHORT, algorithm=OnlyBetter, run_dir=tmp_path / "given")
    assert run.config.algorithm.type == "custom_algorithm:OnlyBetter"
    assert run.metrics["train/better_share"] == ag.Run("named").metrics["train/better_share"]


def test_a_script_with_everything_of_its_own(tmp_path: Path):
    # As a script: nothing of it can be imported by its name.
    script = runpy.run_path(str(EXAMPLES / "everything_custom.py"))
    tiny = {"vocab_size": 300, "hidden_size": 32, "num_layers": 1, "num_heads": 2}
    report = script["main"](
        {
            "model.tiny": tiny,
            "warm_start": {"steps": 4, "num_demos": 4, "batch_size": 4},
            "training": {"steps": 2, "tasks_per_step": 2, "updates_per_step": 1},
            "eval.tasks": 0,
        }
    )
    assert report.overall.episodes == 16 and "solved" in report.reward_parts
    (folder,) = (tmp_path / "runs").iterdir()
    config = ag.Run(folder).config
    assert config.env.name == "<object>:<run_path>.Echo"
    assert config.algorithm.type.endswith("Halved") and config.env.levels == ()


@pytest.mark.long
def test_the_cells_of_the_python_api(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(EXAMPLES / "python_api.py"))
    assert "rollout/success_rate" in capsys.readouterr().out


@pytest.mark.parametrize("action_format", ["direct", "function_call"])
def test_tools_train_in_words_and_as_tool_calls(tmp_path: Path, action_format: str):
    from tool_environment import Thermostat  # as above

    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    settings = [*SHORT, f"agent.format={action_format}", "rollout.max_tokens_per_round=32"]
    run = ag.train(recipe, [*settings, "env.levels=[]"], env=Thermostat, run_dir=tmp_path / "run")
    assert run.metrics["rollout/episodes_failed"] == [0.0, 0.0] and run.metrics["train/loss"]


def test_the_recipe_of_customer_service_trains(tmp_path: Path):
    recipe = EXAMPLES / "customer_service" / "recipe.toml"
    tiny = "model.tiny={ vocab_size = 320, hidden_size = 32, num_layers = 1 }"
    few = ["training.tasks_per_step=2", "warm_start.num_demos=8", "algorithm.group_size=2"]
    run = ag.train(recipe, [*SHORT, *few, tiny], run_dir=tmp_path / "run")
    assert run.config.env.levels and run.metrics["rollout/episodes_failed"] == [0.0, 0.0]
