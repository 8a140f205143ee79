"""What the standard agent says to the policy in addition to the environment."""

from __future__ import annotations

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


def joined(*texts: str) -> str:
    """Return the texts that are not empty, with an empty line between."""
    return "\n\n".join(text for text in texts if text)
