"""Whole training runs at the command line: what they leave, how they stop, go on and fail."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentgym_rl.cli.main import main
from agentgym_rl.config import dump_config, load_config
from agentgym_rl.engines.host import Request
from agentgym_rl.engines.native.engine import NativeEngine, NativeSession
from agentgym_rl.evaluation.report import load_report
from agentgym_rl.runs.folder import RunFolder, read_json_lines
from agentgym_rl.training.collect import collection
from case_shares import spread_over
from commands import DEADLINE_S, Command, Kill, Outcome
from env_servers import server_process
from training_runs import (
    RECIPE,
    episodes_of,
    go_on,
    interrupted,
    is_the_same_run,
    metrics_of,
    refused,
    succeeded,
    train,
    visible_files,
)
from waiting import wait_for

pytestmark = pytest.mark.slow

REQUIRED_KEYS = {
    "step",
    "rollout/success_rate",
    "rollout/reward_mean",
    "rollout/rounds_mean",
    "rollout/max_rounds",
    "rollout/episodes_failed",
    "rollout/tokens_per_s",
    "train/loss",
    "train/kl",
    "train/entropy",
    "train/grad_norm",
    "train/tokens_per_s",
    "time/rollout_s",
    "time/update_s",
    "time/publish_s",
    "time/step_s",
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the small recipe."""
    file = tmp_path_factory.mktemp("recipe") / "small.toml"
    file.write_text(RECIPE)
    return file


@pytest.fixture(scope="module")
def whole_run(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs. Tests read it and leave it as it is."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    assert succeeded(train(recipe, "--run-dir", path))
    return path


@pytest.fixture(scope="module")
def from_model(whole_run: Path) -> list[str]:
    """Overrides that start from a saved model instead of a warm start."""
    return ["warm_start.steps=0", f"model.path={whole_run / 'warm_start' / 'model'}"]


@pytest.fixture(scope="module")
def local_run(recipe: Path, whole_run: Path, from_model: list[str]) -> Path:
    """A run from a saved model with environments in its own process."""
    path = whole_run.with_name("local")
    assert succeeded(train(recipe, *from_model, "--run-dir", path))
    return path


def test_the_run_folder_keeps_its_contract(recipe: Path, whole_run: Path):
    assert (whole_run / "config.toml").read_text() == dump_config(load_config(str(recipe)))
    lines = read_json_lines(whole_run / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 9))
    assert all(line.keys() >= REQUIRED_KEYS for line in lines)
    assert [line["rollout/max_rounds"] for line in lines] == [2, 2, 2, 2, 3, 3, 3, 3]
    evaluated = [line["step"] for line in lines if "eval/babyai/success_rate" in line]
    assert evaluated == [4, 8]
    parts = sorted(file.stem for file in (whole_run / "episodes").iterdir())
    assert parts == [
        *(f"eval-{step:06d}" for step in (0, 4, 8)),
        *(f"train-{step:06d}" for step in range(1, 9)),
    ]
    assert len(episodes_of(whole_run)) == 3 * 4 + 8 * 2 * 4
    assert (whole_run / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert visible_files(whole_run / "eval") == {
        f"step-{step:06d}.{suffix}" for step in (0, 4, 8) for suffix in ("json", "md")
    }


def test_the_small_run_learns_something(whole_run: Path):
    # The tests below compare runs to the last bit, which says little if the weights never change.
    lines = read_json_lines(whole_run / "metrics.jsonl")
    assert sum(line["train/grad_norm"] > 0 for line in lines) >= 6
    assert any(0 < line["rollout/success_rate"] < 1 for line in lines)
    assert len({line["train/entropy"] for line in lines}) == 8


def test_reports_agree_with_the_metrics(whole_run: Path):
    for step in (4, 8):
        report = load_report(whole_run / "eval" / f"step-{step:06d}.json")
        line = read_json_lines(whole_run / "metrics.jsonl")[step - 1]
        assert report.overall.success_rate == line["eval/babyai/success_rate"]
        assert (report.step, report.max_rounds, report.overall.episodes) == (step, 3, 4)


def test_the_model_and_the_checkpoints_load_with_transformers(whole_run: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = RunFolder(whole_run)
    assert run.latest_checkpoint() == run.checkpoint_path(8).resolve()
    assert visible_files(run.checkpoints) >= {"latest", "step-6", "step-8"}
    assert not run.checkpoint_path(4).exists(), "two are kept"
    for folder in (run.model, run.checkpoint_path(6) / "model", run.warm_start / "model"):
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        assert len(tokenizer) <= model.config.vocab_size
        chat = [{"role": "user", "content": "Your goal: go to the red ball"}]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, return_tensors="pt").input_ids
        assert model(ids).logits.isfinite().all()


KILLS = (
    Kill(r"warm_start/metrics\.jsonl", 9),  # during the warm start
    Kill(r"rename .*warm_start/\.model\.writing"),  # after it, before its model has its name
    Kill(r"eval/\.step-000000\.(md|json)", 4),  # between the two files of the first report
    Kill(r"open .*killed/metrics\.jsonl", 2),  # its episodes are written, its line is not
    Kill(r"rename .*checkpoints/\.writing-2$"),  # a checkpoint is whole but has no name
    Kill(r"rename .*checkpoints/\.latest"),  # it has its name, `latest` does not point at it
    Kill(r"\.writing-4"),  # right after the last step of the first stage
    Kill(r"rename .*episodes/\.train-000005"),  # in the first step of the second stage
    Kill(r"rmtree .*checkpoints/step-2$"),  # an old checkpoint is about to go
    Kill(r"rename .*killed/\.model\.writing"),  # all is done but the final model
)


@pytest.mark.parametrize("kills", [KILLS[3::2], pytest.param(KILLS, marks=pytest.mark.long)])
def test_a_run_killed_at_delicate_points_is_the_run_that_never_stopped(
    kills: tuple[Kill, ...], recipe: Path, whole_run: Path, tmp_path: Path
):
    path = tmp_path / "killed"
    start = (recipe, "--run-dir", path)
    for number, kill in enumerate(kills):
        outcome = train(*start, kill=kill) if number == 0 else go_on(path, kill=kill)
        assert outcome.status == -signal.SIGKILL, f"{kill} never happened:\n{outcome.output}"
    assert succeeded(go_on(path))
    assert is_the_same_run(path, whole_run)


@pytest.mark.long
def test_a_run_killed_at_random_moments_is_the_run_that_never_stopped(
    recipe: Path, whole_run: Path, tmp_path: Path
):
    path, rng, num_kills = tmp_path / "killed", random.Random(1), 0
    while num_kills < 8:
        is_begun = (path / "config.toml").exists()
        command = Command("train", "--run-dir", path, *(["--resume"] if is_begun else [recipe]))
        if num_kills:  # only the first kill may come before there is a run
            wait_for((path / "config.toml").exists, DEADLINE_S)
        command.process.join(rng.uniform(0.1, 1.2))
        command.process.kill()
        outcome = command.wait()
        if outcome.status == 0:
            break
        assert outcome.status == -signal.SIGKILL, outcome.output
        num_kills += 1
    assert num_kills > 0, "the run was over too soon to be killed"
    assert succeeded(go_on(path))
    assert is_the_same_run(path, whole_run)


@pytest.mark.long  # test_exact_runs.py has the same with all threads
def test_a_fresh_interpreter_that_is_killed_and_resumed_gives_the_same_run(
    recipe: Path, whole_run: Path, tmp_path: Path
):
    path = tmp_path / "fresh"
    program = "from agentgym_rl.cli.main import main; main()"
    fourth_line = r"Kill(r'open .*fresh/metrics\.jsonl', 4)"
    killed_program = f"from commands import Kill, arm; arm({fourth_line}); {program}"

    def run_fresh(program: str, *words: object) -> subprocess.CompletedProcess[str]:
        # Another seed of hashes: nothing may depend on the order of a set.
        environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": ":".join(sys.path)}
        line = [sys.executable, "-c", program, "train", *map(str, words)]
        return subprocess.run(line, env=environment, capture_output=True, text=True)

    killed = run_fresh(killed_program, recipe, "--run-dir", path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(metrics_of(path)) == 3
    done = run_fresh(program, "--run-dir", path, "--resume")
    assert done.returncode == 0, done.stderr
    assert is_the_same_run(path, whole_run)


@pytest.mark.long
def test_a_run_that_is_interrupted_says_how_to_go_on(recipe: Path, whole_run: Path, tmp_path: Path):
    path = tmp_path / "interrupted"
    third_line = Kill(r"open .*interrupted/metrics\.jsonl", 3, signal.SIGINT)
    outcome = train(recipe, "--run-dir", path, kill=third_line)
    assert interrupted(outcome, f"agentgym train --run-dir {path} --resume")
    assert (path / "learning_curve.png").is_file()
    assert succeeded(go_on(path))
    assert is_the_same_run(path, whole_run)


def test_a_warm_start_can_be_interrupted(recipe: Path, tmp_path: Path):
    path = tmp_path / "interrupted"
    command = Command("train", recipe, "warm_start.steps=5000", "--run-dir", path)
    wait_for(lambda: len(metrics_of(path / "warm_start")) > 2, DEADLINE_S)
    os.kill(command.process.pid or 0, signal.SIGINT)
    assert interrupted(command.wait(), "--resume")
    assert len(metrics_of(path / "warm_start")) < 5000


@pytest.mark.long
def test_another_seed_gives_another_run(recipe: Path, whole_run: Path, tmp_path: Path):
    path = tmp_path / "other"
    assert succeeded(train(recipe, "seed=1", "training.steps=2", "--run-dir", path))
    for line, other in zip(metrics_of(path), metrics_of(whole_run)[:2], strict=True):
        assert line["train/entropy"] != other["train/entropy"]
    tasks = [[row["task_index"] for row in episodes_of(run)] for run in (path, whole_run)]
    assert not set(tasks[0]) <= set(tasks[1])


@pytest.mark.long
def test_a_run_over_http_is_the_run_in_process(
    recipe: Path, local_run: Path, from_model: list[str], tmp_path: Path
):
    path = tmp_path / "http"
    with server_process("babyai", hash_seed=7) as (url, _):
        assert succeeded(train(recipe, *from_model, f"env.url={url}", "--run-dir", path))
    assert metrics_of(path) == metrics_of(local_run)
    assert episodes_of(path) == episodes_of(local_run)


@pytest.mark.long
def test_a_server_that_dies_and_comes_back_changes_nothing(
    recipe: Path, local_run: Path, from_model: list[str], tmp_path: Path
):
    path = tmp_path / "restarted"
    with server_process("babyai") as (url, process):
        # Enough restarts for a second server that takes its time to start.
        patient = (f"env.url={url}", "rollout.max_restarts=5")
        command = Command("train", recipe, *from_model, *patient, "--run-dir", path)
        wait_for(lambda: len(metrics_of(path)) > 0, DEADLINE_S)
        process.kill()
        process.wait()
        program = "import sys; from agentgym_rl.envs.access.serve import Address, EnvServer; "
        program += "EnvServer('babyai', Address(port=int(sys.argv[1]))).run()"
        with subprocess.Popen([sys.executable, "-c", program, url.rpartition(":")[2]]) as second:
            try:
                assert succeeded(command.wait())
            finally:
                second.kill()
    retried = ("rollout/episodes_restarted",)
    assert metrics_of(path, without=retried) == metrics_of(local_run, without=retried)
    assert all(line["rollout/episodes_failed"] == 0 for line in metrics_of(path))


def test_environments_that_raise_hang_and_exit_never_stop_a_run(
    recipe: Path, from_model: list[str], tmp_path: Path
):
    path = tmp_path / "flaky"
    overrides = (
        "env.name=training_runs:FlakyBabyAI",
        "env.timeout_s=4.0",
        "rollout.max_restarts=1",
        "training.tasks_per_step=6",
        "training.steps=3",
        "eval.tasks=8",
        "eval.every=0",
    )
    assert succeeded(train(recipe, *from_model, *overrides, "--run-dir", path))
    lines = read_json_lines(path / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert sum(line["rollout/episodes_failed"] for line in lines) > 0
    assert all(
        line["rollout/episodes_restarted"] >= line["rollout/episodes_failed"] for line in lines
    )
    rows = episodes_of(path)
    failed = [row for row in rows if row["error"]]
    assert {row["stop_reason"] for row in failed} == {"env_error"}
    assert all(row["reward"] is None and not row["samples"] for row in failed)
    assert all(row["reward"] is not None for row in rows if not row["error"])
    retried = [row for row in rows if row["num_restarts"] == 1 and not row["error"]]
    assert retried, "some recovered"
    report = load_report(path / "eval" / "step-000000.json")
    assert report.overall.failed + report.overall.episodes == 8


def test_a_run_in_which_every_episode_fails_stops_and_says_why(
    recipe: Path,
    from_model: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    overrides = ("env.name=fakes:BrokenResetEnv", "env.levels=[]", "eval.tasks=0")
    words = (recipe, *from_model, *overrides, "--run-dir", tmp_path / "broken")
    # In this process, where the pauses between the tries can be short.
    monkeypatch.setattr(collection, "PAUSES_S", (0.01, 0.02))
    monkeypatch.setattr(sys, "argv", ["agentgym", "train", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    outcome = Outcome(ended.value.code, *capsys.readouterr())
    assert refused(
        outcome, "every group of step 1 failed, 3 times", "reset raised OSError: no data"
    )


@pytest.mark.long
def test_a_run_whose_engine_died_ends_at_once_with_the_cause(
    recipe: Path,
    from_model: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    path, choose, num_passes = tmp_path / "dead", NativeEngine._choose, itertools.count()

    def choose_until_the_third_step(engine: NativeEngine) -> list[Request[NativeSession]]:
        if len(metrics_of(path)) == 2:
            raise MemoryError(f"no memory after {next(num_passes)} more passes")
        return choose(engine)

    monkeypatch.setattr(NativeEngine, "_choose", choose_until_the_third_step)
    words = (recipe, *from_model, "eval.tasks=0", "--run-dir", path)
    monkeypatch.setattr(sys, "argv", ["agentgym", "train", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    outcome = Outcome(ended.value.code, *capsys.readouterr())
    assert outcome.status == 1
    assert "the engine's thread died: MemoryError: no memory after 0 more passes" in outcome.output
    assert f"agentgym train --run-dir {path} --resume" in outcome.output
    monkeypatch.undo()
    assert succeeded(go_on(path))
    assert len(metrics_of(path)) == 8


def test_a_resumed_run_keeps_its_settings(recipe: Path, whole_run: Path):
    before = (whole_run / "config.toml").read_bytes()
    assert refused(
        go_on(whole_run, "training.lr=1.0"), "changed against the run in", "training.lr ("
    )
    assert refused(
        go_on(whole_run, recipe, "seed=3", "rounds.rounds=[2,4]"), "rounds.rounds (", ", seed ("
    )
    assert refused(go_on(whole_run, "training.stepps=9"), "training.stepps: unknown key")
    assert (whole_run / "config.toml").read_bytes() == before


@pytest.mark.long
def test_a_resumed_run_may_be_computed_in_another_way(whole_run: Path, tmp_path: Path):
    path = tmp_path / "moved"
    shutil.copytree(whole_run, path, symlinks=True)
    changed = ("model.device=auto", "training.tokens_per_batch=700", "engine.max_batch_tokens=512")
    assert succeeded(go_on(path, "training.steps=10", *changed))
    assert len(metrics_of(path)) == 10


@pytest.mark.long
def test_a_finished_run_goes_on_when_its_steps_are_raised(
    recipe: Path, whole_run: Path, tmp_path: Path
):
    path, longer = tmp_path / "raised", tmp_path / "longer"
    shutil.copytree(whole_run, path, symlinks=True)
    killed = go_on(path, "training.steps=11", kill=Kill(r"raised/metrics\.jsonl$", 3))
    assert killed.status == -signal.SIGKILL
    assert succeeded(go_on(path)), "the raised number is remembered"
    assert len(metrics_of(path)) == 11
    assert succeeded(train(recipe, "training.steps=11", "--run-dir", longer))
    assert is_the_same_run(path, longer)


@pytest.mark.long
def test_a_finished_run_that_is_resumed_stays_as_it_is(whole_run: Path, tmp_path: Path):
    path = tmp_path / "again"
    shutil.copytree(whole_run, path, symlinks=True)
    assert succeeded(go_on(path))
    assert is_the_same_run(path, whole_run)


MISTAKES = [
    (["quikstart"], ["no recipe 'quikstart' (did you mean 'quickstart'?)"]),
    (["no/such.toml"], ["no recipe file 'no/such.toml'"]),
    (["RECIPE", "training.stepps=9"], ["training.stepps: unknown key (did you mean 'steps'"]),
    (["RECIPE", "training.steps=0"], ["training.steps: ", "got 0"]),
    (["RECIPE", "env.name=babiai"], ["unknown environment 'babiai' (did you mean 'babyai'?)"]),
    (["RECIPE", "env.name=nowhere:Env"], ["'nowhere:Env'", "no module 'nowhere'"]),
    (["RECIPE", "env.levels=['GoToMoon']"], ["env.levels: babyai has no 'GoToMoon'"]),
    (["RECIPE", "env.categories=['Moon']"], ["env.categories: babyai has no 'Moon'"]),
    (["RECIPE", "env.split=dev"], ["babyai has no split 'dev'; it has train, test"]),
    (["RECIPE", "env.eval_split=dev"], ["babyai has no split 'dev'"]),
    (["RECIPE", "env.options.colour=red"], ["babyai' has no option 'colour'"]),
    (["RECIPE", "env.url=127.0.0.1:1"], ["starts with http://", "'127.0.0.1:1'"]),
    (["RECIPE", "warm_start.steps=0", "model.path=DIR/none"], ["DIR/none", "model.path takes"]),
    (["RECIPE", "env.url=http://127.0.0.1:1", "env.token_file=DIR/no"], ["DIR/no"]),
    (["RECIPE", "--run-dir", "FILE"], ["FILE"]),
    (["--resume"], ["--resume needs the folder of the run", "--run-dir"]),
    (["--resume", "--run-dir", "DIR/none"], ["there is no folder DIR/none"]),
]


@pytest.mark.parametrize(
    ("words", "told"),
    spread_over(MISTAKES, 5),
    ids=lambda value: " ".join(value) if value and isinstance(value, list) else None,
)
def test_a_mistake_is_one_line_that_names_it(
    words: list[str], told: list[str], recipe: Path, tmp_path: Path
):
    def fill_in(text: str) -> str:
        text = text.replace("RECIPE", str(recipe)).replace("FILE", str(recipe))
        return text.replace("DIR", str(tmp_path))

    arguments = [fill_in(word) for word in words]
    if "RECIPE" in words and "--run-dir" not in words:
        arguments += ["--run-dir", str(tmp_path / "run")]
    assert refused(train(*arguments), *map(fill_in, told))


def test_a_run_cannot_go_back_to_fewer_steps(whole_run: Path):
    before = visible_files(whole_run)
    outcome = train("--run-dir", whole_run, "--resume", "training.steps=1")
    assert refused(outcome, "training.steps=1, but the run", "give a larger number")
    assert visible_files(whole_run) == before


def test_a_folder_that_holds_a_run_is_not_used_for_another(recipe: Path, whole_run: Path):
    before = visible_files(whole_run)
    outcome = train(recipe, "--run-dir", whole_run)
    assert refused(outcome, f"{whole_run} holds a run already", "--resume")
    assert visible_files(whole_run) == before


def test_two_processes_do_not_write_one_run(recipe: Path, whole_run: Path):
    with RunFolder(whole_run).locked():
        assert refused(go_on(whole_run), "is in use by another process")
