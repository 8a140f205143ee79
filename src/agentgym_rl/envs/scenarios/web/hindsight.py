"""What an expert thinks at each step of a task, told by who knows what came of it.

A link is often taken for what lies behind it, which is known only at the end. With it a thought
says where the way leads, instead of that it leads on: "To enter Attic room I take the link Account,
then Wish Lists, then Create a new wish list."
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

_ARGUMENT = re.compile(r"\[([^\[\]]*)\]")
_DONE = "complete the task"
"""What the last action is for where no answer is asked for."""
_FILLING = ("type", "select_option")
_DEEDS = tuple(
    f"button {verb}"
    for verb in (
        "Add", "Change", "Close", "Comment", "Create", "Delete", "Edit", "Follow", "Go", "Invite",
        "Lock", "Merge", "Order", "Place", "Post", "Remove", "Save", "Send", "Set", "Star", "Start",
        "Submit", "Subscribe", "Update", "Upload", "Upvote", "Watch",
    )
)  # fmt: skip
"""Buttons that do something; others open a menu."""
_MAX_WAY = 3
"""Links named in one thought."""
_MAX_CHARS = 60
"""Of what is entered, in the thought of a link that leads there."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An action of the expert and what it thought before it."""

    action: str
    thought: str
    called: str = ""
    """The element that it is on, such as "link Account"; empty for a scroll or a stop."""
    leads_on: bool = False
    """Whether neither the task nor the page says why."""
    is_told: bool = False
    """Whether the task names what is typed or chosen, or else the element."""
    is_known: bool = True
    """Whether the element can be named before it was seen."""


def arguments(action: str) -> list[str]:
    """Return what an action has in brackets: "type [4] [mugs]" has "4" and "mugs"."""
    return _ARGUMENT.findall(action)


def retell(steps: Sequence[Taken]) -> list[str]:
    """Return the thoughts of a solved task, each link taken for what lies behind it.

    What only a later page shows is not named.
    """
    return [
        _why(steps[:number], steps[number:]) if step.leads_on else step.thought
        for number, step in enumerate(steps)
    ]


def _why(before: Sequence[Taken], steps: Sequence[Taken]) -> str:
    """Return why the first of these steps is taken, which leads on to the others."""
    moves = [step for step in steps if not step.action.startswith("scroll")]
    way = list(takewhile(lambda step: step.leads_on, moves))
    first, aim = way[0], _aim(moves[len(way)]) if len(way) < len(moves) else ""
    done = [step for step in before if not step.action.startswith("scroll")]
    is_deed = first.called.startswith(_DEEDS)
    if aim == _DONE and len(way) == 1 and first.called.startswith("button"):
        return f"All is as the task says, and the {first.called} completes it."
    if is_deed and done and done[-1].action.startswith(_FILLING):
        return f"All is filled in, so I take the {first.called}."
    if is_deed:
        return f"Now I take the {first.called}, as the task needs it."
    if not aim or " " not in first.called:
        return first.thought
    rest = [step.called.partition(" ")[2] for step in way[1:_MAX_WAY] if step.is_known]
    return f"To {aim} I take the {', then '.join([first.called, *rest])}."


def _aim(step: Taken) -> str:
    """Return what a step is for, to be said before it; empty where it says nothing."""
    verb, values = step.action.partition(" ")[0], arguments(step.action)
    if verb == "stop":
        return _DONE if values == ["done"] else "find the answer"
    if verb in ("type", "select_option") and len(values) > 1 and step.is_told:
        text = values[1] if len(values[1]) <= _MAX_CHARS else values[1][:_MAX_CHARS] + "..."
        return f"{'enter' if verb == 'type' else 'choose'} {text}"
    if verb == "goto" and values:
        return f"go on to {values[0]}"
    if not step.called:
        return ""
    return f"get to the {step.called}" if step.is_known else "find what I look for"
