"""What Trac 1.6 wants of its Python: `prepare`, called before anything of Trac is imported.

Trac asks `pkg_resources` where its files are and which components it has. Setuptools no longer has
that module (from 81 on), and an older setuptools would hold back everything else that is installed,
so a module with the few functions that Trac calls stands in for it. Babel is kept from Trac, so
that dates look the same whether it is installed or not. So is a module `multipart` that is not the
package Trac means: python-multipart brings one of the same name. The clock is the episode's.
"""

from __future__ import annotations

import datetime
import importlib
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

from agentgym_rl.envs.scenarios.web.sites.steady import present

_PLUGINS = "trac.plugins"


class _DistributionNotFoundError(Exception):
    pass


class _VersionConflictError(Exception):
    pass


class _UnknownExtraError(Exception):
    pass


class _Component:
    """A module with components of Trac, as its package lists them."""

    def __init__(self, point: metadata.EntryPoint) -> None:
        self.name = point.name
        self.module_name = point.module
        self.attrs = ()
        self.dist = SimpleNamespace(location=str(_file_of("trac", "..").resolve()))

    def load(self, require: bool = True) -> ModuleType:
        return importlib.import_module(self.module_name)


class _WorkingSet:
    """The packages that are installed, as far as Trac asks for them: only itself."""

    def find_plugins(self, environment: object) -> tuple[list[object], dict[object, Exception]]:
        return [], {}

    def iter_entry_points(self, group: str) -> list[_Component]:
        """Return Trac's own components; those that need other packages are left out."""
        points = metadata.distribution("Trac").entry_points.select(group=group)
        return [_Component(point) for point in points if not point.extras]


def prepare() -> None:
    """Let Trac be imported, with the clock of episodes."""
    sys.modules["pkg_resources"] = _package_resources()
    for name in ("babel", "babel.core", "babel.support"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type] - how an import is refused
    if not hasattr(_module("multipart"), "parse_form_data"):
        sys.modules["multipart"] = None  # type: ignore[assignment] - as above
    datefmt = importlib.import_module("trac.util.datefmt")
    datefmt.datetime_now = _datetime_now
    datefmt.time_now = _time_now


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _datetime_now(tz: datetime.tzinfo | None = None) -> datetime.datetime:
    return present().astimezone(tz) if tz else present().replace(tzinfo=None)


def _time_now() -> float:
    return present().timestamp()


def _package_resources() -> ModuleType:
    module = ModuleType("pkg_resources", "Stands in for setuptools' module of this name.")
    vars(module).update(
        DistributionNotFound=_DistributionNotFoundError,
        VersionConflict=_VersionConflictError,
        UnknownExtra=_UnknownExtraError,
        Distribution=SimpleNamespace,
        Environment=list,
        working_set=_WorkingSet(),
        find_distributions=lambda path, only=False: [],
        get_distribution=metadata.distribution,
        parse_version=lambda text: tuple(int(part) for part in text.split(".") if part.isdigit()),
        resource_filename=lambda package, name: str(_file_of(package, name)),
        resource_listdir=lambda package, name: [
            path.name for path in sorted(_file_of(package, name).iterdir())
        ],
        resource_exists=lambda package, name: _file_of(package, name).exists(),
    )
    return module


def _file_of(package: str, name: str) -> Path:
    """Return the path of a file that a package brings."""
    origin = importlib.import_module(package).__file__
    assert origin is not None, f"{package} is not a package with files"
    return Path(origin).parent / name
