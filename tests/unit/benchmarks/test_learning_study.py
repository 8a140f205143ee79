"""`agentgym bench learning`: a mistake in a study is told before anything is run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from agentgym_rl.cli.bench import run_benchmark
from agentgym_rl.errors import ConfigError, RunError
from case_shares import spread_over

REPOSITORY = Path(__file__).parents[3]
GOOD = """
title = "Two ways"
overrides = ["training.steps=2"]

[[variants]]
name = "GRPO"
recipe = "quickstart"

[[variants]]
name = "SFT after"
recipe = "small/babyai-sft"
start = "GRPO"
overrides = ["model.path={start}/warm_start/model"]
"""


@pytest.fixture(autouse=True)
def _restored_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command line adds to it


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    import study_files  # lies in no package: its folder is on the path in these tests only

    return study_files


def write(folder: Path, text: str = GOOD) -> str:
    file = folder / "study.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def learn(tmp_path: Path, text: str, *words: str) -> None:
    run_benchmark("learning", [write(tmp_path, text), "--out", str(tmp_path / "out"), *words])


@pytest.mark.parametrize(
    "name",
    spread_over(
        sorted(file.stem for file in (REPOSITORY / "benchmarks" / "studies").glob("*.toml")), 3
    ),
)
def test_our_studies_pass_the_checks(files: ModuleType, tmp_path: Path, name: str):
    files.check_runs(files.read_study(name), tmp_path, [0])


def test_what_ties_a_run_to_another_comes_after_the_commands_overrides(
    files: ModuleType, tmp_path: Path
):
    study = files.read_study(write(tmp_path), ["eval.tasks=3"])
    assert study.overrides_of(study.variants[1], tmp_path, 7) == [
        "seed=7",
        "training.steps=2",
        "eval.tasks=3",
        f"model.path={tmp_path / 'grpo-seed7'}/warm_start/model",
    ]


def test_a_variant_comes_after_the_one_it_starts_from(files: ModuleType, tmp_path: Path):
    third = '[[variants]]\nname = "last"\nrecipe = "quickstart"\nstart = "SFT after"\n'
    text = GOOD.replace("[[variants]]", third + "[[variants]]", 1)
    study = files.read_study(write(tmp_path, text))
    assert [variant.name for variant in study.in_order()] == ["GRPO", "SFT after", "last"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('title = "Two ways"', "", "title: missing"),
        ("title =", "titel =", "titel: unknown key (did you mean 'title'?); legal here: title,"),
        ("[[variants]]", "[[variant]]", "variants: missing"),
        (GOOD[GOOD.index("[[") :], "variants = []", "variants: there must be a [[variants]]"),
        ('recipe = "quickstart"', "", "variants.0.recipe: missing"),
        ("start =", "strat =", "variants.1.strat: unknown key (did you mean 'start'?)"),
        ('["training.steps=2"]', '"training.steps=2"', "overrides: a list such as"),
        ('["model.path={start}/warm_start/model"]', '"seed=1"', "variants.1.overrides: a list"),
        ('name = "GRPO"', "name = 3", "variants.0.name: Input should be a valid string, got 3"),
        ('name = "GRPO"', 'name = "a/b"', "variant 'a/b': a name is words for a folder"),
        ('name = "GRPO"', 'name = "sft-After"', "have the same folder (sft-after-seed0)"),
        ('start = "GRPO"', 'start = "GRPPO"', "'GRPPO' is no variant (did you mean 'GRPO'?)"),
        ('start = "GRPO"', "", "{start} needs `start`"),
        ('start = "GRPO"', 'start = "SFT after"', "start from one another"),
        ('["training.steps=2"]', '["seed=2"]', "give seeds with --seeds"),
        ('"training.steps=2"', '"training.stepps=2"', "variant 'GRPO': quickstart: training."),
        ("model.path=", "modle.path=", "variant 'SFT after': small/babyai-sft: modle: unknown"),
        ("training.steps=2", "env.name=nowhere", "variant 'GRPO': unknown environment 'nowhere'"),
        ("training.steps=2", "env.options.x=1", "variant 'GRPO': environment 'babyai' has no"),
        ("training.steps=2", "eval.tasks=0", "variant 'GRPO': eval.tasks=0 leaves nothing"),
        ('"small/babyai-sft"', '"small/babyai-stf"', "variant 'SFT after': no recipe"),
        ('"Two ways"', '"Two ways', "cannot read"),
    ],
)
def test_a_mistake_is_told_before_anything_is_run(tmp_path: Path, old: str, new: str, told: str):
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        learn(tmp_path, GOOD.replace(old, new))
    assert told in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_study_that_is_not_there_is_told_with_those_that_are(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"'horizon' \(did you mean 'horizons'\?\).*algorithms"):
        run_benchmark("learning", ["horizon", "--out", str(tmp_path)])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seeds", "-1"], "argument --seeds: a whole number of 0 or more, got '-1'"),
        (["--seeds", "one"], "argument --seeds: a whole number of 0 or more, got 'one'"),
        (["--seeds", "1", "1"], "--seeds: each once, got 1 1"),
        (["--jobs", "0"], "argument --jobs: a whole number of 1 or more, got '0'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
):
    with pytest.raises(SystemExit):
        learn(tmp_path, GOOD, *words)
    assert told in capsys.readouterr().err


@pytest.mark.long
def test_a_failed_run_is_told_with_variant_seed_and_what_it_said_last(tmp_path: Path):
    text = GOOD.replace("training.steps=2", "model.path=./nowhere")
    with pytest.raises(RunError, match=r"variant 'GRPO', seed 4 ended with 2: .*'\./nowhere'"):
        learn(tmp_path, text, "--seeds", "4", "5", "--jobs", "1")
    assert [log.name for log in (tmp_path / "out").glob("*.log")] == ["grpo-seed4.log"]
