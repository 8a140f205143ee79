"""Texts of run folders, made fit to be shown: no control characters, no surrogates, not too long.

They come from models, environments and whoever made the folder. Markup is escaped where it is
written, by the page's template and by the terminal's table.
"""

from __future__ import annotations

import shlex
import unicodedata

_SHOWN = {"\n", "\t"}
_MAX_COMMAND = 20_000


def shown(text: object, *, max_chars: int) -> str:
    """Return a text as a page or a terminal can show it; what is left out is counted."""
    whole = str(text)
    cut = whole[:max_chars]
    left_out = len(whole) - len(cut)
    end = f" ... ({left_out:,} more characters)" if left_out else ""
    return "".join(map(_visible, cut)) + end


def line(text: object, *, max_chars: int = 200) -> str:
    """Return a text on one line."""
    return shown(" ".join(str(text).split()), max_chars=max_chars)


def command(*words: object) -> str:
    """Return a command that can be copied into a shell. A word with a character that cannot be
    shown has its number instead, so that command is only to be read."""
    whole = shown(shlex.join(map(str, words)), max_chars=_MAX_COMMAND)
    return whole.replace("\n", "[U+000A]").replace("\t", "[U+0009]")


def _visible(character: str) -> str:
    """Return a character, or its number where it has no shape of its own or turns others around."""
    if character in _SHOWN or not unicodedata.category(character).startswith("C"):
        return character
    return f"[U+{ord(character):04X}]"


def age(seconds: float) -> str:
    """Return how long ago something was: "40 s", "12 min", "3 h", "9 days"."""
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} days"


def percent(rate: float) -> str:
    """Return a rate as whole percents."""
    return f"{rate:.0%}"
