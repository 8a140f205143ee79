"""What an action format is: what the model is told about its replies, and how an action is read
out of one.

A reply that does not parse is the agent's mistake: the agent is told what was expected, and the
environment is not asked. Every parser takes any text, in linear time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from agentgym_rl.agents.formats.decoration import undecorated
from agentgym_rl.envs.base import EnvSpec, JsonValue, ToolSchema

DEFAULT_THOUGHT = "I do the next step."
"""What a demonstration thinks where the expert gives no reason."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """An action or, if the reply has none, what to tell the model.

    Example: "Thought: left.\\nAction: go" gives ParsedReply("go", action_start=15)
    """

    action: str | None
    complaint: str = ""
    action_start: int | None = None
    """Where in the reply the action begins, marker included; the text before it is thought. None
    without an action."""
    is_open: bool = field(default=False, compare=False)
    """Whether nothing in the reply ends the action: a longer reply could be another action."""


class ToolTemplate(Protocol):
    """What a model's chat template makes of tools; `models/chat.py` has the real one."""

    @property
    def shows_tools(self) -> bool:
        """Whether prompts show the format's tools by themselves."""
        ...

    @property
    def result_role(self) -> str:
        """The role of the message that answers a tool call."""
        ...

    def call_text(self, name: str, arguments: Mapping[str, JsonValue]) -> str | None:
        """Return the reply that calls a tool as the template writes it, if text can say it."""
        ...


class ActionFormat(ABC):
    r"""One way of writing an environment's actions in replies.

    An action is never empty: a reply without one gets a complaint that says what was expected. What
    `write` writes, `parse` reads back unchanged, except for actions that the form cannot say.

    A whole format, in which the action follows the first "=> ":

        class ArrowFormat(ActionFormat):
            name = "arrow"

            def instructions(self) -> str:
                example = self._spec.example_action
                return f"Think, then write `=> ` and one action:\n=> {example}"

            def read(self, reply: str) -> ParsedReply:
                thought, _, rest = reply.partition("=> ")
                if action := self._plain(rest):
                    return ParsedReply(action, action_start=len(thought), is_open=True)
                return ParsedReply(None, "No action found. End your reply with `=> <action>`.")

            def write(self, action: str, thought: str = "") -> str:
                is_plain = self._plain(action) == action
                return f"{thought}\n=> {action if is_plain else quoted_literal(action)}"
    """

    name: ClassVar[str]

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec
        self._keeps_marks = undecorated(spec.example_action) != spec.example_action
        """Whether the environment's actions have such marks: WebArena's are in backticks."""

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        """Schemas of the tools that replies call, for chat templates that show tools."""
        return ()

    def for_template(self, template: ToolTemplate) -> ActionFormat:
        """Return the format in the words of a template that shows the tools."""
        return self

    @abstractmethod
    def instructions(self) -> str:
        """Return what the model is told about the form of its replies."""

    def parse(self, reply: str, *, cut_at: int | None = None) -> ParsedReply:
        """Read the action out of a reply; any text is accepted.

        `cut_at` is the token limit that cut the reply, if one did. In a cut reply only a complete
        action counts: "go to 1" may be the beginning of "go to 12".
        """
        parsed = self.read(reply)
        if cut_at is None or (parsed.action is not None and not parsed.is_open):
            return parsed
        complaint = parsed.complaint or "The action may be incomplete and was not taken."
        return ParsedReply(
            None, f"Your reply was cut at {cut_at} tokens; a reply must be shorter. {complaint}"
        )

    @abstractmethod
    def read(self, reply: str) -> ParsedReply:
        """Read the action out of a reply that ended by itself."""

    @abstractmethod
    def write(self, action: str, thought: str = "") -> str:
        """Return a reply that carries the action: the form of expert demonstrations."""

    def _plain(self, text: str) -> str:
        """Return the action without the decoration around it."""
        return text.strip() if self._keeps_marks else undecorated(text)

    def can_carry(self, action: str) -> bool:
        """Whether a reply can say exactly this action: whether it comes back out of `write`."""
        return self.parse(self.write(action)).action == action
