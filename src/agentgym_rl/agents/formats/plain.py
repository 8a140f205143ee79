"""The formats without marks around the action: the reply itself, or a line of it."""

from __future__ import annotations

import re

from agentgym_rl.agents.formats.base import DEFAULT_THOUGHT, ActionFormat, ParsedReply


class DirectFormat(ActionFormat):
    """The whole reply is the action."""

    name = "direct"

    def instructions(self) -> str:
        return "Reply with one action and nothing else, for example:\n" + self._spec.example_action

    def parse(self, reply: str) -> ParsedReply:
        action = reply.strip()
        if not action:
            return ParsedReply(None, "Your reply was empty. Reply with one action.")
        return ParsedReply(action, action_start=0)

    def write(self, action: str, thought: str = "") -> str:
        return action


class ReActFormat(ActionFormat):
    """A thought, then an action on its own line (arXiv:2210.03629)."""

    name = "react"
    _MARK = re.compile(r"^[ \t]*action[ \t]*:", re.IGNORECASE | re.MULTILINE)

    def instructions(self) -> str:
        return (
            "Think first, then act. Reply with a line that starts with `Thought:` and, after it, "
            "one line that starts with `Action:`, for example:\n"
            f"Thought: ...\nAction: {self._spec.example_action}"
        )

    def parse(self, reply: str) -> ParsedReply:
        marks = list(self._MARK.finditer(reply))
        if not marks:
            return ParsedReply(
                None, "No action found. End your reply with a line `Action: <action>`."
            )
        if len(marks) > 1:
            return ParsedReply(
                None, f"{len(marks)} actions found. Give exactly one `Action:` line in a reply."
            )
        lines = reply[marks[0].end() :].strip().splitlines()
        if not lines:
            return ParsedReply(None, "The action is empty. Write it after `Action:`.")
        return ParsedReply(lines[0].strip(), action_start=marks[0].start())

    def write(self, action: str, thought: str = "") -> str:
        return f"Thought: {thought or DEFAULT_THOUGHT}\nAction: {action}"
