"""A thought and an action between tags, as search agents write them (arXiv:2503.09516).

    <think>Where is it?</think>
    <search>height of the Eiffel Tower</search>

The environment names the tags (`EnvSpec.action_tags`); without any, the action is in `<action>`. A
tag inside an action is written with `&lt;` for `<`, and an escape inside it with one more `amp;`,
so any text can be written and read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from agentgym_rl.agents.formats.base import DEFAULT_THOUGHT, ActionFormat, ParsedReply
from agentgym_rl.agents.formats.decoration import quoted_literal
from agentgym_rl.agents.formats.elements import (
    GENERIC,
    THOUGHT,
    forms_of,
    make_element,
    split_action,
)
from agentgym_rl.envs.base import EnvSpec

_FLAGS = re.IGNORECASE | re.ASCII


@dataclass(frozen=True, slots=True)
class _Element:
    """A pair of tags in a reply: where it starts, and what is in it (for an action)."""

    tag: str
    start: int
    inner: str


class _MalformedTagsError(Exception):
    """The tags of a reply do not pair; the text is the complaint."""


class TagsFormat(ActionFormat):
    """A thought between `<think>` tags, then one action between its tags."""

    name = "tags"

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__(spec)
        names = "|".join(map(re.escape, dict.fromkeys((THOUGHT, GENERIC, *spec.action_tags))))
        tag = rf"/?(?:{names})[ \t]*>"
        self._mark = re.compile(rf"<(/?)({names})[ \t]*>", _FLAGS)
        self._to_escape = re.compile(rf"(?:<|&(?:amp;)*lt;)(?={tag})", _FLAGS)
        self._escaped = re.compile(rf"&(?:amp;)*lt;(?={tag})", _FLAGS)
        self._forms = forms_of(spec.action_tags or (GENERIC,))

    def instructions(self) -> str:
        return (
            "Think first, between `<think>` and `</think>`, then give exactly one action: "
            f"{self._forms}. For example:\n{self.write(self._spec.example_action, '...')}"
        )

    def read(self, reply: str) -> ParsedReply:
        try:
            actions = self._actions(reply)
        except _MalformedTagsError as error:
            return ParsedReply(None, str(error))
        if not actions:
            return ParsedReply(None, f"No action found. End your reply with {self._forms}.")
        if len(actions) > 1:
            return ParsedReply(
                None, f"{len(actions)} actions found. Give exactly one in a reply: {self._forms}."
            )
        found = actions[0]
        inner = self._escaped.sub(_unescape, found.inner)
        if not inner.strip():
            return ParsedReply(
                None, f"The action is empty. Write it between `<{found.tag}>` and `</{found.tag}>`."
            )
        action = self._plain(inner) if found.tag == GENERIC else make_element(found.tag, inner)
        return ParsedReply(action, action_start=found.start)

    def write(self, action: str, thought: str = "") -> str:
        tag, inner = split_action(action, self._spec.action_tags)
        if tag == GENERIC and self._plain(inner) != inner:
            inner = quoted_literal(inner)
        parts = ((THOUGHT, thought or DEFAULT_THOUGHT), (tag, inner))
        return "\n".join(
            make_element(name, self._to_escape.sub(_escape, text)) for name, text in parts
        )

    def _actions(self, reply: str) -> list[_Element]:
        """Return the elements that are not thoughts."""
        actions: list[_Element] = []
        has_thought = False
        for element in self._elements(reply):
            if element.tag != THOUGHT:
                actions.append(element)
            elif not has_thought:
                has_thought = True
                # None is left where the chat template, not the reply, opened the thought.
                actions = [action for action in actions if action.start < element.start]
        return actions

    def _elements(self, reply: str) -> Iterator[_Element]:
        """Yield the elements in order. A `</think>` that nothing opened closes one from 0 on."""
        opened: re.Match[str] | None = None
        for mark in self._mark.finditer(reply):
            tag, is_close = mark[2].lower(), bool(mark[1])
            if opened is None:
                if is_close and tag == THOUGHT:
                    yield _Element(THOUGHT, 0, "")
                elif not is_close:
                    opened = mark
                continue
            outer = opened[2].lower()
            if is_close and tag == outer:
                yield _Element(tag, opened.start(), reply[opened.end() : mark.start()])
                opened = None
            elif outer != THOUGHT:
                raise _MalformedTagsError(
                    f"`<{mark[1]}{tag}>` is inside `<{outer}>`. Close a tag before the next, and "
                    f"give exactly one action: {self._forms}."
                )
        if opened is not None:
            tag = opened[2].lower()
            raise _MalformedTagsError(
                f"The thought has no end. Close it with `</think>`, then act: {self._forms}."
                if tag == THOUGHT
                else f"The action has no end. Close it with `</{tag}>`."
            )


def _escape(mark: re.Match[str]) -> str:
    return "&lt;" if mark[0] == "<" else "&amp;" + mark[0][1:]


def _unescape(mark: re.Match[str]) -> str:
    return "<" if mark[0] == "&lt;" else "&" + mark[0][len("&amp;") :]
