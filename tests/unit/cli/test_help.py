"""What the command line says of itself: help, versions, completions, exit statuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from agentgym_rl import __version__
from agentgym_rl.cli.app import app
from agentgym_rl.cli.main import main, status_of
from agentgym_rl.config.recipes import packaged_recipes
from agentgym_rl.envs import registry
from agentgym_rl.errors import ConfigError, EnvError, RunError, RunFailedError

PROGRAM = "import sys; sys.argv[0] = 'agentgym'; from agentgym_rl.cli.main import main; main()"
COMMANDS = list(get_command(app).commands)  # type: ignore[attr-defined]  # it is a group


def told(*words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command line that ends with status 0; return what it printed."""
    monkeypatch.setattr(sys, "argv", ["agentgym", *words])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    return capsys.readouterr().out


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "bench"])
def test_every_help_has_examples_fits_80_columns_and_shows_no_types(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = told(command, "--help", monkeypatch=monkeypatch, capsys=capsys)
    assert f"Examples:\n    agentgym {command}" in text
    assert not re.search(r"<(bool|str|path|int|float|list)", text)
    assert "[[" not in text
    lines = text.partition("Examples:")[0].splitlines()
    assert max(map(len, lines)) <= 80


def test_the_list_of_commands_is_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = told("--help", monkeypatch=monkeypatch, capsys=capsys)
    assert "..." not in text.partition("Commands:")[2].partition("Examples:")[0]
    assert all(f"  {command} " in text for command in COMMANDS)
    assert "--version" in text and "--install-completion" in text and "130 Ctrl-C" in text
    version = told("--version", monkeypatch=monkeypatch, capsys=capsys)
    assert version == f"agentgym-rl {__version__}\n"


def completions(words: str, folder: Path) -> list[str]:
    """Return what a shell offers at the end of a line."""
    environment = {
        **os.environ,
        "_AGENTGYM_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("agentgym con", {"convert", "convert-config"}),
        (
            "agentgym train paper/textcraft-s",
            {"paper/textcraft-sft", "paper/textcraft-scaling-inter"},
        ),
        ("agentgym train quickstart training.lr", {"training.lr=", "training.lr_schedule="}),
        ("agentgym play babya", {"babyai"}),
        ("agentgym report runs/m", {"runs/mine"}),
    ],
)
def test_a_shell_completes_commands_recipes_settings_environments_and_runs(
    words: str, offered: set[str], tmp_path: Path
):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.toml").touch()
    assert set(completions(words, tmp_path)) == offered


def test_completion_is_installed_for_a_shell(tmp_path: Path):
    environment = {**os.environ, "HOME": str(tmp_path)}
    # Otherwise the shell is that of the parent process: of `make` it is sh.
    environment["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    command = [sys.executable, "-c", PROGRAM, "--install-completion", "bash"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "_AGENTGYM_COMPLETE" in "".join(
        file.read_text() for file in tmp_path.rglob("*") if file.is_file()
    )


def test_all_recipes_and_environments_can_be_completed():
    from agentgym_rl.cli.app import complete_env, complete_recipe

    assert list(complete_recipe("")) == list(packaged_recipes())
    assert list(complete_env("")) == list(registry.names())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("x"), 2),
        (ValueError("x"), 2),
        (RunError("x"), 2),
        (RunFailedError("x"), 1),
        (EnvError("x"), 1),
        (OSError("x"), 1),
    ],
)
def test_an_exit_status_says_whether_the_command_or_the_work_was_wrong(
    error: Exception, status: int
):
    assert status_of(error) == status


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("init", "world", "x"), "'world' is not one of 'env', 'agent', 'algorithm'"),
        (("check", "babyai", "--tasks", "0"), "must be at least 1, got '0'"),
        (("check", "babyai", "--tasks", "x"), "must be a whole number, got 'x'"),
        (("ui", "--port", "70000"), "must be at most 65535, got '70000'"),
    ],
)
def test_an_option_is_refused_with_its_value_and_what_is_allowed(
    words: tuple[str, ...],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(sys, "argv", ["agentgym", *words])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit, match="2"):
        main()
    told = " ".join(capsys.readouterr().err.split())
    assert sentence in told and "Value error" not in told and "Input should" not in told


@pytest.mark.parametrize("module", ["agentgym_rl", "agentgym_rl.cli.main"])
def test_python_runs_the_command_line_as_a_module(module: str):
    line = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"agentgym-rl {__version__}\n"


def test_the_help_of_benchmarks_names_each_and_fits_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    text = told("bench", "--help", monkeypatch=monkeypatch, capsys=capsys)
    assert "Examples:\n    agentgym bench" in text and "  web-load " in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("words", [("train", "nowhere"), ("trian",), ("check",)])
def test_wrong_usage_is_status_2(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["agentgym", *words])
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_a_hub_that_cannot_be_reached_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    # Nothing listens on port 9, and the proxies of this machine are not asked.
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    words = ["agentgym", "train", "quickstart", "model.path=nobody/nothing"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and error.count("\n") == 1
    assert "no model 'nobody/nothing' here" in error and "the hub cannot be reached" in error
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
