"""The reference of the command line, written from the typer application."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from agentgym_rl.cli.main import app
from tools.site.prose import prose

_INTRODUCTION = """\
# Command line

Every command with its arguments and options. This page is generated from the program, so it says
what `agentgym COMMAND --help` says.

| exit status | meaning |
|---|---|
| 0 | everything succeeded |
| 1 | what was begun failed, such as an evaluation without a result |
| 2 | a mistake in the command or in a setting; the last line has the remedy |
| 130, 143 | stopped by Ctrl-C, by SIGTERM |

`agentgym --version` prints the version.
"""


def command_page() -> str:
    """Return the page in Markdown."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return "\n".join([_INTRODUCTION, *_commands(group, "agentgym")])


def _commands(group: TyperGroup, program: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if isinstance(command, TyperGroup):
            yield from _commands(command, f"{program} {name}")
            continue
        arguments = [item for item in command.params if isinstance(item, TyperArgument)]
        options = [item for item in command.params if isinstance(item, TyperOption)]
        yield f"## {program} {name}\n"
        words = [program, name, *map(_usage, arguments), *(["[OPTIONS]"] if options else [])]
        yield f"```text\n{' '.join(words)}\n```\n"
        yield _prose(command.help or "")
        yield from _table("argument", arguments)
        yield from _table("option", [item for item in options if not item.hidden])


def _usage(item: TyperArgument) -> str:
    name = (item.metavar or item.name or "").upper() + ("..." if item.nargs == -1 else "")
    return name if item.required else f"[{name}]"


def _prose(text: str) -> str:
    """Return a help text; its indented examples stay as they are written."""
    return inspect.cleandoc(text).replace("\b\n", "").replace("\f", "") + "\n"


def _names(item: TyperArgument | TyperOption) -> str:
    if isinstance(item, TyperArgument):
        return _usage(item)
    return ", ".join([*item.opts, *item.secondary_opts])


def _table(kind: str, items: list[TyperArgument] | list[TyperOption]) -> Iterator[str]:
    if not items:
        return
    yield f"\n| {kind} | default | |\n|---|---|---|"
    for item in items:
        yield f"| `{_names(item)}` | {_default(item)} | {_cell(item.help or '')} |"
    yield ""


def _default(item: TyperArgument | TyperOption) -> str:
    if item.required:
        return "required"
    value: object = item.default
    return "" if value is None or value == "" or value is False else f"`{value}`"


def _cell(text: str) -> str:
    return prose(text).replace("|", "\\|")
