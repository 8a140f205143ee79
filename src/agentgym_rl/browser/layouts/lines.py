"""Lines of a written page, and which of them are on the screen."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from agentgym_rl.browser.page_tree import Box, Node

_MIN_SHARE = 0.6
"""Of a box that must be on the screen for it to be seen."""
_MIN_SCREEN_SHARE = 0.15
"""A box that is larger than the screen is seen where it covers this share of it."""


class Place(enum.Enum):
    """Where a box is."""

    ABOVE = enum.auto()
    SEEN = enum.auto()
    BELOW = enum.auto()
    NOWHERE = enum.auto()
    """Without size, or beside the screen."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a page."""

    text: str
    place: Place
    elements: tuple[tuple[int, Node], ...] = ()
    """(number in the text, element) of what can be acted on."""


def place_of(box: Box, width: float, height: float) -> Place:
    """Return where a box is on a screen of this size."""
    share = box.share_within(width, height)
    covers = share * box.width * box.height / (width * height)
    if share >= _MIN_SHARE or covers >= _MIN_SCREEN_SHARE:
        return Place.SEEN
    if box.width <= 0 or box.height <= 0 or box.x >= width or box.x + box.width <= 0:
        return Place.NOWHERE
    return Place.ABOVE if box.y + box.height / 2 < height / 2 else Place.BELOW
