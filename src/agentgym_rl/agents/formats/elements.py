"""Elements in replies: thoughts, and actions such as `<search> query </search>`.

An environment with `action_tags` takes such text as its actions. All other actions are plain text,
which is called `GENERIC` where a format needs a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

THOUGHT = "think"
GENERIC = "action"
THOUGHT_WITHOUT_END = "The thought has no end. Close it with `</think>`, then act."

_FLAGS = re.IGNORECASE | re.ASCII
_THOUGHT_START = re.compile(r"\s*<think>", re.IGNORECASE)
_THOUGHT_END = re.compile(r"</think>", re.IGNORECASE)
_UNOPENED_END = re.compile(r"</think>[^\S\n]*\n\s*(?=\S)", re.IGNORECASE)


def forms_of(tags: Sequence[str]) -> str:
    """Return how actions in these tags are written, for instructions and complaints."""
    return " or ".join(f"`<{tag}>...</{tag}>`" for tag in tags)


def told_forms(tags: Sequence[str]) -> str:
    """Return the sentence about tags for a format without marks; nothing for plain actions."""
    return f"An action is {forms_of(tags)}. " if tags else ""


def make_element(tag: str, inner: str) -> str:
    """Return the action that says `inner` in a tag."""
    return f"<{tag}>{inner}</{tag}>"


def split_action(action: str, tags: Iterable[str]) -> tuple[str, str]:
    """Return the tag and the inside of an action; plain text is the inside of `GENERIC`."""
    for tag in tags:
        start, end = f"<{tag}>", f"</{tag}>"
        inner = action[len(start) : -len(end)]
        if action == make_element(tag, inner) and inner.strip():
            return tag, inner
    return GENERIC, action


def opened_thought_end(reply: str) -> int | None:
    """Return where the `<think>` element that begins a reply ends; None where it does not end.

    0 without one.
    """
    if not _THOUGHT_START.match(reply):
        return 0
    end = _THOUGHT_END.search(reply)
    return end.end() if end is not None else None


def thought_end(reply: str) -> int | None:
    """Return what `opened_thought_end` does, also where the chat template opened the thought.

    It then ends with a `</think>` at the end of a line that has something after it.
    """
    unopened = None if _THOUGHT_START.match(reply) else _UNOPENED_END.search(reply)
    return unopened.end() if unopened is not None else opened_thought_end(reply)


def only_element(reply: str, tags: Sequence[str]) -> tuple[str, int] | None:
    """Return the only action element of a reply, on one line, and its start; None without one.

    Strict: every tag of the environment occurs once or not at all, and opens before it closes.
    """
    marks = list(re.finditer(rf"<(/?)({_names(tags)})[ \t]*>", reply, _FLAGS)) if tags else []
    if len(marks) != 2:
        return None
    start, end = marks
    inner = _on_one_line(reply[start.end() : end.start()])
    if start[1] or not end[1] or start[2].lower() != end[2].lower() or not inner.strip():
        return None
    return make_element(start[2].lower(), inner), start.start()


def first_element(text: str, tags: Sequence[str]) -> tuple[str, str] | None:
    """Return the action element with which a text begins, on one line, and what follows it."""
    start = re.match(rf"\s*<({_names(tags)})[ \t]*>", text, _FLAGS) if tags else None
    if start is None:
        return None
    end = re.compile(rf"</{re.escape(start[1])}[ \t]*>", _FLAGS).search(text, start.end())
    inner = _on_one_line(text[start.end() : end.start()]) if end is not None else ""
    if end is None or not inner.strip():
        return None
    return make_element(start[1].lower(), inner), text[end.end() :]


def _names(tags: Iterable[str]) -> str:
    return "|".join(map(re.escape, tags))


def _on_one_line(inner: str) -> str:
    return " ".join(inner.split()) if len(inner.splitlines()) > 1 else inner
