"""A passage: the unit that is indexed, found, opened and cited.

The text form, Search-R1's `contents`, is the title in quotes on a line of its own, then the text:

    "Aaron"
    Aaron is a prophet, high priest, and the brother of Moses ...
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """`title` is a single line and may be empty; `id` is unique in its corpus."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """The passage as Search-R1 stores and sends it; `passage_from_row` reads it back."""
        return f'"{self.title}"\n{self.text}'


def passage_from_row(row: Mapping[str, object], *, fallback_id: str | None = None) -> Passage:
    """Return the passage of a corpus row: `id` with `contents`, or with `text` (and `title`).

    `contents` of one line is a text without a title. A row without an id takes `fallback_id`.
    Raises ValueError for a row without text or id.
    """
    passage_id = _id_of(row, fallback_id)
    title, text = row.get("title"), row.get("text")
    if isinstance(text, str):
        return Passage(passage_id, _one_line(title if isinstance(title, str) else ""), text)
    contents = row.get("contents")
    if not isinstance(contents, str):
        raise ValueError(
            f"row {passage_id!r} has the fields {sorted(row)}; a passage needs `contents`, "
            "or `text` (and `title`), as strings"
        )
    first, newline, rest = contents.partition("\n")
    if not newline:
        return Passage(passage_id, "", contents)
    return Passage(passage_id, _one_line(_unquoted(first.strip())), rest)


def _id_of(row: Mapping[str, object], fallback: str | None) -> str:
    for name in ("id", "_id"):
        value = row.get(name)
        # bool is an int, but not an id.
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    if fallback is None:
        raise ValueError(
            f"a row with the fields {sorted(row)} has no `id` that is a string or a whole number"
        )
    return fallback


def _unquoted(title: str) -> str:
    is_quoted = len(title) >= 2 and title[0] == title[-1] == '"'
    return title[1:-1] if is_quoted else title


def _one_line(title: str) -> str:
    return " ".join(title.split())
