"""A run whose warm start trains the adapter too: it is its model and one adapter, and resumes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

import agentgym_rl as ag
from agentgym_rl.runs.folder import RunFolder
from training_runs import RECIPE

pytestmark = pytest.mark.slow

SETTINGS = {
    "lora.rank": 4,
    "warm_start.steps": 4,
    "warm_start.num_demos": 8,
    "training.steps": 2,
    "checkpoint.every": 1,
    "eval.tasks": 0,
}


@pytest.mark.long
def test_a_warm_start_of_the_adapter_resumes_from_the_checkpoint_alone(tmp_path: Path):
    recipe, base = tmp_path / "small.toml", tmp_path / "base"
    recipe.write_text(RECIPE)
    begun = {"warm_start.steps": 0, "training.steps": 1, "eval.tasks": 0}
    shutil.copytree(ag.train(recipe, begun, run_dir=tmp_path / "first").folder / "model", base)
    settings = SETTINGS | {"model.path": str(base)}
    run = ag.train(recipe, settings, run_dir=tmp_path / "whole")
    warm = load_file(
        RunFolder(run.folder / "warm_start").model / "adapter/adapter_model.safetensors"
    )
    assert any(bool(weight.any()) for name, weight in warm.items() if "lora_B" in name)
    stopped = ag.train(recipe, settings | {"training.steps": 1}, run_dir=tmp_path / "stopped")
    # What a machine keeps that has little room: the adapter and the learner.
    shutil.rmtree(stopped.folder / "warm_start")
    for weights in stopped.folder.rglob("model.safetensors"):
        weights.unlink()
    resumed = ag.train(None, {"training.steps": 2}, run_dir=stopped.folder, resume=True)
    last = [
        RunFolder(one.folder).model / "adapter/adapter_model.safetensors" for one in (run, resumed)
    ]
    expected, found = map(load_file, last)
    assert all(bool((found[name] == weight).all()) for name, weight in expected.items())
