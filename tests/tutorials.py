"""Plays the tutorials of the documentation: their files are written, their commands are run.

On a page of `docs/`:

- a block ```` ```console ```` holds commands after `$ ` (a line that ends with a backslash
  continues), and what they print; `...` stands for any lines;
- a block with a title, ```` ```python title="guess.py" ````, is a file;
- the comment `<!-- short: WORDS -->` before a block has words that make its commands take moments:
  `make test` adds them, `make test-all` runs the page as it is written and compares what it prints,
  numbers aside;
- `<!-- not run: WHY -->` before a block leaves it out, `<!-- refused: WHY -->` expects its commands
  to fail.
"""

from __future__ import annotations

import glob
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from commands import Command

DOCS = Path(__file__).parents[1] / "docs"
LIMIT_S = 1200.0
"""For one command; far more than one takes, because the machine may be busy."""

_BLOCK = re.compile(
    r"^(?:<!-- (?P<note>short|not run|refused): (?P<words>[^\n]*) -->\n)?"
    r"```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_MEANS = {"make train": "agentgym train"}
"""Commands of a clone, and what they run once everything is installed."""


@dataclass(frozen=True)
class Step:
    """A command of a page with what it prints, or a file."""

    command: str
    printed: tuple[str, ...] = ()
    short: str = ""
    is_refused: bool = False
    file: str = ""
    text: str = ""


def steps(page: str) -> Iterator[Step]:
    """Yield what a reader of the page does, in order."""
    for block in _BLOCK.finditer((DOCS / page).read_text("utf-8")):
        if block["note"] == "not run":
            continue
        if block["title"]:
            yield Step("", file=block["title"], text=block["text"])
        elif block["language"] == "console":
            short = block["words"] if block["note"] == "short" else ""
            for step in _commands(block["text"], short):
                yield replace(step, is_refused=block["note"] == "refused")


def play(page: str, folder: Path, *, whole: bool, places: Mapping[str, str] | None = None) -> None:
    """Do what a page says in `folder`; `places` maps addresses on the page to real ones."""
    for step in steps(page):
        if step.file:
            (folder / step.file).write_text(step.text, encoding="utf-8")
            continue
        command = _MEANS.get(step.command, step.command)
        for shown, real in (places or {}).items():
            command = command.replace(shown, real)
        if not whole and step.short:
            command = f"{command} {step.short}"
        status, output = _run(command, folder)
        assert (status != 0) == step.is_refused, f"{command}\n{output}"
        if whole or not step.short:
            _compare(step, output)


def _commands(text: str, short: str) -> Iterator[Step]:
    command, printed = "", list[str]()
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            if command:
                yield Step(command, tuple(printed), short)
            command, printed = line.removeprefix("$ "), []
        elif line.strip() not in ("", "..."):
            printed.append(line)
    if command:
        yield Step(command, tuple(printed), short)


def _run(command: str, folder: Path) -> tuple[int | None, str]:
    words = shlex.split(command.replace(".venv/bin/", ""))
    if words[:2] in (["agentgym", "train"], ["agentgym", "eval"]):  # quick: torch is there already
        found = (glob.glob(word, root_dir=folder) if "*" in word else [word] for word in words[1:])
        outcome = Command(*(word for each in found for word in each), folder=folder).wait(LIMIT_S)
        return outcome.status, outcome.output
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.replace(".venv/bin/", "")],
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    return done.returncode, done.stdout + done.stderr


def _compare(step: Step, output: str) -> None:
    """Find the lines that the page shows in the output, in order, numbers aside."""
    lines = iter([_masked(line) for line in output.splitlines()])
    for line in step.printed:
        assert _masked(line) in lines, f"{step.command} does not print {line!r}:\n{output}"


def _masked(line: str) -> str:
    """Return a line without its numbers, its blanks and the widths of its columns."""
    return re.sub(r"[━─]+", "-", re.sub(r"\d[\d.,:]*", "#", re.sub(r"\s+", "", line)))
