"""Requests to vLLM's /v1/completions, and checks of its answers.

Token ids go in and come out: `return_tokens_as_token_ids` makes the server name tokens by number
("token_id:265"), and nothing is ever encoded here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from agentgym_rl.errors import EngineError
from agentgym_rl.types import Completion, SamplingParams

COMPLETIONS = "/v1/completions"
_TOKEN = "token_id:"
_IMPOSSIBLE = -9999.0
"""vLLM's log-probability of minus infinity."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request for a reply."""

    context: Sequence[int]
    params: SamplingParams
    seed: int | None
    """64 bits, signed; None leaves the noise to the server."""
    stop_ids: frozenset[int]

    def body(self, model: str) -> dict[str, object]:
        """Return the JSON body; it names every setting, since a server may have other defaults."""
        params = self.params
        return {
            "model": model,
            "prompt": list(self.context),
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "min_p": params.min_p,
            "repetition_penalty": 1.0,
            "seed": self.seed,
            "stop_token_ids": sorted(self.stop_ids),
            "ignore_eos": True,  # only the stop tokens above count
            "stop": list(params.stop),
            "logprobs": 0,
            "return_tokens_as_token_ids": True,
        }


class _Logprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]


class _Choice(BaseModel):
    logprobs: _Logprobs
    finish_reason: str | None


class _Usage(BaseModel):
    prompt_tokens: int


class _Answer(BaseModel):
    choices: list[_Choice]
    usage: _Usage


def read_answer(text: bytes, request: CompletionRequest, *, version: int) -> Completion:
    """Return the reply; EngineError unless it answers exactly this request."""
    params, stop_ids = request.params, request.stop_ids
    try:
        answer = _Answer.model_validate_json(text)
        (choice,) = answer.choices
        ids = tuple(int(token.removeprefix(_TOKEN)) for token in choice.logprobs.tokens)
    except (ValidationError, ValueError) as error:
        raise _unusable(f"{text[:200]!r}") from error
    asked, read = len(request.context), answer.usage.prompt_tokens
    if read != asked:
        raise _unusable(f"it read {read} tokens, but {asked} were sent")
    logprobs = _checked_logprobs(choice.logprobs.token_logprobs, len(ids))
    has_stop_text = bool(params.stop) and choice.finish_reason == "stop"
    is_stopped = ids[-1] in stop_ids or has_stop_text
    if len(ids) > params.max_tokens or any(id_ in stop_ids for id_ in ids[:-1]):
        raise _unusable(f"{len(ids)} tokens continue after a limit or a stop token")
    if not is_stopped and len(ids) < params.max_tokens:
        raise _unusable(f"it ended early ({choice.finish_reason}), after {len(ids)} tokens")
    if params.temperature == 0:
        logprobs = (0.0,) * len(ids)  # no other token was possible
    return Completion(ids, logprobs, is_stopped, version)


def _checked_logprobs(logprobs: Sequence[float | None], num_tokens: int) -> tuple[float, ...]:
    if not num_tokens or len(logprobs) != num_tokens:
        raise _unusable(f"{num_tokens} tokens have {len(logprobs)} log-probabilities")
    finite = tuple(
        logprob
        for logprob in logprobs
        if logprob is not None and math.isfinite(logprob) and logprob > _IMPOSSIBLE
    )
    if len(finite) != num_tokens:
        raise _unusable("not all log-probabilities are finite; its weights may be broken")
    return finite


def _unusable(reason: str) -> EngineError:
    return EngineError(f"vLLM's answer cannot be used: {reason}")
