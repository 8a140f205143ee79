"""`agentgym bench rollout` measures what is there, and says what is missing."""

from __future__ import annotations

import pytest

from commands import agentgym

pytestmark = pytest.mark.slow

SMALL = (
    "--model test --device cpu --dtype float32 --rows 4 --context 40 --launches 1 --sequences 4 "
    "--prompt 20 --new 8 --concurrency 4 --rounds 2 --baseline"
)


@pytest.mark.long
def test_a_small_model_on_the_cpu():
    done = agentgym("bench", "rollout", *SMALL.split())
    assert done.status == 0, done.stderr
    for cell in (
        "4 rows, context 40",
        "memory floor",
        "generate (native)",
        "ms a round",
        "engine alone",
    ):
        assert cell in done.stdout
    assert "generate (transformers)" in done.stdout
    assert "4 at once, 4 whole, 2 rounds" in done.stdout


def test_an_unknown_model_is_refused():
    done = agentgym("bench", "rollout", "--model", "nowhere")
    assert done.status == 2
    assert "'nowhere' is neither a model directory nor one of test" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--launches 0", "argument --launches: a whole number of 1 or more, got '0'"),
        ("--context 9000", "--context 9000 with --launches 40 needs 9081 tokens a sequence"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(words: str, told: str):
    done = agentgym("bench", "rollout", "--model", "test", "--device", "cpu", *words.split())
    assert done.status == 2
    assert told in done.stderr and "Traceback" not in done.stderr
