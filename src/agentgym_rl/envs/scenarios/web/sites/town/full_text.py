"""What a person typed into a search field, as a query of FTS5: `match_query`."""

from __future__ import annotations

import re


def match_query(text: str, *, prefix: bool = False) -> str:
    """Return a query for all words of a text; "" where it has none.

    Every word is quoted, so that nothing in it is an operator. With `prefix` the last one may be
    the beginning of a word.
    """
    words = re.findall(r"\w+", text)[:12]
    query = " ".join(f'"{word}"' for word in words)
    return query + "*" if prefix and words else query
