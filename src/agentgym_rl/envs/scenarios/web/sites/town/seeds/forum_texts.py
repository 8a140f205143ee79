"""What people write in the forum: sentences with slots, filled from a subject's words."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentgym_rl.envs.scenarios.web.sites.town.seeds.people import words

_SLOT = re.compile(r"\{(\w+)\}")
KINDS = ("question", "story", "guide", "opinion", "link")
_WEIGHTS = (34, 16, 10, 10, 30)
_COMMENT_KINDS = ("advice", "agree", "doubt", "ask")


@dataclass(frozen=True)
class Subject:
    """What a forum is about."""

    name: str
    title: str
    description: str
    is_about_goods: bool
    lists: Mapping[str, Sequence[str]]


def subjects() -> list[Subject]:
    """Return the subjects of all forums, in the order of the file."""
    found = []
    for name, entry in words("subjects").items():
        assert isinstance(entry, dict)
        lists = {key: list(value) for key, value in entry.items() if isinstance(value, list)}
        title, description = str(entry["title"]), str(entry["description"])
        found.append(Subject(name, title, description, bool(entry["is_about_goods"]), lists))
    return found


class Talk:
    """Sentences about one thing of a subject, so that a thread stays with it."""

    def __init__(self, rng: random.Random, subject: Subject) -> None:
        self._rng = rng
        lists = subject.lists
        self._has_goods = subject.is_about_goods
        thing, other = rng.sample(lists["things"], 2)
        self._fixed = {"thing": thing, "other": other, "maker": rng.choice(lists["makers"])}
        self._lists = lists
        self._cities = _strings(words("people")["cities"])
        self._fixed["problem"] = lists["problems"][lists["things"].index(thing)]
        self._fixed["activity"] = rng.choice(lists["activities"])

    def title(self, kind: str) -> str:
        return self._fill(self._rng.choice(self._phrases("titles", kind)))

    def body(self, kind: str) -> str:
        return self._fill(self._rng.choice(self._phrases("bodies", kind)))

    def comment(self, *, is_reply: bool) -> str:
        is_short = is_reply and self._rng.random() < 0.6
        kind = "reply" if is_short else self._rng.choice(_COMMENT_KINDS)
        text = self._fill(self._rng.choice(self._phrases("comments", kind)))
        if self._rng.random() < 0.25:
            text += " " + self._fill(self._rng.choice(self._phrases("comments", "reply")))
        return text

    def _phrases(self, group: str, kind: str) -> Sequence[str]:
        entry = words("phrases")[group]
        assert isinstance(entry, dict)
        phrases = _strings(entry[kind])
        return [text.removeprefix("$") for text in phrases if self._has_goods or text[0] != "$"]

    def _fill(self, phrase: str) -> str:
        return _SLOT.sub(lambda match: self._word(match[1]), phrase)

    def _word(self, slot: str) -> str:
        rng = self._rng
        if slot.endswith("_cap"):
            text = self._word(slot.removesuffix("_cap"))
            return text[:1].upper() + text[1:]
        if slot in self._fixed:
            return self._fixed[slot]
        if slot == "tip":
            return rng.choice(self._lists["tips"])
        if slot == "things":
            return plural(self._fixed["thing"])
        if slot in ("a_thing", "an_other"):
            return with_article(self._fixed["thing" if slot == "a_thing" else "other"])
        if slot == "city":
            return rng.choice(self._cities)
        return str({"n": rng.randrange(2, 12), "weeks": rng.randrange(2, 20)}[slot])


def choose_kind(rng: random.Random) -> str:
    """Return the kind of a submission."""
    return rng.choices(KINDS, _WEIGHTS)[0]


def plural(noun: str) -> str:
    """Return the plural of a regular noun."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def with_article(noun: str) -> str:
    """Return a noun with "a" or "an"."""
    starts_open = noun[0].lower() in "aeio" or noun.startswith(("NAS", "UPS"))
    return f"{'an' if starts_open and noun[:3] != 'UPS' else 'a'} {noun}"


def _strings(value: object) -> Sequence[str]:
    assert isinstance(value, list)
    return value
