"""Django's SQLite backend, with the current episode's database as its connection.

Each thread has a wrapper, as always in Django. It takes the episode's connection when a request
first needs one and lets go of it at the end of the request, without closing it. NAME must not be
":memory:": Django would then keep the connection, and the next request would get it.
"""

from __future__ import annotations

from django.db.backends.sqlite3 import base
from django.db.backends.sqlite3._functions import register as register_functions

from agentgym_rl.envs.scenarios.web.sites.episodes import require_episode


class DatabaseWrapper(base.DatabaseWrapper):
    """What `connections["default"]` is in this thread."""

    def get_new_connection(self, conn_params):
        connection = require_episode().connection
        if connection.execute("PRAGMA foreign_keys").fetchone()[0] == 0:  # its first use
            register_functions(connection)
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA legacy_alter_table = OFF")
        return connection

    def _close(self):
        """Let go of the connection, which stays open with its episode."""
        if self.connection is not None and self.connection.in_transaction:
            self.connection.rollback()
