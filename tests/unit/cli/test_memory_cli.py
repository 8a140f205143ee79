"""`agentgym doctor RECIPE` and the memory that `agentgym train --dry-run` reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_rl.cli import memory
from agentgym_rl.cli.main import main
from agentgym_rl.config import dump_config, load_config
from agentgym_rl.sizing.machine import GIB, Machine

_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None  # importing either fails
from agentgym_rl.cli.main import main
main()
"""
_80 = ("--gpus", "4", "--gpu-memory", "80")


@pytest.fixture
def agentgym(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Return a function that runs a command line in an empty folder and gives its status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(memory, "this_machine", lambda: Machine((), ram_bytes=16 * GIB))

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["agentgym", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        return code if isinstance(code, int) else 0

    return run


def test_a_recipe_is_sized_for_another_machine_without_torch(tmp_path: Path):
    words = ["doctor", "qwen_textcraft", "training.shards=4", *_80]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "1.54 billion weights on such a machine: 4 x GPU of 80 GiB" in done.stdout
    for word in ("optimiser", "keys and values", "GPU 0 of 80.0", "each of GPUs 1-3", "fits, by"):
        assert word in done.stdout


def test_what_cannot_fit_is_refused_with_what_would(agentgym, capsys: pytest.CaptureFixture[str]):
    path = "model.path=Qwen/Qwen2.5-7B-Instruct"
    assert agentgym("doctor", "paper/textcraft-grpo", path, *_80) == 2
    told = capsys.readouterr()
    assert "optimiser" in told.out, "the table shows why"
    assert "alone take 127.7 GiB of GPU 0, which has 80.0 GiB: set training.shards=4" in told.err


def test_what_may_not_fit_is_told_and_not_refused(agentgym, capsys: pytest.CaptureFixture[str]):
    assert agentgym("doctor", "qwen_textcraft", "--gpu-memory", "48") == 0
    told = capsys.readouterr().out
    assert "may not fit: GPU 0 has 48.0 GiB and is estimated to need" in told
    assert "set training.gradient_checkpointing=true" in told


def test_a_mistake_names_the_remedy(agentgym, capsys: pytest.CaptureFixture[str]):
    assert agentgym("doctor", "--gpus", "2") == 2
    assert "need a RECIPE" in capsys.readouterr().err
    assert agentgym("doctor", "quickstart", "--gpus", "2") == 2
    assert "--gpu-memory" in capsys.readouterr().err
    assert agentgym("doctor", "quickstart", "model.path=some/unheard-of-model") == 2
    assert "hf download some/unheard-of-model config.json" in capsys.readouterr().err
    assert agentgym("doctor", "qwen_textcraft", "training.shards=8", *_80) == 2
    assert "training.shards=8 needs that many GPUs" in capsys.readouterr().err


def test_a_dry_run_tells_the_memory_apart_from_the_settings(
    agentgym, capsys: pytest.CaptureFixture[str]
):
    assert agentgym("train", "qwen_textcraft", "--dry-run") == 0
    told = capsys.readouterr()
    assert told.out == dump_config(load_config("qwen_textcraft"))
    assert "on this machine: no GPU, 16.0 GiB" in told.err
    assert "a run here is refused: weights, optimiser and gradients alone take 25.9" in told.err
    assert agentgym("train", "quickstart", "--dry-run") == 0
    assert capsys.readouterr().err == "", "a tiny model needs no table"
    assert agentgym("train", "quickstart", "model.path=some/unheard-of-model", "--dry-run") == 0
    assert "memory: 'some/unheard-of-model' is not on this machine" in capsys.readouterr().err
