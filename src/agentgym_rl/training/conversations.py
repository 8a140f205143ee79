"""Conversations to learn from: demonstrations as messages, as JSON lines, and as exact samples.

One line of a file: {"task": "babyai/400", "messages": [{"role": "user", "content": "..."},
{"role": "assistant", "content": "...", "loss": true}, ...]}. `loss` is optional; an assistant
message is learned from unless it is false.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentgym_rl.agents.agent import Agent
from agentgym_rl.envs.demos import Demonstration
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.types import Completion, Message, Sample


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in turn: user first, assistant last; `is_learned` says which replies count."""

    task: str
    messages: tuple[Message, ...]
    is_learned: tuple[bool, ...]
    """One for each message; false for every user message."""


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
    """Yield the conversations of a JSON-lines file; a bad line is an error that names it."""
    try:
        # Not splitlines: a JSON string may hold U+2028 and other characters that end its lines.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read demonstrations from {str(path)!r}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield _parse(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigError(
                    f"{path}, line {number}: {type(error).__name__}: {error}"
                ) from error


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


def _parse(row: dict[str, object]) -> Conversation:
    rows = row["messages"]
    if not isinstance(rows, list) or not rows:
        raise ValueError(
            "`messages` must be a list with at least one user and one assistant message"
        )
    messages, learned = list[Message](), list[bool]()
    for index, item in enumerate(rows):
        role, content = item["role"], item["content"]
        expected = "assistant" if index % 2 else "user"
        if role != expected or not isinstance(content, str):
            raise ValueError(
                f"message {index} must be text of role {expected!r}, got role {role!r}"
            )
        messages.append(Message(role, content))
        learned.append(role == "assistant" and bool(item.get("loss", True)))
    if messages[-1].role != "assistant" or not any(learned):
        raise ValueError(
            "a conversation ends with an assistant message, and one at least is learned from"
        )
    return Conversation(str(row.get("task", "")), tuple(messages), tuple(learned))
