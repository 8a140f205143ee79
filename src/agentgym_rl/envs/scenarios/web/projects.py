"""The projects and sites there are, and the template of each project (`template_of`).

A site is what a task names ("shop"): a host with a category of tasks. A project is a Django project
that one process serves (sites/); it has one site or several. Adding one: a folder in sites/, and a
line in each table here.

The template of a project is its seeded database and media. It is built once by a process of its own
and kept in the user's cache folder under a name that changes with everything it is made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

from agentgym_rl.errors import EnvError, install_command

NOW = datetime(2024, 6, 14, 10, 30, tzinfo=UTC)
"""When every episode begins, for sites and browser."""
_SITES = Path(__file__).parent / "sites"
_MADE_OF = (".py", ".toml", ".json", ".txt", ".gz")
"""Files of a project that its template may depend on; pages and styles do not."""
_BUILD_S = 600.0
_MAX_TOLD_CHARS = 1500


@dataclass(frozen=True, slots=True)
class Project:
    """A Django project."""

    name: str
    """Of its folder in sites/."""
    packages: tuple[str, ...]
    """What it is made with; another version is another template."""
    seeded_by: tuple[str, ...] = ("**/*",)
    """Its files that the template depends on, as patterns."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a task plays."""

    name: str
    project: str
    number: int
    """Of its block of task numbers; never changed."""

    @property
    def host(self) -> str:
        return f"{self.name}.test"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"


PROJECTS: Mapping[str, Project] = {
    one.name: one
    for one in [
        Project("shop", ("Django", "django-oscar")),
        Project(
            "town",
            ("Django",),
            ("seed.py", "seeds/*", "*/models.py", "code/git_objects.py", "map/*.py"),
        ),
        Project("spirit", ("Django", "django-spirit")),
        Project("trac", ("Trac",)),
    ]
}
SITES: Mapping[str, Site] = {
    one.name: one
    for one in [
        Site("shop", "shop", 1),
        Site("forum", "town", 2),
        Site("code", "town", 3),
        Site("map", "town", 4),
        Site("wiki", "town", 5),
        Site("talk", "spirit", 8),
        Site("tracker", "trac", 9),
    ]
}


def is_built(project: str) -> bool:
    """Return whether the template is there already."""
    return _folder(project).is_dir()


def build_missing(projects: Iterable[str]) -> None:
    """Build the templates that are not there yet, on all cores."""
    missing = [project for project in sorted(set(projects)) if not is_built(project)]
    if missing:
        with ThreadPoolExecutor(min(len(missing), os.cpu_count() or 1)) as pool:
            list(pool.map(template_of, missing))


def template_of(project: str) -> Path:
    """Return the folder of a project's template, built first where it is not there yet.

    Safe when several processes ask at once: one builds, the others wait.
    """
    folder = _folder(project)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{project}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _build(project, folder)
    return folder


def database_of(project: str) -> Path:
    """Return the seeded database of a project."""
    return template_of(project) / "template.sqlite3"


def _build(project: str, folder: Path) -> None:
    """Build beside the final place and move there, so that nobody sees half of it."""
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as made:
        command = [sys.executable, "-m", f"{__package__}.sites.build", project, made]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_BUILD_S, env=child_environment()
        )
        if done.returncode != 0:
            told = done.stderr.strip()[-_MAX_TOLD_CHARS:]
            raise EnvError(f"the site {project!r} could not be built: {told}")
        Path(made).chmod(0o755)
        shutil.copytree(made, folder.with_suffix(".new"), dirs_exist_ok=True)
        folder.with_suffix(".new").rename(folder)
    for old in folder.parent.glob(f"{project}-*"):
        if old != folder and old.stat().st_mtime < folder.stat().st_mtime - 7 * 86400:
            shutil.rmtree(old, ignore_errors=True)


def child_environment() -> dict[str, str]:
    """Return the variables of a site's process: it imports what this one can import."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONHASHSEED": "0",
    }


def _folder(project: str) -> Path:
    """Return the folder below AGENTGYM_CACHE, or below the user's cache folder."""
    root = os.environ.get("AGENTGYM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) if root else Path(base) / "agentgym-rl"
    return folder / "web" / f"{project}-{_version(project)}"


@cache
def _version(project: str) -> str:
    """Return a name for everything that a template is made of."""
    digest = hashlib.sha256()
    for package in PROJECTS[project].packages:
        try:
            digest.update(f"{package} {metadata.version(package)}\n".encode())
        except metadata.PackageNotFoundError as error:
            needed = f"the site {project!r} needs {package}, which is not installed"
            raise EnvError(f"{needed}: {install_command('web')}") from error
    shared = [_SITES / name for name in ("build.py", "episodes.py", "base_settings.py")]
    own = {
        path
        for pattern in PROJECTS[project].seeded_by
        for path in (_SITES / project).glob(pattern)
        if path.suffix in _MADE_OF
    }
    for path in [*shared, *sorted(own)]:
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
