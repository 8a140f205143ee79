"""Text on its way to and from the simulator: what is sent, what is a refusal, what is too long."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from agentgym_rl.envs.scenarios.decoration import undecorated

_MAX_ACTION_CHARS = 300
_MAX_OBSERVATION_CHARS = 8000
_NOT_UNDERSTOOD = "No known action matches that input."
_CANCELLED = "That is not one of the numbers offered: the request is dropped."
_NOTHING_DONE = "Nothing happens."
_MENU = "Ambiguous request:"
_MAX_THINGS = 80


def clean_action(action: str) -> str:
    """Return the action as one short line without decoration that any protocol can carry.

    No action has a character other than letters, digits and blanks, and the simulator understands
    none that does: quotes, asterisks and brackets go, and so does punctuation at the ends.
    """
    # Cut before the work, which an agent must not be able to make long.
    head = action[: 4 * _MAX_ACTION_CHARS]
    printable = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in head)
    line = undecorated(printable)[:_MAX_ACTION_CHARS].rstrip()
    return "wait1" if line.lower() == "wait 1" else line


def advise(line: str, templates: Sequence[str], list_objects: Callable[[], Sequence[str]]) -> str:
    """Return what to add to the reply that a line was not understood: forms, or what is here.

    After a verb that exists, a thing that is not here is the likely mistake, so the agent reads
    the form of the action and the names of things; else it reads the forms of all actions.
    """
    forms = [re.sub("OBJ$", "Y", form.replace("OBJ", "X", 1)) for form in templates]
    verbs = {form.partition(" X")[0]: form for form in forms if "X" in form.split()}
    words = f"{line.lower()} "
    verb = max((verb for verb in verbs if words.startswith(f"{verb} ")), key=len, default=None)
    if verb is None:
        return f" The actions are: {', '.join(forms)}."
    things = ", ".join(list_objects()[:_MAX_THINGS])
    return f' The form is "{verbs[verb]}". You can name: {things}.'


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
