"""What a chat completion of an endpoint must be to be believed, and what its end means.

An endpoint is somebody else's: nothing that it says is trusted further than it can be checked. A
reply that was withheld (`content_filter`, no content at all) is not a reply: the policy said
nothing that could be judged.
"""

from __future__ import annotations

import json
import math
from typing import Annotated

from pydantic import BaseModel, Field, StrictInt, ValidationError

from agentgym_rl.engines.base import TextCompletion
from agentgym_rl.errors import EngineError

_CUT = frozenset({"length", "max_tokens", "model_length"})
"""How endpoints say that the token limit ended a reply."""
_WITHHELD = "content_filter"

Count = Annotated[StrictInt, Field(ge=0, le=10**8)]


class PassingError(EngineError):
    """Something that another request may not meet."""

    def __init__(self, message: str, *, pause_s: float = 0.0) -> None:
        super().__init__(message)
        self.pause_s = pause_s


class WithheldError(PassingError):
    """The endpoint kept the reply to itself; another draw may pass."""


class _TokenLogprob(BaseModel):
    logprob: float


class _Logprobs(BaseModel):
    content: list[_TokenLogprob]


class _Function(BaseModel):
    name: str
    arguments: str


class _ToolCall(BaseModel):
    function: _Function

    def text(self) -> str:
        """Return the call as the format `function_call` reads it."""
        call = {"name": self.function.name, "arguments": self.function.arguments}
        return f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"


class _Message(BaseModel):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: object = None


class _Usage(BaseModel):
    prompt_tokens: Count
    completion_tokens: Count


class _Completion(BaseModel):
    choices: list[_Choice]
    usage: object = None


def read_answer(text: bytes) -> TextCompletion:
    """Return the reply in an answer; PassingError where it is none.

    Counts and log-probabilities that are not what they should be are taken as not told.
    """
    try:
        answer = _Completion.model_validate_json(text)
        choice = answer.choices[0]
    except (ValidationError, IndexError):
        raise PassingError(f"the endpoint's answer is no chat completion: {text[:200]!r}") from None
    usage = _usage(answer.usage)
    return TextCompletion(
        text=_reply(choice),
        num_prompt_tokens=usage.prompt_tokens if usage is not None else None,
        num_tokens=usage.completion_tokens if usage is not None else None,
        logprobs=_logprobs(choice.logprobs),
        is_cut=choice.finish_reason in _CUT,
    )


def _reply(choice: _Choice) -> str:
    """Return what the policy said, calls included that the endpoint took out of its text."""
    message = choice.message
    if choice.finish_reason == _WITHHELD:
        raise WithheldError(f"the endpoint withheld a reply (finish_reason {_WITHHELD})")
    calls = [call.text() for call in message.tool_calls or ()]
    if message.content is None and not calls:
        if choice.finish_reason in _CUT:  # all its tokens went into a thought that is not told
            return ""
        raise WithheldError(
            f"the endpoint's reply has no content (finish_reason {choice.finish_reason})"
        )
    said = [message.content] if message.content else []
    return "\n".join([*said, *calls])


def _usage(told: object) -> _Usage | None:
    try:
        return _Usage.model_validate(told)
    except ValidationError:
        return None


def _logprobs(told: object) -> tuple[float, ...]:
    try:
        logprobs = tuple(item.logprob for item in _Logprobs.model_validate(told).content)
    except ValidationError:
        return ()
    return logprobs if all(map(math.isfinite, logprobs)) else ()
