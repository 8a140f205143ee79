"""What a docstring says about a function and its arguments, in the two usual styles.

Args:                                    :param order: the number of the order
    order: the number of the order
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples|Note)s?:")
_OF_ARGUMENTS = ("Args", "Arguments", "Parameters")
_GOOGLE = re.compile(r"\*{0,2}([A-Za-z_]\w*)[ ]*(?:\([^)]*\))?:\s*(.*)")
_SPHINX = re.compile(r":param\s+(?:[\w\[\], .|]+\s+)?([A-Za-z_]\w*):\s*(.*)")


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring's text before its sections, and what it says of each argument."""

    text: str
    arguments: Mapping[str, str]


def read_docstring(docstring: str) -> Docstring:
    """Return what a docstring says; its common indentation must have been removed."""
    text, arguments = list[str](), dict[str, str]()
    section, latest, is_text = "", "", True
    for line in docstring.splitlines():
        words, is_indented = line.strip(), line[:1].isspace()
        header = None if is_indented else _SECTION.fullmatch(words)
        if header is not None:
            section, latest, is_text = header[1], "", False
            continue
        if words.startswith(":"):
            is_text, latest = False, ""
        named = _SPHINX.match(words)
        if named is None and section in _OF_ARGUMENTS and is_indented:
            depth = len(line) - len(line.lstrip())
            named = _GOOGLE.match(words) if depth <= 4 else None
        if named is not None:
            latest = named[1]
            arguments[latest] = named[2].strip()
        elif latest and words and is_indented:
            arguments[latest] = f"{arguments[latest]} {words}".strip()
        elif is_text:
            text.append(words)
        elif section and not is_indented and words:
            section = latest = ""
    return Docstring("\n".join(text).strip(), arguments)
