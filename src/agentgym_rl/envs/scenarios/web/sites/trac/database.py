"""Trac's connection is the one of the current episode (`EpisodeConnector`).

The database is named "episode:/" in trac.ini. Connections are not pooled: the pool goes by thread
and name, and a thread works for one episode after another.
"""

from __future__ import annotations

import sqlite3
import weakref

from trac.core import Component, implements
from trac.db.api import IDatabaseConnector
from trac.db.sqlite_backend import SQLiteConnection, SQLiteConnector
from trac.db.util import ConnectionWrapper
from trac.db_default import schema as default_schema

from agentgym_rl.envs.scenarios.web.sites.episodes import require_episode

URL = "episode:/"


class EpisodeConnection(SQLiteConnection):
    """Trac's wrapper around a connection that is open already, and stays so."""

    poolable = False

    def __init__(self, connection, log=None):
        self._active_cursors = weakref.WeakKeyDictionary()
        self._eager = True
        ConnectionWrapper.__init__(self, connection, log)

    def close(self):
        pass


class EpisodeConnector(Component):
    """What Trac finds under the name "episode"."""

    implements(IDatabaseConnector)

    required = True
    error = None

    def get_supported_schemes(self):
        yield "episode", 1

    def get_connection(self, path, log=None, params=None):
        return EpisodeConnection(require_episode().connection, log)

    def get_exceptions(self):
        return sqlite3

    def init_db(self, path, schema=None, log=None, params=None):
        connection = require_episode().connection
        for table in schema or default_schema:
            for statement in self.to_sql(table):
                connection.execute(statement)
        connection.commit()

    def to_sql(self, table):
        return SQLiteConnector.to_sql(self, table)

    def db_exists(self, path, log=None, params=None):
        return True

    def get_system_info(self):
        yield "SQLite", sqlite3.sqlite_version
