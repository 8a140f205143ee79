"""The layout of WebArena's own environment, for comparison: `webarena_lines`.

One line per node, `[id] role 'name' property: value`, indented by tabs. Numbers are those of the
accessibility tree.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentgym_rl.browser.layouts.lines import Line, Place, place_of
from agentgym_rl.browser.page_tree import Node

_LEFT_OUT = frozenset(
    ["focusable", "editable", "readonly", "level", "settable", "multiline", "invalid", "url"]
)
_EMPTY = frozenset(
    [
        "generic",
        "img",
        "image",
        "list",
        "strong",
        "paragraph",
        "banner",
        "navigation",
        "Section",
        "LabelText",
        "Legend",
        "listitem",
    ]
)
_NUM_REMEMBERED = 3
"""A text that occurs in this many lines before it is not repeated."""


def webarena_lines(root: Node, width: float, height: float) -> list[Line]:
    """Return the lines of a whole page, each with its place on a screen of this size."""
    lines = list[Line]()
    for line in _lines(root, 0, Place.SEEN, width, height):
        before = [one.text for one in lines[-_NUM_REMEMBERED:]]
        node = line.elements[0][1]
        if node.role == "StaticText" and any(node.name in text for text in before):
            continue
        lines.append(line)
    return lines


def _lines(node: Node, depth: int, place: Place, width: float, height: float) -> Iterator[Line]:
    if node.box is not None:
        place = place_of(node.box, width, height)
    properties = [
        f"{name}: {value}" for name, value in node.properties.items() if name not in _LEFT_OUT
    ]
    is_empty = not node.name.strip() and not properties and node.role in _EMPTY
    is_shown = not is_empty and place is not Place.NOWHERE and node.role != "none"
    if is_shown:
        head = f"[{node.number}] {node.role} {node.name!r}"
        text = "\t" * depth + " ".join([head, *properties])
        yield Line(text, place, ((node.number, node),))
    for child in node.children:
        yield from _lines(child, depth + is_shown, place, width, height)
