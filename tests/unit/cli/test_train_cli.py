"""`agentgym train` before anything is trained: --dry-run, and what a resumed run may change."""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agentgym_rl.api.plan import changed_keys
from agentgym_rl.cli.main import main
from agentgym_rl.config import dump_config, load_config, parse_config
from agentgym_rl.runs.folder import RunFolder

_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None  # importing either fails
from agentgym_rl.cli.main import main
main()
"""


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command line adds to it


@pytest.fixture
def agentgym(monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs a command line and gives its status."""

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["agentgym", *words])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        return code if isinstance(code, int) else 0

    return run


def make_run(path: Path, *overrides: str) -> RunFolder:
    run = RunFolder(path)
    run.create(dump_config(load_config("quickstart", overrides)))
    return run


def test_a_dry_run_prints_the_resolved_recipe_without_torch(tmp_path: Path):
    words = ["train", "quickstart", "seed=3", "algorithm.group_size=4", "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TORCH, *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = load_config("quickstart", ["seed=3", "algorithm.group_size=4"])
    assert done.stdout == dump_config(expected)
    assert parse_config(tomllib.loads(done.stdout), source="printed") == expected
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


@pytest.mark.parametrize(
    ("words", "overrides"),
    [
        ([], []),
        (["quickstart"], []),
        (["seed=5"], ["seed=5"]),
        (["seed=5", "quickstart", "training.steps=7"], ["seed=5", "training.steps=7"]),
    ],
)
def test_the_recipe_may_be_left_out_or_stand_anywhere(
    agentgym, capsys: pytest.CaptureFixture[str], words: list[str], overrides: list[str]
):
    assert agentgym("train", *words, "--dry-run") == 0
    assert capsys.readouterr().out == dump_config(load_config("quickstart", overrides))


def test_a_recipe_may_be_a_file(agentgym, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "mine.toml").write_text("seed = 9\n")
    assert agentgym("train", "mine.toml", "--dry-run") == 0
    assert tomllib.loads(capsys.readouterr().out)["seed"] == 9


def test_two_recipes_are_refused(agentgym, capsys: pytest.CaptureFixture[str]):
    assert agentgym("train", "quickstart", "another", "--dry-run") == 2
    assert "quickstart, another" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--training.lr", "--training.lr=1"])
def test_a_setting_written_as_an_option_is_told_how_to_write_it(
    agentgym, capsys: pytest.CaptureFixture[str], word: str
):
    assert agentgym("train", "quickstart", word, "1") == 2
    assert "a setting is written without dashes: training.lr=VALUE" in capsys.readouterr().err


def test_a_mistake_is_one_line_and_status_2(agentgym, capsys: pytest.CaptureFixture[str]):
    assert agentgym("train", "algorithm.groupsize=4", "--dry-run") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: quickstart: algorithm.groupsize: unknown key (did you")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("override", "told"),
    [
        (
            'env.levels=["GoToLocol"]',
            "env.levels: babyai has no 'GoToLocol' (did you mean 'GoToLocal",
        ),
        ('env.categories=["Fly"]', "env.categories: babyai has no 'Fly'"),
        ("env.split=dev", "babyai has no split 'dev'"),
        ("env.eval_split=dev", "no split 'dev' to evaluate on; it has train, test: choose"),
    ],
)
def test_tasks_that_the_environment_does_not_have_are_refused_at_once(
    agentgym, capsys: pytest.CaptureFixture[str], override: str, told: str
):
    assert agentgym("train", override, "--dry-run") == 2
    assert told in capsys.readouterr().err


def test_a_resumed_dry_run_prints_the_recipe_of_the_run(
    agentgym, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    make_run(tmp_path / "one", "seed=4")
    words = ("train", "--run-dir", "one", "--resume", "--dry-run", "training.steps=999")
    assert agentgym(*words) == 0
    printed = parse_config(tomllib.loads(capsys.readouterr().out), source="printed")
    assert printed == load_config("quickstart", ["seed=4", "training.steps=999"])


@pytest.mark.parametrize(
    ("schedule", "override", "warns"),
    [
        ("linear", "training.steps=999", True),
        ("constant", "training.steps=999", False),
        ("linear", "checkpoint.every=3", False),
    ],
)
def test_more_steps_with_a_falling_rate_are_warned_about(
    agentgym,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    schedule: str,
    override: str,
    warns: bool,
):
    make_run(tmp_path / "one", f"training.lr_schedule={schedule}")
    assert agentgym("train", "--run-dir", "one", "--resume", "--dry-run", override) == 0
    assert ("the learning rate is that of a run of 999 steps" in caplog.text) == warns


@pytest.mark.parametrize(
    "override",
    [
        "training.steps=999",
        "checkpoint.every=3",
        "checkpoint.keep=9",
        "eval.every=7",
        "env.timeout_s=5",
        "env.url=http://127.0.0.1:1",
        "env.token_file=secret",
        "rollout.max_concurrency=7",
    ],
)
def test_what_does_not_change_what_is_learned_may_change(agentgym, tmp_path: Path, override: str):
    make_run(tmp_path / "one")
    assert agentgym("train", "--run-dir", "one", "--resume", "--dry-run", override) == 0


def done(path: Path, num_steps: int, *overrides: str) -> RunFolder:
    """Make the folder of a run as it is after so many steps."""
    run = make_run(path, *overrides)
    for step in range(1, num_steps + 1):
        run.append_metrics({"step": step})
    written = run.checkpoints / ".writing"
    written.mkdir(parents=True)
    run.complete_checkpoint(written, num_steps, keep=1)
    return run


def test_a_lost_link_to_the_newest_checkpoint_is_told(
    agentgym, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    run = done(tmp_path / "one", 3)
    assert agentgym("train", "--run-dir", "one", "--resume", "--dry-run") == 0
    assert not caplog.records
    (run.checkpoints / "latest").unlink()
    assert agentgym("train", "--run-dir", "one", "--resume", "--dry-run") == 0
    assert "does not point at a checkpoint: the run resumes from step-3" in caplog.text


@pytest.mark.parametrize("kind", ["fixed", "adaptive"])
def test_lost_metrics_are_told_and_refused_where_they_decide(
    agentgym,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    kind: str,
):
    rounds = {"fixed": "8", "adaptive": "[3,8]"}[kind]
    run = done(tmp_path / "one", 4, f"rounds.type={kind}", f"rounds.rounds={rounds}")
    lines = run.metrics_file.read_text().splitlines()
    run.metrics_file.write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    status = agentgym("train", "--run-dir", "one", "--resume", "--dry-run")
    told = caplog.text + capsys.readouterr().err
    assert "metrics.jsonl lacks 1 of the steps done, the first is 2" in told
    assert (status == 0, "put the file back" in told) == (kind == "fixed", kind == "adaptive")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("engine.python=/no/such/python", "engine.python=/no/such/python is not a program"),
        (
            "engine.url=http://127.0.0.1:1",
            "no vLLM server answers at engine.url=http://127.0.0.1:1",
        ),
    ],
)
def test_a_server_that_cannot_be_had_is_told_before_anything_is_computed(
    agentgym, tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, told: str
):
    words = ["engine.type=vllm", override, "--run-dir", "one"]
    assert agentgym("train", "quickstart", *words) != 0
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "one" / "warm_start").exists()


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("seed=99", "seed"),
        ("training.lr=1", "training.lr"),
        ("eval.tasks=3", "eval.tasks"),
        ("algorithm.group_size=3", "algorithm.group_size"),
        ("env.options.show_actions=true", "env.options.show_actions"),
        ("model.path=other", "model.path"),
    ],
)
def test_what_changes_what_is_learned_may_not(
    agentgym, capsys: pytest.CaptureFixture[str], tmp_path: Path, override: str, key: str
):
    make_run(tmp_path / "one")
    assert agentgym("train", "--run-dir", "one", "--resume", "--dry-run", override) == 2
    assert capsys.readouterr().err.startswith(f"error: changed against the run in one: {key} (")


def test_a_run_that_is_not_there_is_not_resumed(
    agentgym, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    make_run(tmp_path / "runs" / "mine")
    assert agentgym("train", "--resume", "--run-dir", "runs/mini") == 2
    told = capsys.readouterr().err
    assert "no folder runs/mini (did you mean 'runs/mine'?); `agentgym runs` lists" in told


def test_a_recipe_given_with_resume_is_compared_with_that_of_the_run(
    agentgym, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    make_run(tmp_path / "one", "seed=4")
    words = ("train", "quickstart", "--run-dir", "one", "--resume", "--dry-run")
    assert agentgym(*words, "seed=4") == 0
    assert agentgym(*words) == 2
    told = capsys.readouterr().err
    assert "changed against the run in one: seed (4, now 0); a run resumes with" in told
    assert "in its folder: agentgym train --resume --run-dir one (in Python" in told
    more = ("training.steps=999", "tracking=['tensorboard']")
    assert agentgym(*words, *more) == 2
    said = shlex.join(["--run-dir", "one", *more])
    assert f"agentgym train --resume {said} (" in capsys.readouterr().err
    assert agentgym("train", "--resume", "--run-dir", "one", *more, "--dry-run") == 0


def test_changed_keys_are_named_to_their_depth():
    old = load_config("quickstart", ["env.options.a=1"])
    new = load_config("quickstart", ["env.options.b=1", "model.tiny.num_layers=7", "seed=99"])
    assert changed_keys(old, old) == []
    assert changed_keys(old, new) == [
        "env.options.a",
        "env.options.b",
        "model.tiny.num_layers",
        "seed",
    ]


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("env.options={bogus=1}", "environment 'babyai' has no option 'bogus'"),
        ("env.options.show_actions=3", "must be true or false, got 3"),
        ("env.name=babiai", "did you mean 'babyai'"),
    ],
)
def test_a_dry_run_checks_the_options_of_the_environment(
    agentgym, capsys: pytest.CaptureFixture[str], override: str, told: str
):
    assert agentgym("train", override, "--dry-run") == 2
    captured = capsys.readouterr()
    assert told in captured.err and captured.out == ""


@pytest.mark.parametrize("words", [[], ["env.name=webarena", "env.url=http://127.0.0.1:1"]])
def test_a_dry_run_needs_neither_data_nor_a_server(agentgym, words: list[str]):
    assert agentgym("train", "paper/searchqa-grpo", *words, "--dry-run") == 0


def test_a_refused_run_leaves_nothing_behind(
    agentgym, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    assert agentgym("train", "paper/searchqa-grpo", "model.path=tiny") == 2
    assert "data/searchqa" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_refused_run_leaves_a_folder_that_was_there(agentgym, tmp_path: Path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "notes.txt").touch()
    assert (
        agentgym("train", "paper/searchqa-grpo", "model.path=tiny", "--run-dir", "runs/mine") == 2
    )
    assert (tmp_path / "runs" / "mine" / "notes.txt").exists()
    assert agentgym("train", "paper/searchqa-grpo", "model.path=tiny", "--run-dir", "runs/new") == 2
    assert [item.name for item in (tmp_path / "runs").iterdir()] == ["mine"]
