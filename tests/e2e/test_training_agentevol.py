"""AgentEvol in whole runs: two iterations, killed and resumed: the run that never stopped."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agentgym_rl.training.data.conversation_files import read_conversations
from commands import Kill
from training_runs import RECIPE, go_on, is_the_same_run, metrics_of, succeeded, train

pytestmark = pytest.mark.slow

OPTIONS = [
    "algorithm.type=agentevol",
    "algorithm.group_size=4",
    "training.tasks_per_step=8",
    "training.steps=3",
    "training.epochs_per_step=2",
    "training.lr=2e-3",
    "rounds.type=fixed",
    "rounds.rounds=3",
    "checkpoint.every=1",
    "eval.every=1",
]


LORA = ["lora.rank=4", "training.lr=1e-2"]


@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [
        [],
        ["algorithm.num_demos=8", *LORA],
        ["algorithm.restart=base"],
        ["algorithm.restart=base", *LORA],
    ],
    ids=["plain", "demonstrations and LoRA", "from the base", "from the base with LoRA"],
)
def test_a_killed_run_is_the_run_that_never_stopped(more: list[str], tmp_path: Path):
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert succeeded(train(recipe, *OPTIONS, *more, "--run-dir", whole))
    third = Kill(r"rename .*episodes/\.train-000003")  # its data and its model are there already
    outcome = train(recipe, *OPTIONS, *more, "--run-dir", killed, kill=third)
    assert outcome.status == -signal.SIGKILL, outcome.output
    assert succeeded(go_on(killed))
    assert is_the_same_run(killed, whole)
    lines = metrics_of(whole)
    kept = [line["train/episodes_kept"] for line in lines]
    assert kept == sorted(kept) and kept[0] > 0, "successes accumulate"
    for step, line in enumerate(lines, start=1):
        folders = [run / "iterations" / f"step-{step}" for run in (whole, killed)]
        data = list(read_conversations(folders[0] / "conversations.jsonl"))
        assert len(data) == line["train/episodes_kept"] + line["train/demos"]
        for name in ("conversations.jsonl", "model/model.safetensors"):
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
