"""The layout that saves tokens: `compact_lines`.

    # Books
    [1] link Home
    [2] textbox Search: tolkien
    [3] combobox Sort by: Newest {Newest, Price, Rating}
    Order | Date | Total
    [4] link 100012 | 12 May | £33.10

Numbers are only on what can be acted on and count from 1; a row of a table is one line. Names that
repeat what is below them, icons, list markers and properties that say nothing are left out.
"""

from __future__ import annotations

import itertools
import re

from agentgym_rl.browser.layouts.lines import Line, Place, place_of
from agentgym_rl.browser.page_tree import Node

_MAX_OPTIONS = 12
_MAX_NAME_CHARS, _MAX_TEXT_CHARS = 300, 2000
"""Of a name or a value, and of a paragraph; "..." says that something is left out."""
_MAX_CLICKABLE_CHARS = 120
"""A clickable box with more text than this is not one thing to click."""
_FIELDS = frozenset(
    [
        "textbox",
        "searchbox",
        "combobox",
        "listbox",
        "spinbutton",
        "slider",
        "checkbox",
        "radio",
        "switch",
        "Date",
        "DateTime",
        "InputTime",
        "ColorWell",
    ]
)
_ACTED_ON = _FIELDS | frozenset(
    [
        "link",
        "button",
        "menuitem",
        "menuitemcheckbox",
        "menuitemradio",
        "tab",
        "option",
        "treeitem",
        "DisclosureTriangle",
        "PopUpButton",
        "ToggleButton",
    ]
)
_WHOLE = frozenset(
    [
        "link",
        "button",
        "heading",
        "tab",
        "menuitem",
        "option",
        "treeitem",
        "radio",
        "checkbox",
        "switch",
    ]
)
"""Their names say what is in them."""
_CLICKED = frozenset(
    [
        "generic",
        "StaticText",
        "image",
        "img",
        "listitem",
        "cell",
        "gridcell",
        "row",
        "heading",
        "paragraph",
        "graphics-symbol",
        "strong",
        "emphasis",
        "Section",
    ]
)
"""Can be acted on where a script listens to clicks."""
_RANGES = frozenset(["spinbutton", "slider"])
_MAX_THING_SHARE = 0.3
"""Of the screen: what covers more, and has something inside, is a region, not a thing to click."""
_ROLES = {"searchbox": "textbox", "Date": "date", "DateTime": "date", "InputTime": "time"}
"""Role -> what it is called, where that is not the same."""
_SKIPPED = frozenset(["ListMarker", "none", "LineBreak", "InlineTextBox"])
_INLINE = frozenset(
    [
        "StaticText",
        "strong",
        "emphasis",
        "code",
        "mark",
        "time",
        "abbr",
        "generic",
        "superscript",
        "subscript",
        "insertion",
        "deletion",
        "term",
    ]
)
_BLOCK_SHARE = 0.95
"""Of its parent's width: what is this wide stands on a line of its own."""
_FLAGS = ("checked", "pressed", "selected", "expanded", "disabled", "required")
_MAX_GAP = 1.5
"""Pixels between two texts that make one word."""
_GLYPHS = re.compile("[\ue000-\uf8ff\U000f0000-\U0010fffd\u200b\ufeff\u00ad]")


def compact_lines(root: Node, width: float, height: float) -> list[Line]:
    """Return the lines of a whole page, each with its place on a screen of this size."""
    return _Writer(width, height).page(root)


class _Writer:
    """Collects lines in lists that are passed down: a page is deep and has many."""

    def __init__(self, width: float, height: float) -> None:
        self._width = width
        self._height = height
        self._numbers = itertools.count(1)
        self._field_names = frozenset[str]()

    def page(self, root: Node) -> list[Line]:
        self._field_names = frozenset(
            _clean(node.name) for node in root.walk() if node.role in _FIELDS
        )
        found, kept, last = list[Line](), list[Line](), ""
        for child in root.children:
            self._add(child, Place.SEEN, found)
        for line in found:
            if line.place is not Place.NOWHERE and (line.elements or line.text != last):
                last = line.text
                kept.append(line)
        return kept

    def _add(self, node: Node, place: Place, found: list[Line]) -> None:
        """Add the lines of a node and all below it."""
        if node.role in _SKIPPED:
            return
        if node.box is not None:
            place = place_of(node.box, self._width, self._height)
        if node.role == "row":
            self._add_row(node, place, found)
            return
        line = self._line(node, place)
        if line is not None:
            found.append(line)
            if node.role in _WHOLE or node.role in _FIELDS or line.elements:
                self._add_things_within(node, place, found)
                return
        if node.children:
            self._add_below(node, place, found)

    def _add_below(self, node: Node, place: Place, found: list[Line]) -> None:
        """Add the lines of a node's children; text that runs on is one line."""
        running = list[Node]()
        for child in node.children:
            if _runs_on(child, node):
                running += [each for each in child.walk() if each.role == "StaticText"]
                continue
            if running:
                self._add_running(running, node, place, found)
                running = list[Node]()
            self._add(child, place, found)
        if running:
            self._add_running(running, node, place, found)

    def _add_running(
        self, texts: list[Node], parent: Node, place: Place, found: list[Line]
    ) -> None:
        """Add the line of text that runs on, unless it only names a field."""
        line = _joined(texts)
        if not line or (parent.role == "LabelText" and line in self._field_names):
            return
        first = texts[0].box
        found.append(Line(line, place_of(first, self._width, self._height) if first else place))

    def _add_things_within(self, node: Node, place: Place, found: list[Line]) -> None:
        """Add lines of what can be acted on inside of something that has a line already."""
        if node.role in _FIELDS:
            return
        for child in node.children:
            if _is_thing(child) and _clean(child.name) != _clean(node.name):
                self._add(child, place, found)
            elif child.children:
                self._add_things_within(child, place, found)

    def _add_row(self, row: Node, place: Place, found: list[Line]) -> None:
        cells, elements, places = list[str](), list[tuple[int, Node]](), {place}
        for cell in row.children:
            parts = list[Line]()
            self._add(cell, place, parts)
            elements += [pair for part in parts for pair in part.elements]
            places |= {part.place for part in parts}
            cells.append(" ".join(part.text for part in parts if part.place is not Place.NOWHERE))
        text = " | ".join(cells).strip(" |")
        if text:
            seen = Place.SEEN if Place.SEEN in places else place
            found.append(Line(text, seen, tuple(elements)))

    def _is_one_thing(self, node: Node) -> bool:
        """Return whether a click on it means it, and not whatever is inside."""
        if node.role not in _CLICKED or node.box is None:
            return False
        covered = (
            node.box.share_within(self._width, self._height) * node.box.width * node.box.height
        )
        return covered < _MAX_THING_SHARE * self._width * self._height or not node.children

    def _line(self, node: Node, place: Place) -> Line | None:
        """Return the line of one node; None where it says nothing by itself."""
        name = _text(node.name) if node.role == "StaticText" else _clean(node.name)
        is_acted_on = node.role in _ACTED_ON or _is_editable(node)
        if not is_acted_on and node.is_clickable and self._is_one_thing(node):
            name = name if node.role == "StaticText" else name or _joined(_own_texts(node))
            is_acted_on = len(name) <= _MAX_CLICKABLE_CHARS and (
                bool(name) or not _has_things(node)
            )
        if is_acted_on and node.backend_id:
            number = next(self._numbers)
            text = f"[{number}] {_described(node, name)}"
            return Line(text, place, ((number, node),))
        if node.role == "StaticText":
            return Line(name, place) if name else None
        if node.role == "heading":
            return Line(f"# {name}", place) if name and not _has_things(node) else None
        if node.role in ("image", "img", "figure") and name:
            return Line(f"image {name}", place)
        return None


def _described(node: Node, name: str) -> str:
    """Return role, name, value, options and what is special about something to act on."""
    role = _ROLES.get(node.role, node.role) if node.role in _ACTED_ON else ""
    if not role and not name:
        role = {"graphics-symbol": "shape", "image": "image", "img": "image"}.get(node.role, "box")
    words = [word for word in (role, name) if word]
    text = " ".join(words)
    value = _clean(node.value)
    if node.role in _RANGES:
        value = _rounded(value)
    if value and node.role in _FIELDS and value != name:
        text += f": {value}"
    if node.role in ("combobox", "listbox"):
        text += _options(node)
    return text + _flags(node)


def _rounded(value: str) -> str:
    """Return the number of a field as it was typed; Chromium gives it with single precision."""
    try:
        return f"{float(value):.7g}"
    except ValueError:
        return value


def _options(node: Node) -> str:
    options = [_clean(each.name) for each in node.walk() if each.role == "option"]
    if not options:
        return ""
    shown = ", ".join(options[:_MAX_OPTIONS])
    more = len(options) - _MAX_OPTIONS
    return f" {{{shown}, {more} more}}" if more > 0 else f" {{{shown}}}"


def _flags(node: Node) -> str:
    flags = [name for name in _FLAGS if node.properties.get(name) in (True, "true", "mixed")]
    if node.properties.get("expanded") is False and node.role != "combobox":
        flags.append("collapsed")
    if node.properties.get("invalid") not in (None, False, "false"):
        flags.append("invalid")
    if node.properties.get("focused") and node.role in _FIELDS:
        flags.append("focused")
    return f" ({', '.join(flags)})" if flags else ""


def _runs_on(child: Node, parent: Node) -> bool:
    """Return whether a node is text within a line of its parent's."""
    if child.role not in _INLINE or (_clean(child.name) and child.role == "generic"):
        return False
    if any(each.role not in _INLINE or each.is_clickable for each in child.walk()):
        return False
    if child.role == "StaticText" or child.box is None or parent.box is None:
        return True
    return child.box.width < _BLOCK_SHARE * parent.box.width


def _is_editable(node: Node) -> bool:
    return node.properties.get("editable") in ("plaintext", "richtext") and bool(
        node.properties.get("focusable")
    )


def _has_things(node: Node) -> bool:
    """Return whether anything inside of it can be acted on."""
    return any(each is not node and _is_thing(each) for each in node.walk())


def _is_thing(node: Node) -> bool:
    return node.role in _ACTED_ON or (node.is_clickable and node.role in _CLICKED)


def _own_texts(node: Node) -> list[Node]:
    """Return the texts of a node that belong to nothing inside of it that can be acted on."""
    found, waiting = list[Node](), list(reversed(node.children))
    while waiting:
        child = waiting.pop()
        if child.role == "StaticText":
            found.append(child)
        elif not _is_thing(child):
            waiting.extend(reversed(child.children))
    return found


def _text_of(node: Node) -> str:
    return _joined([each for each in node.walk() if each.role == "StaticText"])


def _joined(texts: list[Node]) -> str:
    """Return texts in one, without a space between those that touch."""
    whole, last = "", None
    for node in texts:
        box = node.box
        if last is not None and box is not None:
            is_same_line = abs(box.y - last.y) < last.height / 2
            touches = is_same_line and abs(box.x - last.x - last.width) < _MAX_GAP
            whole += "" if touches else " "
        else:
            whole += " "
        whole += node.name
        last = box
    return _text(whole)


def _text(text: str) -> str:
    return _clean(text, _MAX_TEXT_CHARS)


def _clean(text: str, most: int = _MAX_NAME_CHARS) -> str:
    if not text:
        return text
    if not text.isascii():
        text = _GLYPHS.sub("", text)
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}..."
