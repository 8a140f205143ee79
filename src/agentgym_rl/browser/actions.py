"""Actions in a browser, and how they are written: `parse_action`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

MAX_TEXT_CHARS = 4000
_MAX_COMBO_KEYS = 4


@dataclass(frozen=True, slots=True)
class Click:
    element: int


@dataclass(frozen=True, slots=True)
class Hover:
    element: int


@dataclass(frozen=True, slots=True)
class Type:
    """Replace what a field holds by a text."""

    element: int
    text: str
    enter: bool
    """Whether Enter is pressed afterwards."""


@dataclass(frozen=True, slots=True)
class SelectOption:
    element: int
    option: str


@dataclass(frozen=True, slots=True)
class Press:
    keys: str
    """In Playwright's words: "Control+a"."""


@dataclass(frozen=True, slots=True)
class Scroll:
    is_down: bool


@dataclass(frozen=True, slots=True)
class Goto:
    url: str


@dataclass(frozen=True, slots=True)
class NewTab:
    pass


@dataclass(frozen=True, slots=True)
class TabFocus:
    tab: int


@dataclass(frozen=True, slots=True)
class CloseTab:
    pass


@dataclass(frozen=True, slots=True)
class GoBack:
    pass


@dataclass(frozen=True, slots=True)
class GoForward:
    pass


@dataclass(frozen=True, slots=True)
class Stop:
    answer: str


BrowserAction = (
    Click
    | Hover
    | Type
    | SelectOption
    | Press
    | Scroll
    | Goto
    | NewTab
    | TabFocus
    | CloseTab
    | GoBack
    | GoForward
    | Stop
)

USAGE = {
    "click": "click [id]",
    "hover": "hover [id]",
    "type": "type [id] [text], or type [id] [text] [0] without Enter",
    "select_option": "select_option [id] [option]",
    "press": "press [keys], e.g. press [Control+a]",
    "scroll": "scroll [down] or scroll [up]",
    "goto": "goto [url]",
    "new_tab": "new_tab",
    "tab_focus": "tab_focus [number]",
    "close_tab": "close_tab",
    "go_back": "go_back",
    "go_forward": "go_forward",
    "stop": "stop [answer]",
}
"""Verb -> how it is written."""


class UnreadableActionError(ValueError):
    """An action that is none; the message tells the agent what was expected."""


_VERB = re.compile(r"[\s`*\"'>-]*([a-z_]+)[\s`*\"']*", re.IGNORECASE)
_ID = re.compile(r"\[?\s*([0-9]{1,6})\s*\]?")
_DECORATION = " \t\r\n`*\"'"
_KEYS = {
    "ctrl": "Control", "control": "Control", "cmd": "Control", "command": "Control",
    "meta": "Control", "alt": "Alt", "option": "Alt", "shift": "Shift", "enter": "Enter",
    "return": "Enter", "esc": "Escape", "escape": "Escape", "tab": "Tab", "space": "Space",
    "backspace": "Backspace", "delete": "Delete", "del": "Delete", "home": "Home", "end": "End",
    "pageup": "PageUp", "pagedown": "PageDown", "up": "ArrowUp", "arrowup": "ArrowUp",
    "down": "ArrowDown", "arrowdown": "ArrowDown", "left": "ArrowLeft", "arrowleft": "ArrowLeft",
    "right": "ArrowRight", "arrowright": "ArrowRight",
} | {f"f{number}": f"F{number}" for number in range(1, 13)}  # fmt: skip
_SINGLE_KEYS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.,;/-=[]'\\`")


def parse_action(text: str, verbs: Collection[str] = tuple(USAGE)) -> BrowserAction:
    """Return the action that a text says. Raises UnreadableActionError for anything else.

    Brackets may be missing where nothing becomes ambiguous: `click 12` is `click [12]`.
    """
    match = _VERB.match(text)
    verb = match[1].lower() if match else ""
    if match is None or verb not in verbs:
        raise UnreadableActionError(f"There is no such action. Use one of: {', '.join(verbs)}.")
    action = _parse(verb, text[match.end() :].strip(_DECORATION))
    if action is None:
        raise UnreadableActionError(f"This action is written {USAGE[verb]}.")
    return action


def _parse(verb: str, rest: str) -> BrowserAction | None:
    """Return the action, or None where its arguments cannot be read."""
    plain: dict[str, BrowserAction] = {
        "new_tab": NewTab(), "close_tab": CloseTab(), "go_back": GoBack(),
        "go_forward": GoForward(),
    }  # fmt: skip
    if verb in plain:
        return plain[verb] if not rest.strip("[].") else None
    if verb == "stop":
        return Stop(_inside(rest))
    if verb == "goto":
        return Goto(_inside(rest)) if _inside(rest) else None
    if verb == "scroll":
        direction = _inside(rest).lower()
        return Scroll(direction == "down") if direction in ("up", "down") else None
    if verb == "press":
        keys = _keys(_inside(rest))
        return Press(keys) if keys else None
    number = _ID.match(rest)
    if number is None:
        return None
    rest = rest[number.end() :].strip()
    if verb == "type":
        return _parse_type(int(number[1]), rest)
    if verb == "select_option":
        option = _inside(rest)
        return SelectOption(int(number[1]), option) if option else None
    if "[" in rest or (rest.strip(".") and not number[0].endswith("]")):
        return None  # `click [3] or [4]` is not clear; `click [3] the link` is
    target = {"click": Click, "hover": Hover, "tab_focus": TabFocus}[verb]
    return target(int(number[1]))


def _parse_type(element: int, rest: str) -> Type | None:
    flag = re.search(r"\]\s*\[\s*([01])\s*\]$", rest)
    text = rest[: flag.start() + 1] if flag else rest
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    elif flag or not text:
        return None
    if len(text) > MAX_TEXT_CHARS:
        raise UnreadableActionError(f"A text has at most {MAX_TEXT_CHARS} characters.")
    return Type(element, text, enter=flag is None or flag[1] == "1")


def _inside(rest: str) -> str:
    """Return what stands in brackets, or the whole where there are none."""
    rest = rest.strip(_DECORATION)
    if rest.startswith("[") and rest.endswith("]"):
        rest = rest[1:-1]
    return rest.strip()


def _keys(combo: str) -> str | None:
    """Return a combination of keys in Playwright's words; None where a key is unknown."""
    names = [name.strip() for name in combo.split("+")] if combo != "+" else []
    keys = [
        _KEYS.get(name.lower()) or (name.lower() if name.lower() in _SINGLE_KEYS else None)
        for name in names
    ]
    if not keys or len(keys) > _MAX_COMBO_KEYS or None in keys:
        return None
    return "+".join(key for key in keys if key)
