"""Options of the learner in whole runs, killed and resumed: the run that never stopped."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agentgym_rl.runs.folder import RunFolder, read_json_lines
from commands import Kill
from training_runs import RECIPE, go_on, is_the_same_run, succeeded, train

pytestmark = pytest.mark.slow

LORA = ["lora.rank=4", "lora.alpha=8", "training.lr=5e-3"]
RUNS = {
    "lora with a reference": [*LORA, "kl.coef=0.01", "training.lr_schedule=cosine"],
    "lora without a warm start": [
        *LORA,
        "warm_start.steps=0",
        "algorithm.type=sft",
        "eval.tasks=0",
    ],
    "bfloat16": ["model.dtype=bfloat16", "training.gradient_checkpointing=true"],
    "lora in bfloat16": [*LORA, "model.dtype=bfloat16"],
}


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_is_the_run_that_never_stopped(name: str, tmp_path: Path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert succeeded(train(recipe, *RUNS[name], "--run-dir", whole))
    sixth_line = Kill(r"open .*killed/metrics\.jsonl", 6)
    outcome = train(recipe, *RUNS[name], "--run-dir", killed, kill=sixth_line)
    assert outcome.status == -signal.SIGKILL, outcome.output
    assert succeeded(go_on(killed))
    assert is_the_same_run(killed, whole)
    lines = read_json_lines(whole / "metrics.jsonl")
    assert sum(line["train/grad_norm"] > 0 for line in lines) >= 4, "something was learned"
    if "lora" in name:
        assert (RunFolder(whole).model / "adapter" / "adapter_config.json").exists()
    if "reference" in name:
        rates = [line["train/lr"] for line in lines]
        assert rates == sorted(rates, reverse=True) and rates[-1] == 0.0
