"""Starting Django for a project in this process: `set_up`."""

from __future__ import annotations

import os
from pathlib import Path

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
