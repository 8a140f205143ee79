"""The benchmark of the experts: tasks of every level, or those of a recipe."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import expert_bench


def test_tasks_of_every_level(capsys: pytest.CaptureFixture[str]):
    expert_bench.main(["--env", "textcraft", "--per-level", "1"])
    assert "textcraft: 4 of 4 tasks solved (100.0%)" in capsys.readouterr().out


def test_the_held_out_tasks_of_a_recipe_within_its_limit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    recipe = tmp_path / "short.toml"
    recipe.write_text('extends = "qwen_textcraft"\n[eval]\ntasks = 20\nmax_rounds = 3\n')
    expert_bench.main(["--recipe", str(recipe)])
    out = capsys.readouterr().out
    assert "of 20 tasks solved" in out
    assert "longest 3" in out
    assert "not solved: textcraft/" in out
