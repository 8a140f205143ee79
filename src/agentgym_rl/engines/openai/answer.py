"""Checks and reads the chat completions of an endpoint.

An endpoint is somebody else's, so everything in its answer is checked. A reply that was withheld
(`content_filter`, no content at all) is not a reply: there is nothing to judge.
"""

from __future__ import annotations

import json
import math
from typing import Annotated

from pydantic import (
    BaseModel,
    Field,
    StrictInt,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from agentgym_rl.engines.base import TextCompletion
from agentgym_rl.errors import EngineError

_CUT = frozenset({"length", "max_tokens", "model_length"})
"""The names that endpoints have for the token limit."""
_WITHHELD = "content_filter"

Count = Annotated[StrictInt, Field(ge=0, le=10**8)]


def _or_none(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    try:
        return validate(value)
    except ValidationError:
        return None


class PassingError(EngineError):
    """A failure that a retry may not meet."""

    def __init__(self, message: str, *, pause_s: float = 0.0) -> None:
        super().__init__(message)
        self.pause_s = pause_s


class WithheldError(PassingError):
    """The endpoint withheld the reply; another draw may pass."""


class _TokenLogprob(BaseModel):
    logprob: float


class _ChatLogprobs(BaseModel):
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


class _ChatChoice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: Annotated[_ChatLogprobs | None, WrapValidator(_or_none)] = None


class _ChatUsage(BaseModel):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class _ChatCompletion(BaseModel):
    choices: list[_ChatChoice] = Field(min_length=1)
    usage: Annotated[_ChatUsage | None, WrapValidator(_or_none)] = None


def read_answer(text: bytes) -> TextCompletion:
    """Return the reply in an answer; PassingError if there is none.

    Malformed counts and log-probabilities are ignored.
    """
    try:
        answer = _ChatCompletion.model_validate_json(text)
    except ValidationError:
        raise PassingError(
            f"the endpoint's answer is not a chat completion: {text[:200]!r}"
        ) from None
    choice, usage = answer.choices[0], answer.usage or _ChatUsage()
    logprobs = tuple(item.logprob for item in choice.logprobs.content) if choice.logprobs else ()
    return TextCompletion(
        text=_reply(choice),
        num_prompt_tokens=usage.prompt_tokens,
        num_tokens=usage.completion_tokens,
        logprobs=logprobs if all(map(math.isfinite, logprobs)) else (),
        is_cut=choice.finish_reason in _CUT,
    )


def _reply(choice: _ChatChoice) -> str:
    """Return the text of the policy, with the calls that the endpoint took out of it."""
    message = choice.message
    if choice.finish_reason == _WITHHELD:
        raise WithheldError(f"the endpoint withheld a reply (finish_reason {_WITHHELD})")
    calls = [call.text() for call in message.tool_calls or ()]
    if message.content is None and not calls:
        if choice.finish_reason in _CUT:  # all its tokens went into a hidden thought
            return ""
        raise WithheldError(
            f"the endpoint's reply has no content (finish_reason {choice.finish_reason})"
        )
    return "\n".join([*filter(None, [message.content]), *calls])
