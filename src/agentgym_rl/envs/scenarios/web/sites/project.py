"""Starting a project in this process: `set_up` for Django, `own_program` for what is not Django."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType

import django
from django.conf import settings

from agentgym_rl.envs.scenarios.web.sites.steady import make_steady, make_steady_where_asked

_HERE = __name__.rpartition(".")[0]


def set_up(project: str, media: Path, *, is_building: bool) -> None:
    """Load a project's settings and applications, with an episode's clock and draws."""
    os.environ["DJANGO_SETTINGS_MODULE"] = f"{_HERE}.{project}.settings"
    make_steady()
    settings.MEDIA_ROOT = str(media)
    settings.IS_BUILDING = is_building
    django.setup()
    make_steady_where_asked(getattr(settings, "ASK_FOR_TIME", ()))


def seed_module(project: str) -> str:
    """Return the name of the module that fills a project's tables."""
    return f"{_HERE}.{project}.seed"


def own_program(project: str) -> ModuleType | None:
    """Return the module that builds and serves a project that is not Django's; None where it is."""
    name = f"{_HERE}.{project}.program"
    return importlib.import_module(name) if importlib.util.find_spec(name) else None
