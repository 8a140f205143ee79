"""Answers that need no application: `send_file`, `refuse`."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable
from pathlib import Path
from wsgiref.types import StartResponse


def send_file(path: Path | None, start: StartResponse) -> Iterable[bytes]:
    """Answer with a file, which the browser may keep; None is not found."""
    if path is None:
        return refuse(start, "404 Not Found", b"There is no such file.")
    content = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    start(
        "200 OK",
        [
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Cache-Control", "max-age=86400"),
        ],
    )
    return [content]


def refuse(start: StartResponse, status: str, reason: bytes) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(reason)))])
    return [reason]
