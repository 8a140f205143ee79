"""Names of people, films and places as keys: without accents, case and punctuation."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

# Letters that Unicode does not take apart into a base letter and an accent.
_LETTERS = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae"}
    | {"œ": "oe", "Œ": "Oe", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "\u0131": "i"}
    | dict.fromkeys("\u02bb\u02bc\u2018\u2019`", "'")
    | dict.fromkeys("\u2013\u2014", "-")
)


@cache
def plain(name: str) -> str:
    """Return the name without accents, e.g. "Lodz" for "Łódź"."""
    if name.isascii():
        return name.replace("`", "'")
    decomposed = unicodedata.normalize("NFKD", name.translate(_LETTERS))
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


@cache
def fold(name: str) -> str:
    """Return what two spellings of one name have in common: lower-case letters and digits."""
    return " ".join(re.findall(r"\w+", plain(name).casefold().replace("'", "")))
