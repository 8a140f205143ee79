"""Marks around an action that mean nothing, such as a model's quotes and bold type."""

from __future__ import annotations

_MARKS = '"`*()[]{}<>\u2018\u2019\u201c\u201d'
_BLANKS = str.maketrans(_MARKS, " " * len(_MARKS))
_END_PUNCTUATION = " .;:!?'"


def undecorated(action: str) -> str:
    """Return a plain action on one line, without quotes, asterisks, brackets and end punctuation.

    For environments in whose actions none of these marks means anything. A bullet goes as well,
    but not a minus sign.
    """
    words = " ".join(action.translate(_BLANKS).split())
    return words.strip(_END_PUNCTUATION).removeprefix("- ")
