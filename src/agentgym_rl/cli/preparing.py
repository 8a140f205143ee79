"""`agentgym init` and `agentgym convert-config`. No torch."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.cli.terminal import suggest
from agentgym_rl.errors import ConfigError
from agentgym_rl.migration.convert import Conversion, recipe_text
from agentgym_rl.migration.convert import convert_script as converted
from agentgym_rl.report.words import line
from agentgym_rl.runs.folder import write_atomically
from agentgym_rl.runs.regular_files import read_regular
from agentgym_rl.scaffold.packages import make_package

_MAX_BYTES = 1_000_000
_MAX_CHARS = 1000
"""Of a sentence that holds a value of the script."""


def write_package(kind: str, name: str, folder: Path) -> None:
    """Write a package to start from, and say what to do with it."""
    package = make_package(kind, name, folder)
    for file in package.files:
        print(package.path / file)
    suggest(["cd", package.path], *package.commands)


def convert_script(script: Path, output: Path | None) -> None:
    """Write or print the recipe; what has no counterpart goes to where the recipe does not."""
    if output is not None and output.exists():
        raise ConfigError(f"{output} already exists; choose another name")
    if not script.exists():
        raise ConfigError(f"there is no file {script}")
    try:
        text = read_regular(script.resolve(), max_bytes=_MAX_BYTES).decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {script}: {error}") from error
    found = converted(text, source=script.name)
    if output is None:
        print(recipe_text(found), end="")
        return
    write_atomically(output, recipe_text(found))
    print(f"{output}: {len(found.kept)} settings carried over, {len(found.left)} not")
    _print_left(found)
    suggest(["agentgym", "train", output, "--dry-run"], ["agentgym", "train", output])


def _print_left(found: Conversion) -> None:
    for note in found.left:
        print(f"- {note.key}={line(note.value)}\n    {line(note.told, max_chars=_MAX_CHARS)}")
    for text in found.advice:
        print(f"- {line(text, max_chars=_MAX_CHARS)}")
