"""`agentgym play` and `demos`: options of the environment, and which tasks are taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentgym_rl.cli.main import app
from agentgym_rl.errors import AgentGymError

COUNTING = "fakes:CountingEnv"


def run(*words: object, stdin: str = "") -> str:
    done = CliRunner().invoke(app, [*map(str, words)], input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def tasks_of(file: Path) -> list[str]:
    return [json.loads(line)["task"] for line in file.read_text().splitlines()]


def test_play_takes_options_of_the_environment():
    assert "add 3" in run("play", COUNTING, stdin="\n")
    told = run("play", COUNTING, "largest=2", stdin="\n")
    assert "add 2" in told and "add 3" not in told


def test_an_environment_without_a_split_for_testing_is_played_and_checked():
    assert "Goal: 1." in run("play", "fakes:UntestedEnv", stdin="q\n")
    assert "eval.tasks=0" in run("check", "fakes:UntestedEnv", "--tasks", 2)


@pytest.mark.slow
def test_play_shows_the_instructions_that_options_make():
    assert "python: code" in run("play", "searchqa", "python=true")


@pytest.mark.slow
def test_demos_take_options_of_the_environment(tmp_path: Path):
    run("demos", COUNTING, "largest=1", "-n", 10, "-o", tmp_path / "slow.jsonl")
    run("demos", COUNTING, "-n", 10, "-o", tmp_path / "fast.jsonl")
    assert (tmp_path / "slow.jsonl").stat().st_size > (tmp_path / "fast.jsonl").stat().st_size


def test_demos_are_of_the_split_by_seed_and_of_a_category(tmp_path: Path):
    file = tmp_path / "demos.jsonl"
    run("demos", COUNTING, "-n", 4, "-o", file)
    tasks = tasks_of(file)
    assert len(set(tasks)) == 4
    run("demos", COUNTING, "-n", 4, "-o", file)
    assert tasks_of(file) == tasks
    run("demos", COUNTING, "-n", 4, "-o", file, "--seed", 1)
    assert tasks_of(file) != tasks
    run("demos", COUNTING, "-n", 2, "-o", file, "--category", "large")
    assert all(int(task.removeprefix("counting/")) >= 10 for task in tasks_of(file))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["play", COUNTING, "larges=2"], "did you mean 'largest'"),
        (["play", COUNTING, "largest"], "'largest' is not of the form key=value"),
        (
            ["demos", COUNTING, "largest=many", "-n", "1", "-o", "x"],
            "must be a whole number, got 'many'",
        ),
        (["demos", COUNTING, "-n", "1", "-o", "x", "--category", "larg"], "did you mean 'large'"),
    ],
)
def test_mistakes_are_told(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, AgentGymError), match=told):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []
