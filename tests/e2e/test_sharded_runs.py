"""Whole runs whose learner is on two processes: the same model, and resuming."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from safetensors.torch import load_file

import agentgym_rl as ag
from training_runs import RECIPE, metrics_of

pytestmark = [pytest.mark.slow, pytest.mark.long]

SETTINGS = {
    "warm_start.steps": 4,
    "warm_start.num_demos": 8,
    "training.steps": 2,
    "checkpoint.every": 1,
    "eval.tasks": 2,
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


def test_fixed_data_makes_the_model_of_one_process(recipe: Path, tmp_path: Path):
    settings = {
        "algorithm.type": "sft",
        "algorithm.num_demos": 8,
        "algorithm.batch_size": 3,
        "training.steps": 4,
        "eval.tasks": 0,
    }
    plain = recipe.with_name("sft.toml")
    sections = RECIPE.split("[algorithm]")[0].split("[warm_start]")[0]
    plain.write_text(sections + "[training]\nlr = 5e-4\n")
    runs = [
        ag.train(plain, settings | {"training.shards": num}, run_dir=tmp_path / str(num))
        for num in (1, 2)
    ]
    expected, found = (load_file(run.folder / "model/model.safetensors") for run in runs)
    assert expected.keys() == found.keys()
    assert all((found[name] - expected[name]).abs().max() < 1e-5 for name in expected)


@pytest.mark.parametrize("more", [{}, {"sequence_parallel": 2, "offload": "all"}])
def test_a_run_on_two_ranks_resumes_in_one_process(
    more: dict[str, object], recipe: Path, tmp_path: Path
):
    settings = SETTINGS | {f"training.{name}": value for name, value in more.items()}
    run = ag.train(recipe, settings | {"training.shards": 2}, run_dir=tmp_path / "run")
    assert not [child for child in multiprocessing.active_children() if "learner" in child.name]
    alone = {"training.sequence_parallel": 1, "training.offload": "none", "training.shards": 1}
    ag.train(None, {"training.steps": 3, **alone}, run_dir=run.folder, resume=True)
    lines = metrics_of(run.folder)
    assert [line["step"] for line in lines] == [1, 2, 3]
    # Before the first update of each step, learner and engine agree: each step was published.
    assert all(line["train/logprob_diff"] < 1e-4 for line in lines)


def test_exploring_and_imitating_makes_the_model_of_one_process(recipe: Path, tmp_path: Path):
    warm = ag.train(
        recipe, SETTINGS | {"training.steps": 1, "warm_start.steps": 20}, run_dir=tmp_path / "warm"
    )
    settings = {
        "model.path": str(warm.folder / "warm_start" / "model"),
        "warm_start.steps": 0,
        "algorithm.type": "agentevol",
        "algorithm.restart": "base",
        "training.steps": 2,
        "training.tasks_per_step": 8,
        "eval.tasks": 0,
    }
    runs = [
        ag.train(recipe, settings | {"training.shards": num}, run_dir=tmp_path / str(num))
        for num in (1, 2)
    ]
    lines = [metrics_of(run.folder) for run in runs]
    assert all(line["train/updates"] > 0 for line in lines[0])
    for name in ("train/episodes_kept", "train/updates", "rollout/reward_mean"):
        assert [line[name] for line in lines[0]] == [line[name] for line in lines[1]]
    expected, found = (load_file(run.folder / "model/model.safetensors") for run in runs)
    assert all((found[name] - expected[name]).abs().max() < 1e-5 for name in expected)
