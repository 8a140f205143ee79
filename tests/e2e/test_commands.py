"""The commands beside `train`, as a user types them: real processes, real output."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import commands
from agentgym_rl.config import TinyModelConfig
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.tiny import build_tiny_model, train_tokenizer
from case_shares import spread_over
from commands import Outcome

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = "from agentgym_rl.cli.main import main; main()"
GUESS = "examples.guess_number:GuessNumber"


def agentgym(*words: object, stdin: str = "") -> Outcome:
    return commands.agentgym(*words, stdin=stdin, folder=ROOT)


def is_refused(result: Outcome, *told: str) -> bool:
    """Whether the command ended with one line of error that tells all of `told`."""
    lines = result.stderr.strip().splitlines()
    return (
        result.status == 2
        and len(lines) == 1
        and lines[0].startswith("error: ")
        and all(word in lines[0] for word in told)
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows nothing, saved as a directory."""
    folder = tmp_path_factory.mktemp("models") / "model"
    tokenizer = train_tokenizer(["go to the red ball 1", "turn left"], vocab_size=300)
    config = TinyModelConfig(hidden_size=32, num_layers=1)
    policy = Policy(build_tiny_model(config, tokenizer, seed=0), tokenizer, ChatRenderer(tokenizer))
    policy.save(folder)
    return folder


@pytest.mark.long
def test_looking_around_makes_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path))
    for command in ("envs", "doctor"):
        result = agentgym(command)
        assert result.status == 0, result.stderr
        assert "searchqa" in result.stdout and "textcraft" in result.stdout
        assert list(tmp_path.iterdir()) == []


def test_check_passes_the_example_environment():
    result = agentgym("check", GUESS, "--tasks", 4)
    assert result.status == 0, result.stdout + result.stderr
    assert "the expert solves 100.0%" in result.stdout
    assert "the contract holds" in result.stdout


def test_check_says_in_words_what_is_wrong():
    result = agentgym("check", "tests.fakes:BrokenResetEnv", "--tasks", 2)
    assert result.status == 1
    assert "\n- " in result.stdout and "Traceback" not in result.stderr


def test_demos_writes_conversations_that_parse(tmp_path: Path):
    file = tmp_path / "demos.jsonl"
    assert agentgym("demos", "textcraft", "-n", 3, "-o", file).status == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 3
    assert all(row["messages"][-1]["content"].count("Action:") == 1 for row in rows)


def test_play_acts_asks_the_expert_and_leaves():
    result = agentgym("play", GUESS, stdin="?\nnonsense\n\n")
    assert result.status == 0
    assert "31" in result.stdout and "That is no number" in result.stdout


def test_eval_reports_a_saved_model(model: Path, tmp_path: Path):
    out = tmp_path / "report"
    words = ("eval", model, "--env", "babyai", "--limit", 3, "--rounds", 2, "--out", out)
    result = agentgym(*words, "rollout.max_tokens_per_round=8")
    assert result.status == 0, result.stderr
    report = json.loads((out / "report.json").read_text())
    assert report["overall"]["episodes"] == 3 and report["max_rounds"] == 2
    assert (out / "report.md").exists() and (out / "eval-000000.parquet").exists()


def test_eval_compares_horizons_with_several_samples(model: Path, tmp_path: Path):
    out = tmp_path / "report"
    words = ("eval", model, "--env", "babyai", "--limit", 3, "-k", 2, "--rounds", "1,2")
    result = agentgym(*words, "--out", out, "rollout.max_tokens_per_round=8")
    assert result.status == 0, result.stderr
    reports = json.loads((out / "report.json").read_text())["reports"]
    assert [report["max_rounds"] for report in reports] == [1, 2]
    assert all(report["overall"]["episodes"] == 6 for report in reports)
    assert list(reports[0]["several"]["pass_at"]) == ["1", "2"]
    assert "| at most | 1 rounds | 2 rounds |" in (out / "report.md").read_text()
    for name in ("rounds-1", "rounds-2"):
        assert (out / name / "report.json").exists() and (out / name / "report.md").exists()
        assert (out / name / "eval-000000.parquet").exists()


def test_serve_answers_and_stops_on_sigterm():
    server = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "serve", "textcraft", "--port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split(" at ")[1].split()[0]
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=20) in (0, -signal.SIGTERM)
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("words", "told"),
    spread_over(
        [
            (("play", "babyia"), ("babyia", "babyai")),
            (("play", "babyai", "--task", "99999999"), ("99999999",)),
            (("check", "no.such:Env"), ("no",)),
            (("demos", "babyai", "-n", "1", "-o", "/dev/null", "--split", "x"), ("'x'", "train")),
            (("demos", "babyai", "-n", "1", "-o", "x", "--format", "poem"), ("poem", "react")),
            (("serve", "textcraft", "--host", "0.0.0.0"), ("0.0.0.0", "token")),
            (("serve", "textcraft", "depth=3"), ("depth", "num_distractors")),
            (("eval", "./nowhere", "--env", "babyai"), ("./nowhere",)),
        ],
        3,
    ),
)
def test_a_mistake_is_one_line_that_names_it(words: tuple[str, ...], told: tuple[str, ...]):
    result = agentgym(*words)
    assert is_refused(result, *told), result.stderr


def test_doctor_names_what_is_here_and_how_to_get_the_rest():
    done = agentgym("doctor")
    assert done.status == 0, done.stderr
    machine = ("Python", "torch", "GPU", "C compiler", "Java", "browser")
    for word in (*machine, "flash-attn-4", "peft", "gguf", "vllm", "sciworld"):
        assert word in done.stdout


@pytest.mark.long
def test_bench_measures_an_environment_beside_its_baselines(tmp_path: Path):
    file = tmp_path / "found.json"
    words = ("--env", "textcraft", "--episodes", "8", "--seconds", "1", "--json", file)
    done = agentgym("bench", "env", *words)
    assert done.status == 0, done.stderr
    found = {row["way"]: row for row in json.loads(file.read_text())}
    ours = {"ours", "ours, least client"}
    assert set(found) == {"bare loop", "baseline server", *ours}
    assert all(row["steps_per_s"] > 10 for row in found.values()), found
    assert is_refused(agentgym("bench", "evn"), "'evn'", "did you mean 'env'?")


@pytest.mark.long
def test_a_short_soak_finds_no_leak():
    done = agentgym("bench", "soak", "--total", 2000, "--episodes", 100, "--lease", 5)
    assert done.status == 0, done.stderr + done.stdout
    assert "nothing leaks" in done.stdout
