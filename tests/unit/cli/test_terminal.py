"""Ctrl-C while libraries are imported, and messages that repeat themselves."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.table import Table

from agentgym_rl.cli.main import main
from agentgym_rl.cli.terminal import (
    FewRepeats,
    interruptible_imports,
    print_markdown,
    print_table,
    suggest,
)

SWALLOWS = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal
from agentgym_rl.cli.terminal import interruptible_imports
with interruptible_imports():
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass  # as an import may
print("still here")
"""


class Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_an_interrupt_ends_the_process_though_an_import_swallows_exceptions():
    done = subprocess.run([sys.executable, "-c", SWALLOWS], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")
    assert done.stderr == "error: stopped while starting; nothing was begun\n"


def test_an_interrupted_command_says_that_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentgym_rl.cli.environments.list_environments", interrupted)
    monkeypatch.setattr(sys, "argv", ["agentgym", "envs"])
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command line adds to it
    with pytest.raises(SystemExit, match="130"):
        main()
    assert capsys.readouterr().err == "stopped\n"


def test_a_table_in_a_file_fits_80_columns_and_has_whole_texts(capsys: pytest.CaptureFixture[str]):
    table = Table("name", "what")
    table.add_row("one", "word " * 60 + "x" * 100)
    print_table(table)
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    assert told.count("word") == 60 and told.count("x") == 100 and "…" not in told


def test_a_table_in_markdown_keeps_its_long_words(capsys: pytest.CaptureFixture[str]):
    names = [f"{name}WithALongName" for name in ("One", "Two", "Three", "Four", "Five", "Six")]
    print_markdown(f"|{'|'.join(names)}|\n|{'---|' * len(names)}\n|{'a|' * len(names)}\n")
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80 and "…" not in told


@pytest.fixture
def before() -> Iterator[None]:
    """Gives Ctrl-C back the meaning that it has to the tests."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("before")
def test_an_interrupt_after_the_imports_is_an_exception_again():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with interruptible_imports():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("before")
def test_a_command_in_the_background_goes_on():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible_imports():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_few_of_many_messages_of_one_wording_are_told_and_the_rest_counted():
    now = 0.0
    logger, told = logging.Logger("one"), Told()
    logger.addFilter(FewRepeats(lambda: now))
    logger.addHandler(told)
    for number in range(40):
        logger.warning("episode %d failed", number)
    logger.warning("something else: %s", "once")
    now = 11.0
    logger.warning("episode %d failed", 40)
    logger.warning("episode %d failed", 41)
    assert told.lines == [
        *(f"episode {number} failed" for number in range(5)),
        "something else: once",
        "episode 40 failed (and 35 more like it before)",
        "episode 41 failed",
    ]


def test_messages_still_held_back_at_the_end_are_told(caplog: pytest.LogCaptureFixture):
    logger, repeats = logging.Logger("one"), FewRepeats(lambda: 0.0)
    logger.addFilter(repeats)
    for number in range(40):
        logger.warning("episode %d failed", number)
    logger.warning("something else")
    repeats.tell_rest()
    repeats.tell_rest()
    assert caplog.messages == ["35 more like: episode 39 failed"]


def test_a_suggested_command_can_be_copied(capsys: pytest.CaptureFixture[str]):
    suggest(["agentgym", "ui", Path("my runs/it's")], ["agentgym", "eval", "a\x1b[2J\nb\u202e"])
    first, second = capsys.readouterr().out.splitlines()
    assert shlex.split(first) == ["next", "agentgym", "ui", "my runs/it's"]
    assert second == "        agentgym eval 'a[U+001B][2J[U+000A]b[U+202E]'"


@pytest.mark.long
def test_the_command_line_tells_of_few_failed_episodes():
    program = (
        "import contextlib, sys; sys.argv[1:] = ['--version']\n"
        "from agentgym_rl.cli.main import main\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "from agentgym_rl.rollout import episode; print(episode.logger.filters)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "FewRepeats" in done.stdout, done.stderr
