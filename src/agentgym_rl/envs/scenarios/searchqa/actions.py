"""What an agent can say: one element, such as `<search> query </search>`, anywhere in its text.

Other text around the element does not matter, nor what is in a `<think>` element before it, so
whole replies of Search-R1's kind are actions too. Of several elements the first counts. Without an
element, `search: query`, `search[query]`, `search(query)` and, on one line, `search query` mean the
same, in quotes or not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent

MAX_CHARS = 20_000
MAX_QUERY_CHARS = 1_000

_THOUGHT = "think"
_CODE = "python"
_MARKS = " \t\n\"'`*"
_CALLS = (
    r"({names})[ \t]*\[(.*)\]",
    r"({names})[ \t]*\((.*)\)",
    r"({names})[ \t]*:([^\n]*)",
    r"({names})[ \t]+([^\n\[(:]+)",
    rf"({_CODE})[ \t]*:(.*)",  # of all texts only code may have several lines
)
_FLAGS = re.IGNORECASE | re.ASCII


@dataclass(frozen=True, slots=True)
class Action:
    """One well-formed action. Example: Action("search", "height of the Eiffel Tower")"""

    tag: str
    text: str
    """What is between the tags, without blanks around it. Never empty."""


@dataclass(frozen=True, slots=True)
class SearchMistake:
    """The text is not an action; `reply` says why."""

    reply: str


def parse(text: str, tags: Sequence[str]) -> Action | SearchMistake:
    """Read any text, in linear time; `tags` are the actions that there are."""
    if len(text) > MAX_CHARS:
        return SearchMistake(f"The action is too long: at most {MAX_CHARS} characters.")
    found = _find_element(text, tags) or _find_call(text, tags)
    if found is None:
        known = ", ".join(tags)
        return SearchMistake(f"No action found. Do one of {known}, such as search: a query.")
    if not found.text:
        return SearchMistake(f"The action is empty: {found.tag} takes a text.")
    if found.tag == "search" and len(found.text) > MAX_QUERY_CHARS:
        return SearchMistake(f"The query is too long: at most {MAX_QUERY_CHARS} characters.")
    return found


def _find_element(text: str, tags: Sequence[str]) -> Action | None:
    """Return the first complete element that is not a thought."""
    names = "|".join((_THOUGHT, *tags))
    opened: re.Match[str] | None = None
    for mark in re.finditer(rf"<(/?)({names})[ \t]*>", text, _FLAGS):
        tag, is_close = mark[2].lower(), bool(mark[1])
        if opened is None:
            opened = None if is_close else mark
        elif is_close and tag == opened[2].lower():
            if tag != _THOUGHT:
                return Action(tag, _content(text[opened.end() : mark.start()]))
            opened = None
    return None


def _find_call(text: str, tags: Sequence[str]) -> Action | None:
    """Return the action of a text that begins with its name."""
    names = "|".join(tags)
    plain = text.strip()
    for form in _CALLS:
        call = re.compile(form.format(names=names), _FLAGS | re.DOTALL)
        match = call.fullmatch(plain) or call.fullmatch(plain.strip(_MARKS))
        if match is None or match[1].lower() not in tags:
            continue
        tag = match[1].lower()
        return Action(tag, _content(match[2]) if tag == _CODE else match[2].strip(_MARKS))
    return None


def _content(text: str) -> str:
    """Return what stands between the marks; lines of code may all be indented alike."""
    return dedent(text).strip()
