"""The action is the content of a fenced block, for actions of several lines such as programs.

A fence is a line that begins with three backticks or more; a word after them (the language) does
not matter. The block ends at a line of as many backticks or more, so that a longer fence can hold a
shorter one, as in CommonMark. A fence that begins and ends in one line is a block too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentgym_rl.agents.formats.base import DEFAULT_THOUGHT, ActionFormat, ParsedReply

_FENCE = re.compile(r"[ \t]*(`{3,})([^\n]*)")
_RUN = re.compile(r"`{3,}")


@dataclass(frozen=True, slots=True)
class _Block:
    start: int
    body: str | None
    """None where the end is missing."""


class CodeFormat(ActionFormat):
    """A thought, then one fenced block."""

    name = "code"

    def instructions(self) -> str:
        return (
            "Think first, then act. End your reply with one block between lines of three "
            "backticks, which holds the action and nothing else, for example:\n"
            f"{self.write(self._spec.example_action, '...')}"
        )

    def parse(self, reply: str) -> ParsedReply:
        blocks = _blocks(reply)
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
        if _blocks(thought):
            raise ValueError(f"a thought must not hold a fence of backticks: {thought[:80]!r}")
        longest = max((len(run) for run in _RUN.findall(action)), default=2)
        fence = "`" * (longest + 1)
        return f"{thought or DEFAULT_THOUGHT}\n{fence}\n{action}\n{fence}"


def _blocks(text: str) -> list[_Block]:
    """Return the blocks in order; only the last can lack its end."""
    blocks: list[_Block] = []
    fence, start, body_start = "", 0, 0
    offset = 0
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        end = offset + len(line) + 1
        if found is not None and not fence:
            ticks, rest = found[1], found[2].rstrip()
            if "`" not in rest:
                fence, start, body_start = ticks, offset, end
            elif rest.endswith(ticks):
                blocks.append(_Block(offset, rest[: -len(ticks)]))
        elif found is not None and len(found[1]) >= len(fence) and not found[2].strip():
            blocks.append(_Block(start, text[body_start:offset]))
            fence = ""
        offset = end
    return [*blocks, _Block(start, None)] if fence else blocks


def _without_blank_borders(body: str) -> str:
    """Drop blank lines around the text, and what is blank after it; keep its indentation."""
    text = body.lstrip()
    blank = body[: len(body) - len(text)]
    return (blank[blank.rfind("\n") + 1 :] + text).rstrip()
