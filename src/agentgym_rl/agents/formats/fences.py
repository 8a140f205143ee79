"""Fenced blocks of a text, as in CommonMark.

A fence is a line that begins with three backticks or more; a word after them (the language) does
not matter. The block ends at a line of as many backticks or more, so that a longer fence can hold a
shorter one. A fence that begins and ends in one line is a block too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"[ \t]*(`{3,})([^\n]*)")
_RUN = re.compile(r"`+")


@dataclass(frozen=True, slots=True)
class Block:
    """Characters `start` up to `end` of a text are a block; `end` is after its last fence."""

    start: int
    end: int
    body: str | None
    """None where the last fence is missing."""


def find_blocks(text: str) -> list[Block]:
    """Return the blocks in order; only the last can lack its end."""
    blocks: list[Block] = []
    fence, start, body_start = "", 0, 0
    offset = 0
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line)
        end = offset + len(line)
        if found is not None and not fence:
            ticks, rest = found[1], found[2].rstrip()
            if "`" not in rest:
                fence, start, body_start = ticks, offset, end + 1
            elif rest.endswith(ticks):
                blocks.append(Block(offset, end, rest[: -len(ticks)]))
        elif found is not None and len(found[1]) >= len(fence) and not found[2].strip():
            blocks.append(Block(start, end, text[body_start:offset]))
            fence = ""
        offset = end + 1
    return [*blocks, Block(start, len(text), None)] if fence else blocks


def longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max((len(run) for run in _RUN.findall(text)), default=0)
