"""Conversations to learn from: demonstrations as messages, as JSON, and as exact samples.

One line of a file: {"task": "babyai/400", "messages": [{"role": "user", "content": "..."},
{"role": "assistant", "content": "...", "loss": true}, ...]}. `loss` is optional; an assistant
message is learned from unless it is false.

AgentGym's files are read as well: a JSON list (or lines) of {"item_id": "babyai_400",
"conversations": [{"from": "human", "loss": null, "value": "..."}, {"from": "gpt", ...}]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentgym_rl.agents.agent import Agent
from agentgym_rl.envs.demos import Demonstration
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.types import Completion, Episode, Message, Sample


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in turn: user first, assistant last; `is_learned` says which replies count."""

    task: str
    messages: tuple[Message, ...]
    is_learned: tuple[bool, ...]
    """One for each message; false for every user message."""
    origin: str = field(default="", compare=False)
    """Where it was read, for people: "demos.jsonl, line 3"."""


def from_demonstration(demo: Demonstration, agent: Agent) -> Conversation:
    """Return the conversation in which an agent of this format would have acted like the expert."""
    messages: list[Message] = []
    for index, (observation, action) in enumerate(
        zip(demo.observations, demo.actions, strict=True)
    ):
        shown = agent.first_prompt(observation) if index == 0 else observation
        messages += [Message("user", shown), Message("assistant", agent.write(action))]
    return Conversation(
        demo.task.id, tuple(messages), tuple(m.role == "assistant" for m in messages)
    )


def from_episode(episode: Episode) -> Conversation:
    """Return what was said in an episode, all replies to be learned from."""
    messages = episode.messages
    return Conversation(
        episode.task.id, messages, tuple(message.role == "assistant" for message in messages)
    )


def to_json_line(conversation: Conversation) -> str:
    """Return the line of a conversations file."""
    pairs = zip(conversation.messages, conversation.is_learned, strict=True)
    messages = [
        {"role": m.role, "content": m.content}
        | ({"loss": learned} if m.role == "assistant" else {})
        for m, learned in pairs
    ]
    return json.dumps({"task": conversation.task, "messages": messages}, ensure_ascii=False)


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file; a bad one is an error that names file and line."""
    for origin, row in read_rows(path):
        try:
            yield replace(parse_conversation(row), origin=origin)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{origin}: {type(error).__name__}: {error}") from error


def read_rows(path: Path) -> Iterator[tuple[str, object]]:
    """Yield the values of a JSON list, or of JSON lines, each with its file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read demonstrations from {str(path)!r}: {error}") from error
    if text.lstrip().startswith("["):
        yield from _list_items(path, text)
        return
    # Not splitlines: a JSON string may hold U+2028 and other characters that end its lines.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield f"{path}, line {number}", json.loads(line)
            except ValueError as error:
                raise ConfigError(
                    f"{path}, line {number}: {type(error).__name__}: {error}"
                ) from error


def parse_conversation(row: object) -> Conversation:
    """Return the conversation of one row of a file, ours or AgentGym's."""
    if not isinstance(row, dict):
        raise TypeError(f"a conversation is an object, got {type(row).__name__}")
    if "conversations" in row and "messages" not in row:
        return _checked(str(row.get("item_id", "")), _agentgym_messages(row["conversations"]))
    return _checked(str(row.get("task", "")), row["messages"])


def to_sample(conversation: Conversation, renderer: ChatRenderer) -> Sample:
    """Return the tokens of a conversation as a rollout of it would have recorded them."""
    handler = RolloutHandler()
    for message, learned in zip(conversation.messages, conversation.is_learned, strict=True):
        if message.role == "assistant":
            ids = renderer.reply(message.content)
            completion = Completion(tuple(ids), (0.0,) * len(ids), is_stopped=True, version=0)
            handler.append_reply(completion, message.content, is_learned=learned)
        elif not handler.token_ids:
            handler.append_prompt(renderer.prompt(message.content), message.content)
        else:
            turn = renderer.turn(message.content, reply_ids=handler.token_ids)
            handler.append_observation(turn, message.content)
    return handler.sample()


def texts_of(conversations: Iterable[Conversation]) -> Iterator[str]:
    """Yield the text of every message, for a tokenizer to learn from."""
    for conversation in conversations:
        for message in conversation.messages:
            yield message.content


def _list_items(path: Path, text: str) -> Iterator[tuple[str, object]]:
    """Yield the items of a JSON list one by one, so that each is known by the line it begins in."""
    decoder, place = json.JSONDecoder(), text.index("[") + 1
    line, counted = 1, 0
    while True:
        while place < len(text) and text[place] in " \t\r\n,":
            place += 1
        line, counted = line + text.count("\n", counted, place), place
        if text[place : place + 1] == "]":
            return
        try:
            item, place = decoder.raw_decode(text, place)
        except ValueError as error:
            raise ConfigError(f"{path}, line {line}: {type(error).__name__}: {error}") from error
        yield f"{path}, line {line}", item


def _agentgym_messages(rows: object) -> list[dict[str, object]]:
    """Return AgentGym's messages as ours, without the observation after the last reply."""
    if not isinstance(rows, list) or not rows:
        raise ValueError("`conversations` must be a list with at least one human and one gpt entry")
    roles = {"human": "user", "gpt": "assistant"}
    messages = [
        {
            "role": roles.get(item["from"], item["from"]),
            "content": item["value"],
            "loss": item.get("loss"),
        }
        for item in rows
    ]
    return messages[:-1] if messages[-1]["role"] == "user" and len(messages) > 1 else messages


def _checked(task: str, rows: object) -> Conversation:
    if not isinstance(rows, list) or not rows:
        raise ValueError(
            "`messages` must be a list with at least one user and one assistant message"
        )
    messages, learned = list[Message](), list[bool]()
    for index, item in enumerate(rows):
        role, content, loss = item["role"], item["content"], item.get("loss")
        expected = "assistant" if index % 2 else "user"
        if role != expected or not isinstance(content, str):
            raise ValueError(
                f"message {index} must be text of role {expected!r}, got role {role!r}"
            )
        if loss not in (None, True, False) or (loss and role == "user"):
            raise ValueError(
                f"message {index}: `loss` is true or false, and never true of what the agent did "
                f"not say, got {loss!r}"
            )
        messages.append(Message(role, content))
        learned.append(role == "assistant" and loss is not False)
    if messages[-1].role != "assistant" or not any(learned):
        raise ValueError(
            "a conversation ends with an assistant message, and one at least is learned from"
        )
    return Conversation(task, tuple(messages), tuple(learned))
