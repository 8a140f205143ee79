"""The benchmark of the experts: tasks of every level, or those of a recipe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import expert_bench

from agentgym_rl.errors import ConfigError


def recipe(folder: Path, evaluation: str) -> str:
    path = folder / "short.toml"
    path.write_text(f'extends = "qwen_textcraft"\n[eval]\n{evaluation}\n')
    return str(path)


def test_tasks_of_every_level(capsys: pytest.CaptureFixture[str]):
    expert_bench.main(["--env", "textcraft", "--per-level", "1"])
    assert "textcraft: 4 of 4 tasks solved (100.0%)" in capsys.readouterr().out


def test_the_held_out_tasks_of_a_recipe_within_its_limit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    expert_bench.main(["--recipe", recipe(tmp_path, "tasks = 20\nmax_rounds = 3")])
    out = capsys.readouterr().out
    assert "of 20 tasks solved" in out
    assert "longest 3" in out
    assert "not solved: textcraft/" in out


def test_a_limit_in_which_nothing_can_be_solved(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    expert_bench.main(["--recipe", recipe(tmp_path, "tasks = 2\nmax_rounds = 1")])
    out = capsys.readouterr().out
    assert "textcraft: 0 of 2 tasks solved (0.0%)" in out
    assert "longest" not in out


def test_a_recipe_that_evaluates_on_nothing_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"eval\.tasks=0"):
        expert_bench.main(["--recipe", recipe(tmp_path, "tasks = 0")])
