"""The benchmark of generation: it runs on a CPU, and says why where nothing can be measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import rollout_bench
import rollout_peer
from bench_episodes import EpisodeLoad

from agentgym_rl.errors import ConfigError, RunError
from engine_plays import endless_policy
from fake_engines import ScriptedEngine


def test_replies_are_measured_on_a_cpu(capsys: pytest.CaptureFixture[str]):
    options = "--model test --device cpu --dtype float32 --no-compile --parts generate"
    sizes = "--sequences 2 --prompt 8 --new 4 --repeats 1"
    rollout_bench.main([*options.split(), *sizes.split()])
    assert "2 prompts of 8, 4 new" in capsys.readouterr().out


PEER = """
import json, sys
assert "--reply-tokens" in sys.argv and "--max-context" in sys.argv
print("INFO loading")
print(json.dumps({"part": "generate", "number": 2, "timings": [[8, 2.0], [8, 1.0], [8, 4.0]]}))
"""


def test_a_peer_in_another_python_has_rows_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    program = tmp_path / "peer.py"
    program.write_text(PEER)
    plain = rollout_peer.peer_words
    monkeypatch.setattr(
        rollout_peer,
        "peer_words",
        lambda *given: [sys.executable, str(program), *plain(*given)[2:]],
    )
    options = "--model test --device cpu --dtype float32 --no-compile --parts generate"
    sizes = "--sequences 2 --prompt 8 --new 4 --repeats 1 --peer python"
    rollout_bench.main([*options.split(), *sizes.split()])
    shown = capsys.readouterr().out
    assert "generate (vLLM in process)" in shown and "4 tokens/s" in shown, "8 tokens in 2 s"
    program.write_text("raise SystemExit(1)")
    with pytest.raises(ConfigError, match="vLLM in process failed with status 1"):
        rollout_bench.main([*options.split(), *sizes.split()])


async def test_episodes_that_all_fail_end_the_measurement_with_their_error():
    policy = endless_policy()  # its context is too short for the prompt
    with pytest.raises(RunError, match=r"every episode failed, .* leaves no room for a reply"):
        await rollout_bench.measure_episodes(
            "scripted",
            ScriptedEngine(["get 1 log"]),
            policy,
            2,
            EpisodeLoad(rounds=1),
            repeats=1,
            has_alone=True,
        )
