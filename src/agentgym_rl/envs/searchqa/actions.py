"""What an agent can say: one element, such as `<search> query </search>`, anywhere in its text.

Other text around the element does not matter, nor what is in a `<think>` element before it, so
whole replies of Search-R1's kind are actions too. Of several elements the first counts. An action
in the words of ReAct, `search[query]`, means the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent

MAX_CHARS = 20_000
MAX_QUERY_CHARS = 1_000

_THOUGHT = "think"
_FLAGS = re.IGNORECASE | re.ASCII


@dataclass(frozen=True, slots=True)
class Action:
    """One well-formed action. Example: Action("search", "height of the Eiffel Tower")"""

    tag: str
    text: str
    """What is between the tags, without blanks around it. Never empty."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """The text is no action; `reply` tells the agent why."""

    reply: str


def parse(text: str, tags: Sequence[str]) -> Action | Mistake:
    """Read any text, in linear time; `tags` are the actions that there are."""
    if len(text) > MAX_CHARS:
        return Mistake(f"The action is too long: at most {MAX_CHARS} characters.")
    found = _find_element(text, tags) or _find_call(text, tags)
    if found is None:
        forms = ", ".join(f"<{tag}>...</{tag}>" for tag in tags)
        return Mistake(f"No action found. Write exactly one of {forms}.")
    if not found.text:
        return Mistake(f"The action is empty. Write it between <{found.tag}> and </{found.tag}>.")
    if found.tag == "search" and len(found.text) > MAX_QUERY_CHARS:
        return Mistake(f"The query is too long: at most {MAX_QUERY_CHARS} characters.")
    return found


def _find_element(text: str, tags: Sequence[str]) -> Action | None:
    """Return the first complete element that is no thought."""
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
    """Return the action of the form `search[query]`."""
    call = re.fullmatch(rf"({'|'.join(tags)})\[(.*)\]", text.strip(), _FLAGS | re.DOTALL)
    return None if call is None else Action(call[1].lower(), _content(call[2]))


def _content(text: str) -> str:
    """Return what stands between the marks; lines of code may all be indented alike."""
    return dedent(text).strip()
