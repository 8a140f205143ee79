"""Whether an answer says what is expected: `says`."""

from __future__ import annotations

import re
import unicodedata

_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?")
"""Not the digits of a name such as "otter193"."""
_MAX_WORDS = 2
"""Beside a number: its unit or its currency."""
_UNSURE = frozenset(["not", "no", "or", "than", "about", "over", "under", "nearly", "almost"])
_FILLING = re.compile(r"^(the answer is|answer|it is|the|a|an)\b[:\s]*", re.IGNORECASE)


def says(answer: str, expected: str) -> bool:
    """Return whether an answer is the expected one, apart from how it is written.

    Case, spaces, quotes and a last full stop do not matter. A number is compared as a number, with
    or without its currency or unit, and must be the only one. Several parts, which the expected
    answer separates by "; ", may come in any order.
    """
    if "; " in expected:
        given = sorted(map(_plain, re.split(r"[;\n]", answer)))
        return given == sorted(map(_plain, expected.split("; ")))
    if _plain(answer) == _plain(expected):
        return True
    wanted = _only_number(expected)
    return wanted is not None and _only_number(answer) == wanted


def _only_number(text: str) -> float | None:
    """Return the one number in a short text that is about nothing else."""
    found = _NUMBER.findall(text)
    rest = _NUMBER.sub("", text).lower().split()
    if len(found) != 1 or len(rest) > _MAX_WORDS or not _UNSURE.isdisjoint(rest):
        return None
    return float(found[0].replace(",", ""))


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).strip().strip("\"'`").rstrip(".").strip()
    return " ".join(_FILLING.sub("", text).lower().split())
