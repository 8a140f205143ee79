"""Rows of JSON files that others wrote: a list, or one value a line."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from agentgym_rl.errors import ConfigError


def read_rows(path: Path, *, what: str) -> Iterator[tuple[str, object]]:
    """Yield the values of a JSON list, or of JSON lines, each with its file and line.

    `what` they are is for the error where the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows puts a mark before the first line
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {what} from {str(path)!r}: {error}") from error
    if text.lstrip().startswith("["):
        yield from _list_items(path, text)
        return
    # Not splitlines: a JSON string may hold U+2028 and other characters that end its lines.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"{path}, line {number}: no JSON: {error}") from error


def _list_items(path: Path, text: str) -> Iterator[tuple[str, object]]:
    """Yield the items of a JSON list one by one, so that each is known by the line it begins in."""
    line_ends = [place for place, letter in enumerate(text) if letter == "\n"]

    def origin(place: int) -> str:
        return f"{path}, line {bisect_left(line_ends, place) + 1}"

    decoder, place = json.JSONDecoder(), _skip_space(text, text.index("[") + 1)
    is_over = text[place : place + 1] == "]"
    while not is_over:
        start = place
        try:
            item, place = decoder.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{origin(start)}: no JSON: {error}") from error
        yield origin(start), item
        place = _skip_space(text, place)
        is_over = text[place : place + 1] == "]"
        if not is_over:
            if text[place : place + 1] != ",":
                raise ConfigError(f"{origin(place)}: the list goes on with `,` or ends with `]`")
            place = _skip_space(text, place + 1)
    rest = _skip_space(text, place + 1)
    if rest < len(text):
        raise ConfigError(f"{origin(rest)}: something follows the end of the list")


def _skip_space(text: str, place: int) -> int:
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place
