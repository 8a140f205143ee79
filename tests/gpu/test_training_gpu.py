"""Whole runs on a GPU: a warm start, online learning with a reference, a stop and a resume."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from agentgym_rl.models.flops import peak_flops
from agentgym_rl.runs.folder import read_json_lines
from commands import Command
from training_runs import RECIPE, succeeded

ON_GPU = ("model.device=cuda", "model.dtype=bfloat16")


def train(*arguments: object) -> bool:
    return succeeded(Command("train", *arguments).wait(timeout_s=280.0))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(RECIPE)
    return file


@pytest.mark.parametrize(
    "settings",
    [
        ("kl.coef=0.01",),
        ("training.compile=true", "training.gradient_checkpointing=true"),
        ("algorithm.type=ppo",),
        ("lora.rank=4", "kl.coef=0.01"),
    ],
    ids=lambda settings: settings[0],
)
def test_a_run_learns_there_and_goes_on_from_its_checkpoint(
    settings: tuple[str, ...], recipe: Path, tmp_path: Path
):
    if "lora.rank=4" in settings:
        pytest.importorskip("peft")
    run = tmp_path / "run"
    assert train(recipe, *ON_GPU, *settings, "training.steps=4", "--run-dir", run)
    assert train("--run-dir", run, "--resume", "training.steps=6")
    lines = list(read_json_lines(run / "metrics.jsonl"))
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    for line in lines:
        assert math.isfinite(line["train/loss"]) and line["rollout/episodes_failed"] == 0
        # Engine and learner round differently in bfloat16, but sample from the same policy.
        assert line["train/logprob_diff"] < 0.1
    has_peak = peak_flops(torch.cuda.get_device_name()) is not None
    learned = [line for line in lines if "train/tokens_per_s" in line]
    assert learned and all(("train/mfu" in line) == has_peak for line in learned)


def test_a_model_trained_on_a_gpu_is_resumed_on_the_cpu(recipe: Path, tmp_path: Path):
    run = tmp_path / "run"
    assert train(recipe, "model.device=cuda", "training.steps=2", "--run-dir", run)
    assert train("--run-dir", run, "--resume", "training.steps=4", "model.device=cpu")
    assert len(list(read_json_lines(run / "metrics.jsonl"))) == 4
