"""Conversations to learn from: demonstrations as messages, and as exact samples.

`conversation_files.py` has them as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from agentgym_rl.agents.agent import Agent
from agentgym_rl.envs.demos.demonstration import Demonstration
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.demonstration import demonstrated_contexts
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.types import Completion, Episode, Message, Sample


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in turn: user first, assistant last; `is_learned` says which replies count.

    One system message may come before the first user message. After that one a message of role
    "tool" may stand in the place of a user's.
    """

    task: str
    messages: tuple[Message, ...]
    is_learned: tuple[bool, ...]
    """One for each message; false for all but the assistant's."""
    origin: str = field(default="", compare=False)
    """Where it was read, for people: "demos.jsonl, line 3"."""
    renderer: ChatRenderer | None = field(default=None, compare=False, repr=False)
    """What writes its prompts, with the tools of its environment; None for the policy's own."""

    @property
    def opening(self) -> tuple[Message, ...]:
        """The messages before the first reply."""
        return self.messages[: 2 if self.messages[0].role == "system" else 1]


def from_demonstration(demo: Demonstration, agent: Agent) -> list[Conversation]:
    """Return what this agent would have been shown and said in the expert's place.

    It is one conversation for each context that the agent begins.
    """
    return [
        Conversation(demo.task.id, tuple(context.messages), tuple(context.is_learned))
        for context in demonstrated_contexts(demo, agent)
    ]


def from_episode(episode: Episode, samples: Sequence[Sample] | None = None) -> Conversation:
    """Return what was said in an episode.

    Replies count as in these versions of its samples; without any, all count.
    """
    counts = iter(
        bool(version.loss_mask[place])
        for sample, version in zip(episode.samples, samples or (), strict=samples is not None)
        for place in _places_of_replies(sample)
    )
    messages = episode.messages
    return Conversation(
        episode.task.id,
        messages,
        tuple(message.role == "assistant" and next(counts, True) for message in messages),
    )


def _places_of_replies(sample: Sample) -> Iterator[int]:
    """Yield where each reply that was sampled in a sample begins."""
    before = 0
    for place, mask in enumerate(sample.loss_mask):
        if mask and not before:
            yield place
        before = mask


def to_sample(conversation: Conversation, renderer: ChatRenderer) -> Sample:
    """Return the tokens of a conversation as a rollout of it would have recorded them."""
    handler, system = RolloutHandler(), None
    for message, learned in zip(conversation.messages, conversation.is_learned, strict=True):
        if message.role == "system":
            system = message.content
        elif message.role == "assistant":
            ids = renderer.reply(message.content)
            completion = Completion(tuple(ids), (0.0,) * len(ids), is_stopped=True, version=0)
            handler.append_reply(completion, message.content, is_learned=learned)
        elif not handler.token_ids:
            prompt = renderer.prompt(message.content, system=system)
            handler.append_prompt(prompt, message.content)
        else:
            turn = renderer.turn(
                message.content, reply_ids=handler.token_ids, is_result=message.role == "tool"
            )
            handler.append_observation(turn, message.content)
    return handler.sample()


def texts_of(conversations: Iterable[Conversation]) -> Iterator[str]:
    """Yield the text of every message, for a tokenizer to learn from."""
    for conversation in conversations:
        for message in conversation.messages:
            yield message.content
