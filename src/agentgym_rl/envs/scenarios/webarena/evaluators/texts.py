"""Whether one text has what another asks for. Pure functions, as WebArena's rules have them."""

from __future__ import annotations

import re

_ALWAYS_APART = re.compile(
    r"""([;@#$%&?!*()\[\]{}<>"“”„«»\u2018\u2019\u2013\u2014]|\.{2,}|--|`+|'')"""
)
"""Marks that are a word by themselves wherever they stand."""
_BEFORE_NO_DIGIT = re.compile(r"([,:])(?=\D|$)")
"""A comma or a colon is one, except in 1,000 or 12:30."""
_LAST_PERIOD = re.compile(r"""(?<=[^.\s])(\.)(?=[\])}>"'\s]*$)""")
_ENDING_PERIOD = re.compile(
    r"""((?:(?<!\S)|(?<=[("'`]))[-.,]?\d[\d,.-]*\.(?=\s+[a-z]))|(?<=[^.\s])\.(?=[\])}>"'”\u2019»]*\s)"""
)
"""Within a text a period ends a sentence, except in the first group: a number before a small
letter, which is an ordinal."""
_QUOTE_BEFORE_WORD = re.compile(r"(?<!\S)(')(?=\w\b)")
_QUOTE_AFTER_WORD = re.compile(r"(?<=[^'\s])('[smd]|')(?=\s|$)")


def clean(text: str) -> str:
    """Return a text without what wraps it: spaces and one pair of quotes, in small letters."""
    text = text.strip()
    for quote in ("'", '"'):
        if text.startswith(quote) and text.endswith(quote):
            return text[1:-1].lower()
    return text.lower()


def is_same(wanted: str, said: str) -> bool:
    return clean(said) == clean(wanted)


def includes(wanted: str, said: str, *, as_word: bool = False) -> bool:
    """Return whether a text occurs in another; with `as_word` a single character only as a word.

    "1" is then not in "10 items", but in "1 item" and "(1)".
    """
    wanted, said = clean(wanted), clean(said)
    if as_word and len(wanted) == 1 and not wanted.isspace():
        return wanted in words_of(said)
    return wanted in said


def words_of(text: str) -> list[str]:
    """Return the words and marks of a text in small letters, as a treebank counts them."""
    text = _LAST_PERIOD.sub(r" \1", text)
    text = _ENDING_PERIOD.sub(lambda found: found[0] if found[1] else " .", text)
    for mark in (_ALWAYS_APART, _BEFORE_NO_DIGIT, _QUOTE_BEFORE_WORD, _QUOTE_AFTER_WORD):
        text = mark.sub(r" \1 ", text)
    return text.split()
