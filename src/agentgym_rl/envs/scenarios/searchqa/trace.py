"""What has happened in an episode: every search, reading, calculation and answer, with its gold.

For the expert, for the dense reward, and as plain data for viewers.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentgym_rl.envs.base import JsonValue
from agentgym_rl.envs.scenarios.searchqa.actions import Action
from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from agentgym_rl.envs.scenarios.searchqa.reading import Shown
from agentgym_rl.envs.scenarios.searchqa.scoring import normalize


@dataclass(frozen=True, slots=True)
class Event:
    """One round. Example: Event("search", "director of Stalker", (Shown(...),))"""

    kind: str
    """The tag of the action; "mistake" for text that was none."""
    text: str
    """The query, the id, the code or the answer."""
    shown: tuple[Shown, ...] = ()
    is_right: bool = False
    """For an answer: whether it was."""


class Trace:
    """The rounds of one episode. Nobody but its environment adds to it."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.events: list[Event] = []

    @property
    def gold_seen(self) -> frozenset[str]:
        """Ids of the gold passages that have been shown."""
        seen = {one.passage.id for event in self.events for one in event.shown}
        return frozenset(self.question.gold).intersection(seen)

    @property
    def last_found(self) -> tuple[Shown, ...]:
        """What the last search showed."""
        searches = (event for event in reversed(self.events) if event.kind == "search")
        return next((event.shown for event in searches), ())

    @property
    def last_search_failed(self) -> bool:
        """Whether the latest round was a search that showed nothing of the question's path."""
        latest = self.events[-1] if self.events else None
        if latest is None or latest.kind != "search":
            return False
        wanted = {hop.passage_id for hop in self.question.path}
        return wanted.isdisjoint(one.passage.id for one in latest.shown)

    @property
    def has_mistakes(self) -> bool:
        return any(event.kind == "mistake" for event in self.events)

    def has_tried(self, action: Action) -> bool:
        return any((event.kind, event.text) == (action.tag, action.text) for event in self.events)

    def find(self, passage_id: str) -> Shown | None:
        """Return the passage as it was shown at greatest length; None where it was not."""
        shown = [one for e in self.events for one in e.shown if one.passage.id == passage_id]
        return max(shown, key=lambda one: len(one.text), default=None)

    def has_read(self, hop: Hop) -> bool:
        """Whether what the hop finds has been shown, or else the passage as far as it can be."""
        return any(tells(shown, hop) for event in self.events for shown in event.shown) or any(
            event.kind == "open" and any(one.passage.id == hop.passage_id for one in event.shown)
            for event in self.events
        )

    def as_json(self) -> list[JsonValue]:
        """Return the rounds as viewers read them."""
        rounds: list[JsonValue] = []
        known: set[Hop] = set()
        for number, event in enumerate(self.events):
            told = [h for h in self.question.path if any(tells(one, h) for one in event.shown)]
            new = [hop for hop in told if hop not in known]
            known.update(new)
            fields: dict[str, JsonValue] = {
                "round": number,
                "kind": event.kind,
                "text": event.text,
                "passages": [self._passage(one) for one in event.shown],
                "findings": [hop.finding for hop in new],
            }
            if event.kind == "answer":
                fields["is_right"] = event.is_right
            rounds.append(fields)
        return rounds

    def _passage(self, shown: Shown) -> JsonValue:
        return {
            "id": shown.passage.id,
            "title": shown.passage.title,
            "is_gold": shown.passage.id in self.question.gold,
            "is_cut": shown.is_cut,
        }


def tells(shown: Shown, hop: Hop) -> bool:
    """Whether what was shown of a hop's passage holds its finding, or is the whole passage."""
    if shown.passage.id != hop.passage_id:
        return False
    is_there = normalize(hop.finding) in normalize(f"{shown.passage.title} {shown.text}")
    return is_there or not shown.is_cut
