"""Where the package webarena-verified is: its data, and the Python that has it.

The package is never imported here: it asks for exact versions of others (pydantic==2.12.0), which
a machine that trains rarely has. It may be installed beside this program, or in an environment of
its own, named by the option `python`.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from agentgym_rl.errors import EnvError

PACKAGE = "webarena-verified"
REMEDY = (
    f"python3 -m venv webarena && webarena/bin/pip install {PACKAGE}, then "
    "the option python=webarena/bin/python (in recipes env.options.python)"
)
_DATA = "webarena_verified/assets/dataset"
_FIND = f"""
from importlib import metadata
print(metadata.distribution({PACKAGE!r}).locate_file({_DATA!r}))
"""
_FIND_S = 60.0


def python_of(python: str) -> str:
    """Return the interpreter to run the package with."""
    return str(Path(python).expanduser()) if python else sys.executable


@cache
def data_folder(python: str) -> Path:
    """Return the folder of the task files. Raises EnvError with the remedy where there is none."""
    folder = _asked(python) if python else _installed_here()
    if folder is None or not folder.is_dir():
        where = f"in {python}" if python else "here"
        raise EnvError(f"the package {PACKAGE} is not installed {where}; {REMEDY}")
    return folder


def _installed_here() -> Path | None:
    try:
        found = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        return None
    return Path(str(found.locate_file(_DATA)))


def _asked(python: str) -> Path | None:
    command = [python_of(python), "-I", "-c", _FIND]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_FIND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvError(f"python={python!r} cannot be run ({error}); {REMEDY}") from error
    return Path(answer.stdout.strip()) if answer.returncode == 0 else None
