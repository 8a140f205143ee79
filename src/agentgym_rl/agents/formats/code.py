"""The action is the content of a fenced block, for actions of several lines such as programs.

The content is the action as it stands, indentation included; fences.py has the rules.
"""

from __future__ import annotations

from agentgym_rl.agents.formats.base import DEFAULT_THOUGHT, ActionFormat, ParsedReply
from agentgym_rl.agents.formats.elements import THOUGHT_WITHOUT_END, opened_thought_end, told_forms
from agentgym_rl.agents.formats.fences import find_blocks, longest_run


class CodeFormat(ActionFormat):
    """A thought, then one fenced block."""

    name = "code"

    def instructions(self) -> str:
        return (
            f"{told_forms(self._spec.action_tags)}"
            "Think first, then act. End your reply with one block between lines of three "
            "backticks, which holds the action and nothing else, for example:\n"
            f"{self.write(self._spec.example_action, '...')}"
        )

    def read(self, reply: str) -> ParsedReply:
        start = opened_thought_end(reply)
        if start is None:
            return ParsedReply(None, THOUGHT_WITHOUT_END)
        blocks = [block for block in find_blocks(reply) if block.start >= start]
        if not blocks:
            return ParsedReply(
                None, "No action found. Write it in a block between lines of three backticks."
            )
        if len(blocks) > 1:
            return ParsedReply(
                None, f"{len(blocks)} blocks found. Give exactly one, which holds the action."
            )
        body = blocks[0].body
        if body is None:
            return ParsedReply(
                None, "The block has no end. Close it with a line of three backticks."
            )
        action = _without_blank_borders(body)
        if not action:
            return ParsedReply(None, "The block is empty. Write the action in it.")
        return ParsedReply(action, action_start=blocks[0].start)

    def write(self, action: str, thought: str = "") -> str:
        if find_blocks(thought):
            raise ValueError(f"a thought must not hold a fence of backticks: {thought[:80]!r}")
        fence = "`" * max(3, longest_run(action) + 1)
        return f"{thought or DEFAULT_THOUGHT}\n{fence}\n{action}\n{fence}"


def _without_blank_borders(body: str) -> str:
    """Drop blank lines around the text, and what is blank after it; keep its indentation."""
    text = body.lstrip()
    blank = body[: len(body) - len(text)]
    return (blank[blank.rfind("\n") + 1 :] + text).rstrip()
