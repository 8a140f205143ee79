"""Builds the template of a project: `python -m ...sites.build PROJECT FOLDER`.

The folder gets `template.sqlite3`, the database that every episode begins with, and `media/`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from django.core.management import call_command

from agentgym_rl.envs.scenarios.web.sites.episodes import Episode, current, open_database
from agentgym_rl.envs.scenarios.web.sites.project import own_program, seed_module, set_up

DATABASE = "template.sqlite3"
MEDIA = "media"


def build(project: str, folder: Path) -> None:
    """Make the tables, fill them, and write both down."""
    program = own_program(project)
    if program is not None:
        program.build(folder)
        return
    media = folder / MEDIA
    media.mkdir(parents=True, exist_ok=True)
    set_up(project, media, is_building=True)
    episode = Episode("", open_database(None), folder)
    current.set(episode)
    call_command("migrate", run_syncdb=True, interactive=False, verbosity=0)
    importlib.import_module(seed_module(project)).seed()
    episode.connection.commit()
    episode.connection.execute("ANALYZE")
    episode.connection.execute("VACUUM")
    (folder / DATABASE).write_bytes(episode.connection.serialize())


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]))
