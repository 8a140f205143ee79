"""Action formats: what the model is told about its replies, and how an action is read out of one.

A reply that does not parse is the agent's own mistake: it gets a message back that says what was
expected, and the environment is not asked.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from agentgym_rl.envs.base import EnvSpec


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """Either an action or, where there is none, what to tell the model."""

    action: str | None
    complaint: str = ""


class ActionFormat(ABC):
    """One way of writing an action in a reply."""

    name: ClassVar[str]

    @abstractmethod
    def instructions(self, spec: EnvSpec) -> str:
        """Return what the model is told about the form of its replies."""

    @abstractmethod
    def parse(self, reply: str) -> ParsedReply:
        """Read the action out of a reply; any text is accepted."""

    @abstractmethod
    def write(self, action: str, thought: str = "") -> str:
        """Return a reply that carries the action: the form of expert demonstrations."""


class DirectFormat(ActionFormat):
    """The whole reply is the action."""

    name = "direct"

    def instructions(self, spec: EnvSpec) -> str:
        return f"Reply with one action and nothing else, for example:\n{spec.example_action}"

    def parse(self, reply: str) -> ParsedReply:
        action = reply.strip()
        if not action:
            return ParsedReply(None, "Your reply was empty. Reply with one action.")
        return ParsedReply(action)

    def write(self, action: str, thought: str = "") -> str:
        return action


class ReActFormat(ActionFormat):
    """A thought, then an action on its own line (arXiv:2210.03629)."""

    name = "react"
    _MARK = re.compile(r"^[ \t]*action[ \t]*:", re.IGNORECASE | re.MULTILINE)

    def instructions(self, spec: EnvSpec) -> str:
        return (
            "Think first, then act. Reply with a line that starts with `Thought:` and, after it, "
            "one line that starts with `Action:`, for example:\n"
            f"Thought: ...\nAction: {spec.example_action}"
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
        return ParsedReply(lines[0].strip())

    def write(self, action: str, thought: str = "") -> str:
        return f"Thought: {thought or 'I do the next step.'}\nAction: {action}"


_FORMATS: dict[str, type[ActionFormat]] = {cls.name: cls for cls in (ReActFormat, DirectFormat)}


def make_format(name: str) -> ActionFormat:
    """Return the action format of that name."""
    if name not in _FORMATS:
        raise ValueError(f"unknown agent.format {name!r}; there are: {', '.join(_FORMATS)}")
    return _FORMATS[name]()
