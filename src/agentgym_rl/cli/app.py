"""What the commands share: the application, examples under their help, words that shells complete.

Nothing here imports what a command needs, so that `agentgym --help` starts at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from agentgym_rl import __version__

HELP_OPTIONS = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


def examples(*lines: str) -> str:
    """Return examples as the end of a command's help, one line each."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


app = typer.Typer(
    name="agentgym",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
    epilog=examples(
        "agentgym train                     # a first agent, in minutes, on a CPU",
        "agentgym ui                        # look at what it did",
        "agentgym envs                      # what there is to play",
        "agentgym init env my_world         # begin an environment of your own",
        "agentgym train --help              # every command has examples",
    )
    + "\n\n\b\nExit status: 0 done, 1 failed, 2 wrong usage or settings, 130 Ctrl-C\n"
    "(0 from serve, ui and play, which end that way).",
)


class PlainCommand(TyperCommand):
    """A command whose help names its arguments without the types that they have in Python, and
    which says how settings are written to those who write them as options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: typer passes what it knows
        super().__init__(*args, **kwargs)
        for param in self.params:
            if param.param_type_name == "argument":
                setattr(param, "display_type_rich", _no_type)  # noqa: B010 - a method of theirs

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: typer's own context
        for word in args:
            name = word.removeprefix("--").partition("=")[0]
            if word.startswith("--") and "." in name:
                raise typer.BadParameter(f"a setting is written without dashes: {name}=VALUE")
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            error.message = _in_our_words(error)
            raise


def _in_our_words(error: typer.BadParameter) -> str:
    """Return a message as those about settings are: what is allowed, and what was given."""
    if not isinstance(error.__cause__, ValueError):
        return error.message
    from pydantic import ValidationError  # start-up time

    if not isinstance(error.__cause__, ValidationError):
        return error.message
    from agentgym_rl.config.load import what_is_allowed  # start-up time

    item = error.__cause__.errors()[0]
    if allowed := what_is_allowed(item["type"], item.get("ctx", {})):
        return f"must be {allowed}, got {item['input']!r}"
    return item["msg"].removeprefix("Value error, ")


def _no_type(ctx: object) -> None:
    """Stands for typer's method that names the type."""


command = partial(app.command, cls=PlainCommand)
"""Adds a command to the application."""


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"agentgym-rl {__version__}")
        raise typer.Exit


@app.callback()
def agentgym(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and stop.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Train language-model agents over many rounds with reinforcement learning."""


def complete_recipe(incomplete: str) -> Iterator[str]:
    """Yield the recipes of the package."""
    from agentgym_rl.config.recipes import packaged_recipes  # start-up time

    return (name for name in packaged_recipes() if name.startswith(incomplete))


def complete_setting(incomplete: str) -> Iterator[str]:
    """Yield the keys of settings, each with its equals sign."""
    from agentgym_rl.config.keys import setting_keys  # start-up time

    if "=" in incomplete:
        return iter(())
    return (f"{key}=" for key in setting_keys() if key.startswith(incomplete))


def complete_env(incomplete: str) -> Iterator[str]:
    """Yield the environments by name."""
    from agentgym_rl.envs import registry  # start-up time

    return (name for name in registry.names() if name.startswith(incomplete))


def complete_run(incomplete: str) -> Iterator[str]:
    """Yield the runs in the folder `runs`."""
    found = sorted(Path("runs").glob("*/config.toml"), reverse=True)
    names = (file.parent.as_posix() for file in found)
    return (name for name in names if name.startswith(incomplete))


EnvName = Annotated[
    str,
    typer.Argument(
        help='A name from `agentgym envs`, or "module:Class".',
        metavar="ENV",
        autocompletion=complete_env,
    ),
]
EnvOptions = Annotated[
    list[str] | None,
    typer.Argument(help="Options of the environment.", metavar="KEY=VALUE"),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        help="Settings, such as training.lr=1e-5.",
        metavar="KEY=VALUE",
        autocompletion=complete_setting,
    ),
]
RunPath = Annotated[
    Path,
    typer.Argument(help="Folder of the run.", metavar="RUN", autocompletion=complete_run),
]
CallTimeout = Annotated[
    float, typer.Option(help="Deadline of a call, in seconds.", metavar="SECONDS")
]
