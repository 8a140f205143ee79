"""The command line. Thin: a command parses its arguments, then imports what it needs.

`agentgym --help` therefore starts without torch. The commands are in `commands/`, and are listed in
the order in which they are imported here.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Never

from agentgym_rl.cli.app import app

from agentgym_rl.cli.commands import training  # isort: skip - the order of the commands
from agentgym_rl.cli.commands import runs, environments, preparing  # isort: skip - as above
from agentgym_rl.cli.terminal import FewRepeats, ToldInterrupt
from agentgym_rl.errors import (
    AgentError,
    AgentGymError,
    ConfigError,
    RunError,
    RunFailedError,
    missing_training_package,
)
from agentgym_rl.report.words import shown

_MAX_MESSAGE = 100_000
COMMANDS = (training, runs, environments, preparing)
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
"""Exit statuses, beside 0; typer has the same for words that it cannot read and for Ctrl-C."""

_SPINS_BEFORE_SLEEP = "1000"
"""How long torch's idle threads keep a core busy: some 50 microseconds, as OpenMP itself has it
where there are more threads than cores. By default it is 17 milliseconds, longer than the next
operation takes to come, so that they would never give the core to environments, or to others."""


def main() -> None:
    """Run the command line; an error that the user can act on is one line, not a traceback."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    repeats = FewRepeats()
    logging.getLogger("agentgym_rl.rollout.episode").addFilter(repeats)
    _add_own_modules()
    _spare_cores()
    try:
        app()
    except (AgentGymError, ValueError, OSError) as error:
        if isinstance(error, AgentError) and error.__cause__ is not None:
            traceback.print_exception(error.__cause__)  # the user's own code, to be mended there
        _end(str(error), status_of(error))
    except ModuleNotFoundError as error:
        if (remedy := missing_training_package(error)) is None:
            raise
        _end(remedy, WRONG_USAGE)
    except SystemExit as end:
        # typer says nothing of Ctrl-C
        if end.code == INTERRUPTED and not isinstance(end, ToldInterrupt):
            print("stopped", file=sys.stderr)
        raise
    finally:
        repeats.tell_rest()


def _spare_cores() -> None:
    """Let torch's idle threads sleep, unless the user has said how they wait; before its import.

    It affects waiting only, no result.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPINS_BEFORE_SLEEP)


def status_of(error: Exception) -> int:
    """Return the exit status of an error: a wrong command, or a failure of what it began."""
    if isinstance(error, RunFailedError):
        return FAILED
    return WRONG_USAGE if isinstance(error, ConfigError | RunError | ValueError) else FAILED


def _add_own_modules() -> None:
    """Look for a user's "module:Class" where the user stands, as `python -m` does, and in the
    folder `src` of a package there."""
    here = [""]
    if Path("pyproject.toml").is_file() and Path("src").is_dir():
        here.append(str(Path("src").resolve()))
    sys.path[:0] = here


def _end(message: str, status: int) -> Never:
    print(f"error: {shown(message, max_chars=_MAX_MESSAGE)}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
