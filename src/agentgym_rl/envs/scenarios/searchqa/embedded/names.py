"""Names as keys: folding, slugs, and an order that is the same on every machine."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")

# Letters that Unicode does not take apart into a base letter and an accent.
_LETTERS = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae"}
    | {"œ": "oe", "Œ": "Oe", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "\u0131": "i"}
    | dict.fromkeys("\u02bb\u02bc\u2018\u2019`", "'")
    | dict.fromkeys("\u2013\u2014", "-")
)


_TAKES_ARTICLE = re.compile(
    r"United|Netherlands|Philippines|People's|Soviet|Czech R|Bahamas|Gambia|Maldives|Comoros|"
    r"Democratic R|Republic|Central|Dominican R|Solomon|Marshall|Vatican|Cayman|Faroe|British"
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


def slug(name: str) -> str:
    """Return an id made of the name; one without any letter of ours becomes a hash."""
    words = re.findall(r"[a-z0-9]+", plain(name).casefold().replace("'", ""))
    return "-".join(words) or digest(name)


def digest(text: str) -> str:
    """Return 12 hexadecimal digits that stand for the text on every machine."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def fraction(text: str) -> float:
    """Return a number in [0, 1) that depends on the text alone."""
    return int(digest(text), 16) / 16**12


def pick(options: Sequence[Item], key: str) -> Item:
    """Return one of the options: always the same for the same key."""
    return options[int(fraction(key) * len(options))]


def shuffled(items: Iterable[Item], salt: str, key: Callable[[Item], str]) -> list[Item]:
    """Return the items in an order that looks random and depends on salt and keys alone."""
    return sorted(items, key=lambda item: digest(f"{salt}\n{key(item)}"))


def with_article(country: str) -> str:
    """Return "the Netherlands", but "France"."""
    return f"the {country}" if _TAKES_ARTICLE.match(country) else country


def listed(parts: Sequence[str]) -> str:
    """Return "A", "A and B" or "A, B and C"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
