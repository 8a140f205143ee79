"""What is on a page, as a tree of roles and names with places on the screen: `read_page`.

Two requests give it: the accessibility tree of each frame, and one snapshot of the layout, which
has the boxes. Trees of frames are put in where their frames are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser.wire import Speaker
from agentgym_rl.frozen import JsonValue

MAX_NODES = 20_000
"""Of a page; beyond, the rest is left out, and the page is marked as cut."""

Json = Mapping[str, JsonValue]


class Box(NamedTuple):
    """A rectangle on the screen; (0, 0) is the corner of the viewport."""

    x: float
    y: float
    width: float
    height: float

    def share_within(self, width: float, height: float) -> float:
        """Return which share of it lies within a screen of this size."""
        if self.width <= 0 or self.height <= 0:
            return 0.0
        wide = min(self.x + self.width, width) - max(self.x, 0.0)
        high = min(self.y + self.height, height) - max(self.y, 0.0)
        return max(0.0, wide) * max(0.0, high) / (self.width * self.height)


@dataclass(slots=True)
class Node:
    """One node of the tree."""

    number: int
    """Of the accessibility tree; WebArena shows it."""
    backend_id: int
    """Chromium's number of the DOM node; 0 where there is none."""
    role: str
    name: str
    value: str
    properties: dict[str, JsonValue]
    box: Box | None
    """None where it is not laid out, as the options of a closed list."""
    is_clickable: bool
    """Whether a script listens to clicks on it, or it leads somewhere."""
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Sequence[Node]:
        """Return this node and all below, in the order of the page."""
        found, waiting = list[Node](), [self]
        while waiting:
            node = waiting.pop()
            found.append(node)
            if node.children:
                waiting += node.children[::-1]
        return found


@dataclass(frozen=True, slots=True)
class PageTree:
    """A page as it was at one moment."""

    root: Node
    is_cut: bool
    """Whether the page had more than `MAX_NODES`."""
    height: float
    """Of the whole document, in pixels."""
    scrolled: float
    """How far it was scrolled down."""


EMPTY_PAGE = PageTree(Node(0, 0, "RootWebArea", "", "", {}, None, False), False, 0.0, 0.0)


async def read_page(speaker: Speaker) -> PageTree:
    """Read the page of a protocol session, with all its frames."""
    frames, snapshot = await asyncio.gather(
        _frame_ids(speaker), speaker.send("DOMSnapshot.captureSnapshot", {"computedStyles": []})
    )
    boxes = _Boxes(snapshot)
    owners: dict[int, Node] = {}
    main: Node | None = None
    num_left = MAX_NODES
    for frame_id, parent_id in frames:
        try:
            answer = await speaker.send("Accessibility.getFullAXTree", {"frameId": frame_id})
            tree, num_used = _tree(_objects(answer["nodes"]), boxes, num_left)
            owner = await _owner(speaker, frame_id) if parent_id else 0
        except PlaywrightError:
            if not parent_id:
                raise
            continue  # the frame went away meanwhile
        num_left -= num_used
        if main is None:
            main = tree
        elif owner in owners:
            owners[owner].children = [tree]
        owners |= {node.backend_id: node for node in tree.walk() if node.role == "Iframe"}
        if num_left <= 0:
            break
    assert main is not None, "a page has a main frame"
    return PageTree(main, num_left <= 0, boxes.height, boxes.scrolled)


async def _frame_ids(speaker: Speaker) -> list[tuple[str, str]]:
    """Return (frame, parent or "") of every frame, parents first."""
    tree = cast(Json, (await speaker.send("Page.getFrameTree"))["frameTree"])
    found, waiting = list[tuple[str, str]](), [tree]
    while waiting:
        here = waiting.pop(0)
        frame = cast(Json, here["frame"])
        found.append((str(frame["id"]), str(frame.get("parentId", ""))))
        waiting += _objects(here.get("childFrames", ()))
    return found


async def _owner(speaker: Speaker, frame_id: str) -> int:
    answer = await speaker.send("DOM.getFrameOwner", {"frameId": frame_id})
    return cast(int, answer["backendNodeId"])


def _objects(value: JsonValue) -> Sequence[Json]:
    return cast(Sequence[Json], value)


class _Boxes:
    """Where the nodes of all documents of a page are on the screen."""

    def __init__(self, snapshot: Mapping[str, object]) -> None:
        documents = cast(Sequence[dict[str, dict[str, list[list[float]]]]], snapshot["documents"])
        self.by_id: dict[int, Box] = {}
        self.clickable: set[int] = set()
        self.height = float(cast(float, documents[0].get("contentHeight", 0)))
        self.scrolled = float(cast(float, documents[0].get("scrollOffsetY", 0)))
        corners = {0: (0.0, 0.0)}
        for number, document in enumerate(documents):
            if number not in corners:
                continue  # the frame itself is not laid out
            left, top = corners[number]
            left -= float(cast(float, document.get("scrollOffsetX", 0)))
            top -= float(cast(float, document.get("scrollOffsetY", 0)))
            ids = cast(Sequence[int], document["nodes"]["backendNodeId"])
            layout = document["layout"]
            places = dict[int, Box]()
            node_indices = cast(Sequence[int], layout["nodeIndex"])
            for index, (x, y, width, height) in zip(node_indices, layout["bounds"], strict=True):
                places.setdefault(index, Box(x + left, y + top, width, height))
            self.by_id |= {ids[index]: box for index, box in places.items()}
            clicks = cast(dict[str, list[int]], document["nodes"].get("isClickable", {"index": []}))
            self.clickable |= {ids[index] for index in clicks["index"]}
            contents = cast(dict[str, list[int]], document["nodes"].get("contentDocumentIndex", {}))
            for index, child in zip(contents["index"], contents["value"], strict=True):
                if index in places:
                    corners[child] = (places[index].x, places[index].y)


def _tree(nodes: Sequence[Json], boxes: _Boxes, limit: int) -> tuple[Node, int]:
    """Return the tree of one frame without what assistive programs ignore, and its size.

    Children of ignored nodes are in their place.
    """
    raws = cast(list[dict[str, Any]], nodes)  # Any: written by Chromium, and visited very often
    by_id = {raw["nodeId"]: raw for raw in raws}
    root = _node(raws[0], boxes)
    num_nodes = 1
    waiting = [(root.children, child) for child in reversed(raws[0].get("childIds", ()))]
    while waiting and num_nodes < limit:  # in the order of the page, so that its end is cut off
        siblings, number = waiting.pop()
        raw = by_id.get(number)
        if raw is None:
            continue
        below = siblings
        if not raw["ignored"]:
            node = _node(raw, boxes)
            if node.role == "InlineTextBox":
                continue
            num_nodes += 1
            siblings.append(node)
            below = node.children
        children = raw.get("childIds")
        if children:
            waiting += [(below, child) for child in reversed(children)]
    return root, num_nodes


def _node(raw: dict[str, Any], boxes: _Boxes) -> Node:  # Any: as above
    backend_id = raw.get("backendDOMNodeId", 0)
    number = raw["nodeId"]
    value = raw["value"].get("value") if "value" in raw else None
    return Node(
        int(number) if number.lstrip("-").isdecimal() else 0,
        backend_id,
        str(raw["role"].get("value") or "") if "role" in raw else "",
        str(raw["name"].get("value") or "") if "name" in raw else "",
        str(value) if value is not None else "",
        {item["name"]: item["value"].get("value") for item in raw.get("properties", ())},
        boxes.by_id.get(backend_id),
        backend_id in boxes.clickable,
    )
