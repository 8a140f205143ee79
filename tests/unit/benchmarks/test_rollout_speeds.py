"""The benchmark of generation: it runs on a CPU, and says why where nothing can be measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import rollout_bench

from agentgym_rl.errors import RunError
from engine_plays import endless_policy
from fake_engines import ScriptedEngine


def test_replies_are_measured_on_a_cpu(capsys: pytest.CaptureFixture[str]):
    options = "--model test --device cpu --dtype float32 --no-compile --parts generate"
    sizes = "--sequences 2 --prompt 8 --new 4 --repeats 1"
    rollout_bench.main([*options.split(), *sizes.split()])
    assert "2 prompts of 8, 4 new" in capsys.readouterr().out


async def test_episodes_that_all_fail_end_the_measurement_with_their_error():
    policy = endless_policy()  # its context is too short for the prompt
    with pytest.raises(RunError, match=r"every episode failed, .* leaves no room for a reply"):
        await rollout_bench.measure_episodes(
            "scripted",
            ScriptedEngine(["get 1 log"]),
            policy,
            2,
            rounds=1,
            repeats=1,
            has_alone=True,
        )
