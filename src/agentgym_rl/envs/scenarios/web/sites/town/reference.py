"""What no episode changes: articles, places and roads (`rows`, `row`). Episodes share one file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings

REFERENCE = "reference.sqlite3"
_local = threading.local()


def rows(sql: str, parameters: Sequence[object] = ()) -> list[sqlite3.Row]:
    """Return what a query finds."""
    return _connection().execute(sql, parameters).fetchall()


def row(sql: str, parameters: Sequence[object] = ()) -> sqlite3.Row | None:
    """Return the first row that a query finds."""
    return _connection().execute(sql, parameters).fetchone()


def _connection() -> sqlite3.Connection:
    """Return this thread's connection."""
    opened = getattr(_local, "connection", None)
    if opened is None:
        path = Path(settings.MEDIA_ROOT).parent / REFERENCE
        opened = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        opened.row_factory = sqlite3.Row
        opened.execute("PRAGMA mmap_size = 100000000")
        _local.connection = opened
    return opened
