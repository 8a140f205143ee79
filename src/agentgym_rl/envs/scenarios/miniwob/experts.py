"""Scripted experts of MiniWoB's pages: `advise`."""

from __future__ import annotations

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
    """By number."""
    done: Sequence[str]
    """Actions so far."""


def advise(page: str, scene: Scene) -> str | None:
    """Return the next action; None where the page has no expert."""
    return None
