"""Reads what a shell script sets and calls, without running any of it.

Only what a training script needs: assignments, quotes, continued lines and `$NAME`, `${NAME}` or
`${NAME:-default}` of the script's own assignments. Everything else that a shell would work out
(`$(command)`, `$1`, `${NAME%.sh}`, arithmetic) stays as it is written, and is reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_BRACED = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-([^{}$`'\"]*))?\}")
_SPECIAL = re.compile(r"\$[0-9@*#?$!-]")
_ENDS = {";", "&", "|", "\n", "(", ")"}
MAX_CHARS = 1_000_000


@dataclass(slots=True)
class Script:
    """What a script holds."""

    variables: dict[str, str] = field(default_factory=dict)
    commands: list[list[str]] = field(default_factory=list)
    """The words of each command, in order; variables are filled in."""
    unresolved: list[str] = field(default_factory=list)
    """What a shell would have to work out, as it is written."""


def read_script(text: str) -> Script:
    """Return what a script holds.

    Raises ValueError for one that is too long, also once its variables are filled in, or that ends
    in a quote.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"{len(text)} characters are no training script")
    script = Script()
    lexer = _Lexer(text.replace("\r\n", "\n").replace("\\\n", " "), script)
    while (words := lexer.command()) is not None:
        _take(words, script)
    return script


def _take(words: list[str], script: Script) -> None:
    """Keep the assignments of a command, and the command."""
    rest = [word for word in words if word]
    if rest[:1] in (["export"], ["local"], ["readonly"]):
        rest = rest[1:]
    while rest and (found := _ASSIGNED.fullmatch(rest[0])):
        script.variables[found[1]] = found[2]
        rest = rest[1:]
    if rest:
        script.commands.append(rest)


class _Lexer:
    """Words of one command after another. Variables have the value they have at that place."""

    def __init__(self, text: str, script: Script) -> None:
        self._text, self._script = text, script
        self._place = 0
        self._num_filled = 0

    def command(self) -> list[str] | None:
        """Return the words of the next command; None at the end."""
        if self._place >= len(self._text):
            return None
        words: list[str] = []
        while self._place < len(self._text):
            character = self._text[self._place]
            if character in _ENDS:
                self._place += 1
                break
            if character.isspace():
                self._place += 1
            elif character == "#":
                self._skip_to("\n")
            else:
                words.append(self._word())
        return words

    def _word(self) -> str:
        parts: list[str] = []
        while self._place < len(self._text):
            character = self._text[self._place]
            if character.isspace() or character in _ENDS:
                break
            if character == "'":
                parts.append(self._quoted_plainly())
            elif character == '"':
                parts.append(self._quoted())
            elif character == "\\":
                parts.append(self._text[self._place + 1 : self._place + 2])
                self._place += 2
            elif self._text.startswith('$"', self._place):
                self._place += 1  # a text to be translated
            elif self._text.startswith("$'", self._place):
                start, self._place = self._place, self._end_of("'", self._place + 2)
                parts.append(self._unresolved(self._text[start : self._place]))
            elif character in "$`":
                parts.append(self._expansion())
            else:
                parts.append(character)
                self._place += 1
        return "".join(parts)

    def _quoted_plainly(self) -> str:
        start = self._place + 1
        self._place = self._end_of("'", start)
        return self._text[start : self._place - 1]

    def _quoted(self) -> str:
        parts: list[str] = []
        self._place += 1
        while self._text[self._place : self._place + 1] != '"':
            character = self._text[self._place : self._place + 1]
            if not character:
                raise ValueError("a quote is never closed")
            if character == "\\" and self._text[self._place + 1 : self._place + 2] in tuple(
                '"\\$`'
            ):
                parts.append(self._text[self._place + 1])
                self._place += 2
            elif character in "$`":
                parts.append(self._expansion())
            else:
                parts.append(character)
                self._place += 1
        self._place += 1
        return "".join(parts)

    def _expansion(self) -> str:
        """Return the value of a variable, or what stands there where a shell would be needed."""
        rest = self._text[self._place : self._place + 400]
        if found := _BRACED.match(rest):
            self._place += found.end()
            return self._value(found[1], found[0], default=found[2])
        if rest[0] == "$" and (found := _NAME.match(rest, 1)):
            self._place += found.end()
            return self._value(found[0], f"${found[0]}", default=None)
        start = self._place
        if rest.startswith(("$(", "${")):
            self._place = _end_of_brackets(self._text, start + 1)
            return self._unresolved(self._text[start : self._place])
        if found := _SPECIAL.match(rest):
            self._place += found.end()
            return self._unresolved(found[0])
        if rest[0] == "`":
            self._place = self._end_of("`", start + 1)
            return self._unresolved(self._text[start : self._place])
        self._place += 1
        return rest[0]

    def _value(self, name: str, written: str, *, default: str | None) -> str:
        value = self._script.variables.get(name, default)
        if value is None:
            return self._unresolved(written)
        self._num_filled += len(value)
        if self._num_filled > MAX_CHARS:  # A=$A$A doubles it each time
            raise ValueError(f"its variables grow beyond {MAX_CHARS} characters")
        return value

    def _unresolved(self, written: str) -> str:
        self._script.unresolved.append(written)
        return written

    def _end_of(self, mark: str, start: int) -> int:
        end = self._text.find(mark, start)
        if end < 0:
            raise ValueError(f"a quote ({mark}) is never closed")
        return end + 1

    def _skip_to(self, mark: str) -> None:
        end = self._text.find(mark, self._place)
        self._place = len(self._text) if end < 0 else end


def _end_of_brackets(text: str, start: int) -> int:
    """Return the place after the bracket, round or curly, that closes the one at `start`."""
    opening, depth = text[start], 0
    steps = {opening: 1, {"(": ")", "{": "}"}[opening]: -1}
    for place in range(start, len(text)):
        depth += steps.get(text[place], 0)
        if depth == 0:
            return place + 1
    raise ValueError("a bracket is never closed")


def hydra_overrides(words: list[str]) -> Mapping[str, str]:
    """Return the overrides `key=value` among the words of a command; a + before them is theirs."""
    found = (re.fullmatch(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", word, re.DOTALL) for word in words)
    return {each[1]: each[2] for each in found if each}
