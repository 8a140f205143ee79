"""What the standard agent says to the policy beside what the environment says."""

from __future__ import annotations

from collections.abc import Sequence

PLAN = "Before you act, write a short plan: the next steps, one a line."
GO_ON = "Now go on with your next action."
SUMMARIZE = (
    "Before you act, sum up in a few lines what you have done and learned so far; older messages "
    "are about to be removed."
)
REFLECT = (
    "This attempt did not solve the task. Say in a few lines what went wrong and what to do "
    "differently; then you will start again from the beginning."
)
LEARNED = "You have tried this task before, without success. What did you learn?"
LEFT_OUT = "(Earlier rounds are left out here.)"

_MAX_STEPS = 5
"""Of a demonstrated plan or summary: it has to fit into a reply."""


def plan_of(actions: Sequence[str]) -> str:
    """Return the plan of one who is going to take these actions: "1. go forward\\n2. ..."."""
    return "\n".join(f"{place}. {action}" for place, action in enumerate(actions[:_MAX_STEPS], 1))


def summary_of(actions: Sequence[str]) -> str:
    """Return the summary of one who took these actions, the latest of them."""
    return "Done: " + "; ".join(actions[-_MAX_STEPS:])


def joined(*texts: str) -> str:
    """Return the texts that there are, with an empty line between."""
    return "\n\n".join(text for text in texts if text)
