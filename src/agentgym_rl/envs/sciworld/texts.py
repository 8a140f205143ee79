"""Text on its way to and from the simulator: what is sent, what is a refusal, what is too long."""

from __future__ import annotations

import re
import unicodedata

_MAX_ACTION_CHARS = 300
_MAX_OBSERVATION_CHARS = 8000
_NOT_UNDERSTOOD = "No known action matches that input."
_CANCELLED = "That is not one of the numbers offered: the request is dropped."
_NOTHING_DONE = "Nothing happens."
_MENU = "Ambiguous request:"


def clean_action(action: str) -> str:
    """Return the action as one short line that any protocol can carry."""
    # Cut before the work, which an agent must not be able to make long.
    head = action[: 4 * _MAX_ACTION_CHARS]
    printable = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in head)
    return re.sub(" +", " ", printable).strip()[:_MAX_ACTION_CHARS].rstrip()


def is_understood(text: str) -> bool:
    """Return whether the reply is to something that the simulator took as an action."""
    return text != _NOT_UNDERSTOOD


def is_menu(text: str) -> bool:
    """Return whether the simulator asks which of several things was meant."""
    return text.startswith(_MENU)


def show(text: str, *, is_cancelled: bool = False) -> str:
    """Return what the agent sees for a reply, which may be empty or, for a menu, very long."""
    if is_cancelled:
        return _CANCELLED
    text = text.strip() or _NOTHING_DONE
    if len(text) <= _MAX_OBSERVATION_CHARS:
        return text
    shown = text[:_MAX_OBSERVATION_CHARS].rsplit("\n", 1)[0]
    num_left = text.count("\n") - shown.count("\n")
    return f"{shown}\n... and {num_left} more lines"
