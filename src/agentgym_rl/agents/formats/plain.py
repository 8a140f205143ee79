"""The formats without marks around the action: the reply itself, or a line of it.

Models decorate what they write. Decoration around the label or the whole action is removed
(decoration.py); what could be two different actions is refused.
"""

from __future__ import annotations

import re

from agentgym_rl.agents.formats.base import DEFAULT_THOUGHT, ActionFormat, ParsedReply
from agentgym_rl.agents.formats.decoration import INVISIBLE, literal_in, quoted_literal
from agentgym_rl.agents.formats.elements import (
    THOUGHT_WITHOUT_END,
    first_element,
    only_element,
    thought_end,
    told_forms,
)
from agentgym_rl.agents.formats.fences import find_blocks

_LINE_START = (
    rf"^(?:[^\S\n]|[{INVISIBLE}])*"  # blanks, then quote marks, headings, bullets and numbers
    r"(?:(?:[>#]{1,6}|[-*+•]|\d{1,2}[.)])[ \t]+)*"
)


def _label(word: str) -> str:
    """Return the pattern of a label such as `Action:`, `**Action:**`, `**Action**:`, `Action 2:`.

    The group `open` holds marks of Markdown before it, `shut` or `late` those that close them.
    """
    return (
        rf"(?P<open>\*{{1,3}}|_{{1,3}}|`)?{word}(?:[ \t]*\d{{1,3}})?"
        r"(?(open)(?P<shut>(?P=open))?)[ \t]*[:\uff1a](?(open)(?:[ \t]*(?P<late>(?P=open)))?)"
    )


_MARK = re.compile(_LINE_START + _label("action"), re.IGNORECASE | re.MULTILINE)
_OBSERVATION = re.compile(_LINE_START + _label("observation"), re.IGNORECASE | re.MULTILINE)
_INNER_MARK = re.compile(r"(?<=\s)" + _label("(?:Action|ACTION)"))
"""In the middle of a line only a label with a capital counts: "the best action: ..." is prose."""


class DirectFormat(ActionFormat):
    """The whole reply is the action."""

    name = "direct"

    def instructions(self) -> str:
        return (
            f"{told_forms(self._spec.action_tags)}Reply with one action and nothing else, for "
            f"example:\n{self._spec.example_action}"
        )

    def read(self, reply: str) -> ParsedReply:
        whole = reply.strip() if self._keeps_marks else literal_in(reply.strip())
        if whole:
            return ParsedReply(whole, action_start=0, is_open=self._keeps_marks)
        start = thought_end(reply)
        if start is None:
            return ParsedReply(None, THOUGHT_WITHOUT_END)
        text = reply[start:].strip()
        label = _MARK.match(text)
        if label is not None and len(text.splitlines()) == 1:
            text = _after(label, text[label.end() :])
        action = self._plain(text)
        if not action:
            return ParsedReply(None, "Your reply was empty. Reply with one action.")
        return ParsedReply(action, action_start=start, is_open=True)

    def write(self, action: str, thought: str = "") -> str:
        return action if self.read(action).action == action else quoted_literal(action)


class ReActFormat(ActionFormat):
    """A thought, then an action on its own line (arXiv:2210.03629)."""

    name = "react"

    def instructions(self) -> str:
        return (
            f"{told_forms(self._spec.action_tags)}"
            "Think first, then act. Reply with a line that starts with `Thought:` and, after it, "
            "one line that starts with `Action:`, for example:\n"
            f"Thought: ...\nAction: {self._spec.example_action}"
        )

    def read(self, reply: str) -> ParsedReply:
        start = thought_end(reply)
        if start is None:
            return ParsedReply(None, THOUGHT_WITHOUT_END)
        said = reply[start:]
        text = _without_imagined(said)
        marks = list(_MARK.finditer(text)) or list(_INNER_MARK.finditer(text))
        if not marks:
            return self._read_element(text, start)
        if len(marks) > 1:
            return ParsedReply(
                None, f"{len(marks)} actions found. Give exactly one `Action:` line in a reply."
            )
        action, is_open = self._action(marks[0], text[marks[0].end() :])
        if not action:
            return ParsedReply(None, "The action is empty. Write it after `Action:`, on one line.")
        is_open = is_open and len(text) == len(said)
        return ParsedReply(action, action_start=start + marks[0].start(), is_open=is_open)

    def write(self, action: str, thought: str = "") -> str:
        opening = f"Thought: {thought or DEFAULT_THOUGHT}\nAction: "
        is_plain = len(action.splitlines()) > 1 or self.read(opening + action).action == action
        return opening + (action if is_plain else quoted_literal(action))

    def _action(self, mark: re.Match[str], rest: str) -> tuple[str, bool]:
        """Return the action after a label, and whether more text could change it."""
        element = first_element(rest, self._spec.action_tags)
        if element is not None:
            return element[0], False
        body = rest.lstrip().lstrip(INVISIBLE).lstrip()
        block = next((block for block in find_blocks(body)[:1] if block.start == 0), None)
        if block is not None and not self._keeps_marks:
            inner = body.partition("\n")[2] if block.body is None else block.body
            lines = [line for line in inner.splitlines() if line.strip()]
            return lines[0].strip() if len(lines) == 1 else "", block.body is None
        lines = body.splitlines()
        is_open = len(lines) == 1 and not body.endswith(("\n", "\r"))
        return self._plain(_after(mark, lines[0])) if lines else "", is_open

    def _read_element(self, text: str, start: int) -> ParsedReply:
        """Read a reply without a label: the environment's tags will do, if they are clear."""
        element = only_element(text, self._spec.action_tags)
        if element is None:
            return ParsedReply(
                None, "No action found. End your reply with a line `Action: <action>`."
            )
        return ParsedReply(element[0], action_start=start + element[1])


def _without_imagined(text: str) -> str:
    """Return a text up to where it imagines the answer to its first action."""
    first = _MARK.search(text)
    imagined = _OBSERVATION.search(text, first.end()) if first is not None else None
    return text if imagined is None else text[: imagined.start()]


def _after(mark: re.Match[str], line: str) -> str:
    """Return what follows a label in its line, without the mark that was opened before it."""
    opened = mark["open"]
    if opened and not (mark["shut"] or mark["late"]):
        return line.rstrip().removesuffix(opened)
    return line
