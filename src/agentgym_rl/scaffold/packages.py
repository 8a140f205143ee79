"""Writes a package from a template, under a name of the user's."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

from agentgym_rl.envs import registry
from agentgym_rl.errors import ConfigError, RunError, did_you_mean
from agentgym_rl.runs.durable import writing_in

_TEMPLATES = Path(__file__).with_name("templates")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_RENAMED_FILES = {"gitignore": ".gitignore"}
"""A template's own .gitignore would be one of this repository."""
_SKIPPED = {"__pycache__", ".pytest_cache", ".ruff_cache"}


@dataclass(frozen=True, slots=True)
class NewPackage:
    """A package that was written."""

    path: Path
    files: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    """What to try in its folder, word by word."""


def make_package(kind: str, name: str, folder: Path) -> NewPackage:
    """Write the package `name` of a kind into a new folder. Raises ConfigError or RunError."""
    kinds = sorted(path.name for path in _TEMPLATES.iterdir() if path.is_dir())
    if kind not in kinds:
        raise ConfigError(
            f"no template {kind!r}{did_you_mean(kind, kinds)}; available: {', '.join(kinds)}"
        )
    name = name.replace("-", "_").lower()
    _check_name(name)
    target = folder / name
    if target.exists():
        raise RunError(f"{target} already exists; choose another name, or --dir")
    written = []
    for source, relative in _files(_TEMPLATES / kind):
        file = target / _renamed(relative.as_posix(), kind, name)
        file = file.with_name(_RENAMED_FILES.get(file.name, file.name))
        text = _renamed(source.read_text(encoding="utf-8"), kind, name)
        with writing_in(target):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        written.append(file.relative_to(target).as_posix())
    return NewPackage(target, tuple(written), tuple(_commands(kind, name)))


def class_name(name: str) -> str:
    """Return "MyWorld" for "my_world"."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a package: write lower-case letters, digits and _, "
            "such as my_world"
        )
    taken = {*sys.stdlib_module_names, *registry.BUILTIN, *packages_distributions(), "tests", "src"}
    if name in taken | {"agentgym_rl"}:
        raise ConfigError(f"{name!r} is taken: choose another name, such as my_{name}")


def _files(template: Path) -> Iterator[tuple[Path, Path]]:
    for file in sorted(template.rglob("*")):
        relative = file.relative_to(template)
        if file.is_file() and not _SKIPPED & set(relative.parts):
            yield file, relative


def _renamed(text: str, kind: str, name: str) -> str:
    """Return a text of a template with the user's name in the place of its own."""
    own = f"my_{kind}"
    names = {form(own): form(name) for form in (str, class_name, _dashed)}
    return re.sub("|".join(names), lambda found: names[found[0]], text)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _commands(kind: str, name: str) -> Iterator[tuple[str, ...]]:
    if kind == "env":
        yield "agentgym", "check", f"{name}.env:{class_name(name)}"
    yield ("pytest",)
    yield "agentgym", "train", "recipe.toml", "training.steps=2"
