"""Finds the packages with the facts, and checks that they have the pinned versions."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
_REMEDY = f"pip install -r {REQUIREMENTS}"


def check_packages() -> None:
    """Raise ModuleNotFoundError unless every package is installed in its pinned version."""
    for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        name, _, pinned = line.partition("==")
        try:
            installed = version(name)
        except PackageNotFoundError:
            raise ModuleNotFoundError(f"{name} is not installed: {_REMEDY}") from None
        if installed != pinned:
            raise ModuleNotFoundError(
                f"{name} {installed} is installed, but the facts are those of {pinned}: {_REMEDY}"
            )


def package_folder(module: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the package {module} is not installed: {_REMEDY}")
    return Path(spec.origin).parent
