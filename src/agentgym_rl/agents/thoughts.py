"""Where the thought of a reply ends and its action begins."""

from __future__ import annotations

_END_OF_THOUGHT = "</think>"
"""What thinking models write after their thoughts."""
_FENCE = "```"


def action_start(reply: str, action: str | None) -> int:
    """Return the character at which a reply turns to its action; 0 where that cannot be said.

    The action begins with its line (`Action: look`), or with the fence before it, and in any case
    after the block in which thinking models think. A reply without an action, or one whose action
    does not stand in it as it was read, is an action as a whole.
    """
    place = reply.rfind(action) if action else -1
    if place < 0:
        return 0
    line = reply.rfind("\n", 0, place) + 1
    before = reply.rfind("\n", 0, max(0, line - 1)) + 1
    if line and reply[before:line].lstrip().startswith(_FENCE):
        line = before
    thought_end = reply.rfind(_END_OF_THOUGHT)
    if thought_end >= 0:
        rest = reply[thought_end + len(_END_OF_THOUGHT) :]
        line = max(line, len(reply) - len(rest.lstrip()))
    return line
