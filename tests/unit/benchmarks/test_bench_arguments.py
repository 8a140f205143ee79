"""Options of benchmarks that make no sense: refused by name, with the value and what is allowed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import rollout_bench
import train_bench

from agentgym_rl.errors import ConfigError

FROM_1 = "a whole number of 1 or more"
BETWEEN = "a number above 0 and below 1"


def complaint(program: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(program).main(words)
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("program", "option", "value", "wanted"),
    [
        *(
            ("rollout_bench", f"--{name}", "0", FROM_1)
            for name in (
                *("rows", "context", "launches", "sequences", "prompt", "new"),
                *("concurrency", "rounds", "repeats"),
            )
        ),
        ("rollout_bench", "--rows", "many", FROM_1),
        ("rollout_bench", "--vllm-memory", "1", BETWEEN),
        ("rollout_bench", "--device", "foo", "one of auto, cpu, cuda"),
        ("train_bench", "--device", "foo", "one of auto, cpu, cuda"),
        ("train_bench", "--length", "1", "a whole number of 2 or more"),
        ("train_bench", "--sequences", "0", FROM_1),
        ("train_bench", "--tokens-per-pass", "63", "a whole number of 64 or more"),
        ("train_bench", "--action-share", "7", BETWEEN),
        ("train_bench", "--action-share", "nan", BETWEEN),
        ("train_bench", "--shared", "1", BETWEEN),
        ("train_bench", "--group", "1", "a whole number of 2 or more"),
        ("train_bench", "--updates", "0", FROM_1),
        ("train_bench", "--warm", "-1", "a whole number of 0 or more"),
        ("env_bench", "--seconds", "0", "a number of 0.5 or more"),
        ("env_soak", "--lease", "inf", "a number above 0"),
        ("expert_bench", "--per-level", "0", FROM_1),
        ("ui_bench", "--repeats", "0", FROM_1),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(
    program: str, option: str, value: str, wanted: str, capsys: pytest.CaptureFixture[str]
):
    told = complaint(program, [option, value], capsys)
    assert told.endswith(f": error: argument {option}: {wanted}, got {value!r}")


def test_one_of_several_numbers_is_told(capsys: pytest.CaptureFixture[str]):
    told = complaint("env_bench", ["--episodes", "1,x"], capsys)
    assert told.endswith(f"argument --episodes: {FROM_1}, got 'x'")


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
@pytest.mark.parametrize("program", ["rollout_bench", "train_bench"])
def test_a_gpu_that_is_not_there_is_told(program: str, capsys: pytest.CaptureFixture[str]):
    told = complaint(program, ["--device", "cuda"], capsys)
    assert "argument --device: torch" in told and "take cpu, or auto" in told


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_the_kernel_of_attention_needs_a_gpu(capsys: pytest.CaptureFixture[str]):
    assert "the kernel runs on a GPU" in complaint("attention_bench", [], capsys)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--parts decode --context 8192 --launches 1", "--context 8192 with --launches 1"),
        ("--parts decode --context 9 --launches 3000", "--context 9 with --launches 3000"),
        ("--parts generate --prompt 8000 --new 193", "--prompt 8000 with --new 193"),
        ("--parts between --baseline --prompt 8192 --new 1", "--prompt 8192 with --new 1"),
    ],
)
def test_what_the_context_cannot_hold_is_refused_before_anything_is_measured(words: str, told: str):
    with pytest.raises(ConfigError) as caught:
        rollout_bench.main(["--model", "test", "--device", "cpu", *words.split()])
    assert told in str(caught.value)
    assert "but test has a context of 8192" in str(caught.value)


def test_decoding_fills_the_context_to_its_last_token(capsys: pytest.CaptureFixture[str]):
    sizes = "--parts decode --rows 1 --context 8189 --launches 1"
    rollout_bench.main(["--model", "test", "--device", "cpu", "--no-compile", *sizes.split()])
    assert "context 8189" in capsys.readouterr().out


def test_the_fewest_tokens_are_enough_for_an_update(capsys: pytest.CaptureFixture[str]):
    sizes = "--length 2 --sequences 1 --tokens-per-pass 64 --action-share 0.01 --updates 1 --warm 0"
    words = ["--model", "test", "--device", "cpu", "--dtype", "float32", "--ways", "plain"]
    train_bench.main([*words, *sizes.split()])
    assert "plain" in capsys.readouterr().out
