"""Rows of JSON files that others wrote: a list, or one value per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentgym_rl.errors import ConfigError


def read_rows(path: Path, *, what: str) -> Iterator[tuple[str, object]]:
    """Yield the values of a JSON list, or of JSON lines, each with its file and line or place.

    `what` they are is for the error where the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows puts a mark before the first line
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {what} from {str(path)!r}: {error}") from error
    if text.lstrip().startswith("["):
        for number, item in enumerate(_parsed(text, str(path)), start=1):
            yield f"{path}, item {number}", item
        return
    # Not splitlines: a JSON string may hold U+2028 and other characters that end its lines.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            origin = f"{path}, line {number}"
            yield origin, _parsed(line, origin)


def _parsed(text: str, origin: str) -> Any:  # Any: JSON has no static type
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: not JSON: {error}") from error
