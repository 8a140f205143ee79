"""Files of conversations: reading, writing, and the messages for mistakes.

One line of a file: {"task": "babyai/400", "messages": [{"role": "user", "content": "..."},
{"role": "assistant", "content": "...", "loss": true}, ...]}. `task` and `loss` are optional; an
assistant message is learned from unless `loss` is false. A system message may come first, and what
answers a tool call may have the role "tool" instead of "user".

AgentGym's files are read as well: a JSON list (or lines) of {"item_id": "babyai_400",
"conversations": [{"from": "human", "loss": null, "value": "..."}, {"from": "gpt", ...}]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agentgym_rl.errors import ConfigError
from agentgym_rl.runs.json_rows import read_rows
from agentgym_rl.training.data.conversations import Conversation
from agentgym_rl.types import Message


@dataclass(frozen=True, slots=True)
class _Keys:
    """What a kind of file calls things."""

    task: str
    messages: str
    role: str
    content: str


_OURS = _Keys("task", "messages", "role", "content")
_AGENTGYM = _Keys("item_id", "conversations", "from", "value")
_ROLES = {"human": "user", "gpt": "assistant"}
"""AgentGym's names of roles."""


def to_json_line(conversation: Conversation) -> str:
    """Return the line of a conversations file.

    An empty reply is written as not to be learned from, which reading requires.
    """
    pairs = zip(conversation.messages, conversation.is_learned, strict=True)
    messages = [
        {"role": m.role, "content": m.content}
        | ({"loss": learned and not _is_blank(m)} if m.role == "assistant" else {})
        for m, learned in pairs
    ]
    return json.dumps({"task": conversation.task, "messages": messages}, ensure_ascii=False)


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file; a bad one is an error that names file and line."""
    for origin, row in read_rows(path, what="demonstrations"):
        try:
            conversation = replace(parse_conversation(row), origin=origin)
            _refuse_empty_replies(conversation)
            yield conversation
        except ValueError as error:
            raise ConfigError(f"{origin}: {error}") from error


def parse_conversation(row: object) -> Conversation:
    """Return the conversation of one row of a file, ours or AgentGym's; ValueError if it is bad."""
    if not isinstance(row, dict):
        raise ValueError(f"a conversation is an object, got {_kind(row)}")
    keys = _AGENTGYM if _AGENTGYM.messages in row and _OURS.messages not in row else _OURS
    task = row.get(keys.task)
    is_number = isinstance(task, int) and not isinstance(task, bool)
    if not isinstance(task, str | None) and not (is_number and keys is _AGENTGYM):
        raise ValueError(f"`{keys.task}` is text, got {_kind(task)}")
    items = row.get(keys.messages)
    if not isinstance(items, list) or not items:
        raise ValueError(
            f"`{keys.messages}` must be a list with at least one user and one assistant message"
        )
    said = [_message(index, item, keys) for index, item in enumerate(items)]
    if keys is _AGENTGYM and len(said) > 1 and said[-1][0].role == "user":
        said.pop()  # what the environment answered to the last reply
    return _conversation("" if task is None else str(task), said)


def _message(index: int, item: object, keys: _Keys) -> tuple[Message, bool]:
    """Return a message and whether it is learned from."""
    if not isinstance(item, dict):
        raise ValueError(f"message {index} is an object, got {_kind(item)}")
    for key in (keys.role, keys.content):
        if not isinstance(item.get(key), str):
            raise ValueError(
                f"message {index}: `{key}` is text, "
                + (f"got {_kind(item[key])}" if key in item else "but it is missing")
            )
    content, loss = item[keys.content], item.get("loss")
    role = _ROLES.get(item[keys.role], item[keys.role])
    if not (loss is None or isinstance(loss, bool)) or (loss and role != "assistant"):
        raise ValueError(
            f"message {index}: `loss` is true or false, and true only for what the agent said, "
            f"got {loss!r}"
        )
    if any("\ud800" <= letter <= "\udfff" for letter in content):
        raise ValueError(f"message {index} has half a character (a lone surrogate)")
    return Message(role, content), role == "assistant" and loss is not False


def _conversation(task: str, said: list[tuple[Message, bool]]) -> Conversation:
    """Return the conversation if its messages are in turn and one is learned from."""
    has_system = said[0][0].role == "system"
    for index, (message, _) in enumerate(said[has_system:], start=has_system):
        expected = "assistant" if (index - has_system) % 2 else "user"
        is_result = expected == "user" and index > has_system and message.role == "tool"
        if message.role != expected and not is_result:
            raise ValueError(f"message {index} must be of role {expected!r}, got {message.role!r}")
    messages, learned = zip(*said, strict=True)
    if messages[-1].role != "assistant" or not any(learned):
        raise ValueError(
            "a conversation ends with an assistant message, and at least one is learned from"
        )
    return Conversation(task, messages, learned)


def _refuse_empty_replies(conversation: Conversation) -> None:
    pairs = zip(conversation.messages, conversation.is_learned, strict=True)
    for index, (message, learned) in enumerate(pairs):
        if learned and _is_blank(message):
            raise ValueError(
                f"message {index} is an empty reply, which would teach the agent to say nothing; "
                'give it "loss": false, or remove the conversation'
            )


def _is_blank(message: Message) -> bool:
    return not message.content.strip()


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
