"""Actions that are elements, such as `<search> query </search>`, for the formats that name them.

An environment with `action_tags` takes such text as its actions. All of its other actions, and
those of an environment without tags, are plain text, which has the name `GENERIC` where a format
needs one.
"""

from __future__ import annotations

from collections.abc import Iterable

THOUGHT = "think"
GENERIC = "action"


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
