"""Serves a project: `python -m ...sites.serve PROJECT TEMPLATE_FOLDER UPLOADS_FOLDER SOCKET`.

The listening socket comes from the environment's process, by its file descriptor, so that the
address outlives this process. The first line of standard input is the control token; when
standard input ends, the environment's process is gone, and this one ends too. `ready` on standard
output means that requests are answered.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import warnings
from pathlib import Path

import waitress
from django.core.wsgi import get_wsgi_application

from agentgym_rl.envs.scenarios.web.sites.build import DATABASE, MEDIA
from agentgym_rl.envs.scenarios.web.sites.episodes import EpisodeStore
from agentgym_rl.envs.scenarios.web.sites.gate import Gate
from agentgym_rl.envs.scenarios.web.sites.project import own_program, set_up

_NUM_THREADS = 8
_MAX_CONNECTIONS = 5000
"""A browser's context holds up to six sockets; waitress' own limit of 100 hangs the 17th."""


def serve(project: str, template: Path, uploads: Path, listening: int) -> None:
    """Answer requests until standard input ends."""
    warnings.simplefilter("ignore")  # of applications, about themselves
    token = sys.stdin.readline().strip()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    store = EpisodeStore((template / DATABASE).read_bytes(), uploads)
    program = own_program(project)
    if program is not None:
        application = program.make_application(template, store, token)
    else:
        set_up(project, template / MEDIA, is_building=False)
        application = Gate(store, token, get_wsgi_application())
    server = waitress.create_server(
        application,
        sockets=[socket.socket(fileno=listening)],
        threads=_NUM_THREADS,
        connection_limit=_MAX_CONNECTIONS,
        asyncore_use_poll=True,
        channel_timeout=600,
        ident="",
    )
    print("ready", flush=True)  # noqa: T201 - for the process that started this one
    server.run()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
