"""What is on a page, as a tree of roles and names with places on the screen: `read_page`.

Two requests give it: the accessibility tree of each frame, and one snapshot of the layout, which
has the boxes. Trees of frames are put in where their frames are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

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

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below, in the order of the page."""
        waiting: list[Node] = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


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
    frames = await _frame_ids(speaker)
    boxes = _Boxes(await speaker.send("DOMSnapshot.captureSnapshot", {"computedStyles": []}))
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
    by_id = {node["nodeId"]: node for node in nodes}
    root = _node(nodes[0], boxes)
    num_nodes = 1
    waiting = [(root.children, child) for child in _child_ids(nodes[0])]
    while waiting and num_nodes < limit:  # in the order of the page, so that its end is cut off
        siblings, number = waiting.pop()
        raw = by_id.get(number)
        if raw is None:
            continue
        if raw.get("ignored"):
            waiting += [(siblings, child) for child in _child_ids(raw)]
            continue
        node = _node(raw, boxes)
        if node.role == "InlineTextBox":
            continue
        num_nodes += 1
        siblings.append(node)
        waiting += [(node.children, child) for child in _child_ids(raw)]
    return root, num_nodes


def _child_ids(raw: Json) -> Iterator[JsonValue]:
    """Yield the numbers of the nodes below, the last one first."""
    return reversed(cast(Sequence[str], raw.get("childIds", ())))


def _node(raw: Json, boxes: _Boxes) -> Node:
    backend_id = cast(int, raw.get("backendDOMNodeId", 0))
    number = str(raw["nodeId"])
    value = _value(raw.get("value"))
    return Node(
        number=int(number) if number.lstrip("-").isdecimal() else 0,
        backend_id=backend_id,
        role=str(_value(raw.get("role")) or ""),
        name=str(_value(raw.get("name")) or ""),
        value=str(value) if value is not None else "",
        properties={
            cast(str, item["name"]): cast(Json, item["value"]).get("value")
            for item in _objects(raw.get("properties", ()))
        },
        box=boxes.by_id.get(backend_id),
        is_clickable=backend_id in boxes.clickable,
    )


def _value(field: JsonValue) -> JsonValue:
    return cast(Json, field).get("value") if field is not None else None
