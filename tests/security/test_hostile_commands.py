"""Commands over run folders that somebody else made: they start nothing that the folder names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agentgym_rl.api.eval_plan import eval_config  # what a model is evaluated with
from agentgym_rl.cli.stores import run_rescoring
from agentgym_rl.config import VllmEngineConfig
from agentgym_rl.errors import AgentGymError, ConfigError
from agentgym_rl.evaluation.compare import compare_folders
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder
from ui_servers import episode, make_run


def by_rounds(episode: object) -> float:
    return 0.5


def evaluation(folder: Path) -> Path:
    """Write an evaluation as `agentgym eval` leaves it."""
    write_episodes(folder, [[episode(0, 0)]], phase="eval", step=0)
    (folder / "report.json").write_text(json.dumps({"max_rounds": 9, "split": "test"}))
    return folder


def test_evaluating_starts_no_program_of_the_run(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    run.create(
        '[env]\nname = "textcraft"\n[engine]\ntype = "vllm"\n'
        'python = "/tmp/program"\nargs = ["--trust-remote-code"]\n'
    )
    engine = eval_config(str(run.path), "textcraft", []).engine
    assert isinstance(engine, VllmEngineConfig) and (engine.python, engine.args) == ("", ())
    own = eval_config(str(run.path), "textcraft", ["engine.python=/usr/bin/python3"])
    assert isinstance(own.engine, VllmEngineConfig) and own.engine.python == "/usr/bin/python3"


def test_evaluating_sends_no_file_that_the_run_names(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    run.create(
        '[env]\nname = "textcraft"\nurl = "http://127.0.0.1:1"\ntoken_file = "/etc/hostname"\n'
    )
    assert eval_config(str(run.path), "textcraft", []).env.token_file == ""
    own = eval_config(str(run.path), "textcraft", ["env.token_file=/my/token"])
    assert own.env.token_file == "/my/token"


def test_evaluating_imports_no_environment_that_only_the_run_names(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    run.create('[env]\nname = "antigravity:Anything"\n')
    with pytest.raises(ConfigError, match="add --env"):
        eval_config(str(run.path), "")


def test_rescoring_a_run_whose_parts_or_metrics_are_pipes(tmp_path: Path):
    for name in ("metrics.jsonl", "episodes/train-000009.parquet"):
        run = make_run(tmp_path / name.replace("/", "-"), num_steps=1)
        (run.path / name).unlink(missing_ok=True)
        os.mkfifo(run.path / name)
        with pytest.raises((AgentGymError, OSError), match="not a regular file"):
            run_rescoring(run.path, f"{__name__}:by_rounds", tmp_path / f"{run.path.name}-out")


@pytest.mark.parametrize("name", ["report.json", "evaluation.json", "eval-000000.parquet"])
def test_comparing_folders_of_pipes_and_nonsense(tmp_path: Path, name: str):
    good, bad = evaluation(tmp_path / "good"), evaluation(tmp_path / "bad")
    (bad / name).unlink(missing_ok=True)
    for content in (b"[" * 100_000, b"\xff\xfe", b"{}"):
        (bad / name).write_bytes(content)
        with pytest.raises(AgentGymError):
            compare_folders(good, bad)
    (bad / name).unlink()
    os.mkfifo(bad / name)
    with pytest.raises(AgentGymError):
        compare_folders(good, bad)
