"""What models put around an action without meaning it: marks of Markdown, quotes, bullets.

    **look**   `look`   "look"   - look   1. look   ```\\nlook\\n```            all mean: look

Only what wraps the whole action is removed, so `click [12]`, `say "a" and "b"` or a quote inside
keep their marks. Backticks are literal: the text between them is the action as it stands, so any
text can be an action, marks included (`quoted_literal`). Several lines lose only their fence.
"""

from __future__ import annotations

import re

from agentgym_rl.agents.formats.fences import find_blocks, longest_run

INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"
"""Characters without width, which some models and web pages leave around text."""
_BULLET = re.compile(r"(?:[-*+•]|\d{1,2}[.)])[ \t]+(?=\S)")
_TICKS = re.compile(r"`+")
_PAIRS = (
    ("***", "***"), ("**", "**"), ("*", "*"), ('"', '"'), ("'", "'"), ("“", "”"), ("«", "»"),
    ("\u2018", "\u2019"),
)  # fmt: skip
_MAX_LAYERS = 4


def undecorated(text: str) -> str:
    """Return the action that a text means, without blanks and decoration around all of it."""
    for _ in range(_MAX_LAYERS):
        text = text.strip().strip(INVISIBLE).strip()
        quoted = literal_in(text)
        if quoted is not None:
            return quoted
        inner = _without_layer(text)
        if inner is None:
            return text
        text = inner
    return text.strip()


def literal_in(text: str) -> str | None:
    """Return what backticks around a whole text hold; None where there are none."""
    if _is_long(text):
        blocks = find_blocks(text)
        is_whole = len(blocks) == 1 and (blocks[0].start, blocks[0].end) == (0, len(text))
        return (blocks[0].body or "").strip() or None if is_whole else None
    ticks = _TICKS.match(text)
    if ticks is None or len(text) <= 2 * ticks.end() or not text.endswith(ticks[0]):
        return None
    inner = text[ticks.end() : -ticks.end()]
    has_own = any(run == ticks[0] for run in _TICKS.findall(inner))
    return None if has_own or inner[-1] == "`" else inner.strip() or None


def quoted_literal(action: str) -> str:
    """Return an action between more backticks than it has, which `undecorated` removes."""
    if _is_long(action):
        fence = "`" * max(3, longest_run(action) + 1)
        return f"{fence}\n{action}\n{fence}"
    ticks = "`" * (longest_run(action) + 1)
    return f"{ticks} {action} {ticks}"


def _without_layer(text: str) -> str | None:
    """Return a text without its outermost decoration; None where it has none."""
    if _is_long(text):
        return None
    bullet = _BULLET.match(text)
    if bullet is not None:
        return text[bullet.end() :]
    inner = _unwrapped(text)
    if inner is None and text.endswith("."):  # of the sentence around a quotation: "look".
        closed = text[:-1].rstrip()
        return closed if _unwrapped(closed) or literal_in(closed) else None
    return inner


def _unwrapped(text: str) -> str | None:
    for start, end in _PAIRS:
        if len(text) > len(start) + len(end) and text.startswith(start) and text.endswith(end):
            inner = text[len(start) : -len(end)]
            return inner if inner.strip() and start not in inner and end not in inner else None
    return None


def _is_long(text: str) -> bool:
    return "\n" in text or "\r" in text
