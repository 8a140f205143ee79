"""Names as ids, lists and phrases, and an order that is the same on every machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from benchmarks.shortcuts import plain

Item = TypeVar("Item")

_TAKES_ARTICLE = re.compile(
    r"United|Netherlands|Philippines|People's|Soviet|Czech R|Bahamas|Gambia|Maldives|Comoros|"
    r"Democratic R|Republic|Central|Dominican R|Solomon|Marshall|Vatican|Cayman|Faroe|British"
)


def slug(name: str) -> str:
    """Return an id made of the name; a hash if the name has no Latin letters or digits."""
    words = re.findall(r"[a-z0-9]+", plain(name).casefold().replace("'", ""))
    return "-".join(words) or digest(name)


def digest(text: str) -> str:
    """Return 12 hexadecimal digits that identify the text on every machine."""
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def fraction(text: str) -> float:
    """Return a number in [0, 1) that depends only on the text."""
    return int(digest(text), 16) / 16**12


def pick(options: Sequence[Item], key: str) -> Item:
    """Return one of the options, always the same for the same key."""
    return options[int(fraction(key) * len(options))]


def shuffled(items: Iterable[Item], salt: str, key: Callable[[Item], str]) -> list[Item]:
    """Return the items in an order that looks random and depends only on salt and keys."""
    return sorted(items, key=lambda item: digest(f"{salt}\n{key(item)}"))


def with_article(country: str) -> str:
    """Return "the Netherlands", but "France"."""
    return f"the {country}" if _TAKES_ARTICLE.match(country) else country


def listed(parts: Sequence[str]) -> str:
    """Return "A", "A and B" or "A, B and C"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"
