"""What an expert of MiniWoB's pages knows (`Scene`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentgym_rl.browser.page_tree import Node


@dataclass(frozen=True, slots=True)
class Scene:
    """What an expert knows: what the agent sees, and what was done."""

    goal: str
    text: str
    """The last observation."""
    elements: Mapping[int, Node]
    """What can be acted on, by number."""
    done: Sequence[str]
    """Actions so far."""

    def all(self, *roles: str) -> list[tuple[int, Node]]:
        """Return the elements of some roles, in the order of the page."""
        return [(number, node) for number, node in self.elements.items() if node.role in roles]

    def named(self, name: str, *roles: str) -> int | None:
        """Return the number of the first element with a name."""
        wanted = name.strip().lower()
        for number, node in self.elements.items():
            label = self.label(number).lower()
            if wanted in (node.name.strip().lower(), label) and (not roles or node.role in roles):
                return number
        return None

    def label(self, number: int) -> str:
        """Return what the page says beside a number."""
        found = re.search(rf"^.*?\[{number}\] (.*)$", self.text, re.MULTILINE)
        return found[1].partition(" (")[0].strip() if found else ""

    @property
    def quoted(self) -> list[str]:
        """Texts in quotes of the goal."""
        return re.findall(r"\"([^\"]*)\"", self.goal)
