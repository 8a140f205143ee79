"""Gymnasium's observations as text.

Text stays as it is, numbers and small groups of numbers are printed, and a picture in characters
has its colours written out. What is too large to read is refused: then `describe` is needed.
"""

from __future__ import annotations

import re

import numpy as np
from gymnasium import spaces

_MAX_NUMBERS = 64
"""Longer arrays are not for reading."""
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_COLOURED = re.compile(r"\x1b\[([0-9;]+)m(.*?)\x1b\[0?m", re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def is_printable(space: spaces.Space[object]) -> bool:
    """Whether values of the space are text, or few enough numbers to be read as text."""
    match space:
        case spaces.Text() | spaces.Discrete():
            return True
        case spaces.Box() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return int(np.prod(space.shape or (1,))) <= _MAX_NUMBERS
        case spaces.Dict():
            return all(is_printable(part) for part in space.spaces.values())
        case spaces.Tuple():
            return all(is_printable(part) for part in space.spaces)
        case _:
            return False


def print_value(value: object) -> str:
    """Return an observation of a printable space in one line.

    Examples: "3", "[0.5, -1.25]", "position: 3, has key: 1"
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return ", ".join(f"{key}: {print_value(part)}" for key, part in value.items())
    if isinstance(value, tuple):
        return ", ".join(print_value(part) for part in value)
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{array.item():.4g}" if array.dtype.kind == "f" else str(array.item())
    return "[" + ", ".join(print_value(part) for part in array) + "]"


def plain_picture(ansi: str) -> str:
    """Return a terminal's picture without colours: "[S]" has a coloured ground, "<blue R>" is blue.

    Example: "\\x1b[41mS\\x1b[0mFFF" becomes "[S]FFF".
    """
    return _ESCAPE.sub("", _COLOURED.sub(_write_colour, ansi)).strip("\n")


def _write_colour(match: re.Match[str]) -> str:
    codes = [int(code) for code in match[1].split(";") if code]
    if any(40 <= code <= 47 for code in codes):
        return f"[{match[2]}]"
    colours = [_COLOURS[code - 30] for code in codes if 30 <= code <= 37]
    return f"<{colours[0]} {match[2]}>" if colours else match[2]
