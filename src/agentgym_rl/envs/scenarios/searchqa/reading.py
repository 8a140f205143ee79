"""What an agent gets to read: passages as text, cut to a budget.

The budget is in words. A word here is a run of at most 20 characters without blanks, so that text
without blanks has a length as well; a token of a usual tokenizer is about three quarters of one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentgym_rl.retrieval.passages import Passage

NOTHING_FOUND = "<information>\nNo passage found.\n</information>"

_WORD = re.compile(r"\S{1,20}")
_DISTINCTION = re.compile(r" \([^()]*\)$")
_CUT = " ..."


@dataclass(frozen=True, slots=True)
class Shown:
    """A passage as an agent saw it."""

    passage: Passage
    text: str
    """What was shown of its text, in one line."""
    is_cut: bool


def show_all(passages: Sequence[Passage], max_words: int) -> tuple[Shown, ...]:
    """Return the passages as they fit into `max_words`, titles included.

    Each may take an even share of what those before it have left.
    """
    shown: list[Shown] = []
    num_left = max_words
    for number, passage in enumerate(passages):
        share = num_left // (len(passages) - number)
        num_title = count_words(passage.title)
        text, is_cut = cut(passage.text, max(share - num_title, 0))
        num_left -= min(num_title + count_words(text), share)
        shown.append(Shown(passage, text, is_cut))
    return tuple(shown)


def information(shown: Sequence[Shown]) -> str:
    """Return the observation of a search, one line per passage."""
    if not shown:
        return NOTHING_FOUND
    lines = (
        f"Doc {number} (Title: {one.passage.title}) {one.text}"
        for number, one in enumerate(shown, 1)
    )
    return "\n".join(("<information>", *lines, "</information>"))


def plain_title(title: str) -> str:
    """Return a title without what sets it apart from namesakes: "Brother (1997 film)"."""
    return _DISTINCTION.sub("", title)


def cut(text: str, max_words: int) -> tuple[str, bool]:
    """Return at most this many words in one line, and whether some are missing."""
    line = " ".join(text.split())
    end = 0
    for number, word in enumerate(_WORD.finditer(line)):
        if number == max_words:
            return line[:end] + _CUT, True
        end = word.end()
    return line, False


def count_words(text: str) -> int:
    """Return the length of a text in the budget's words."""
    return sum(1 for _ in _WORD.finditer(text))
