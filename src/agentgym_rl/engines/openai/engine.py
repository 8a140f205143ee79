"""An OpenAI-compatible endpoint as the model of an evaluation: POST {url}/chat/completions.

A request changes nothing at the endpoint, so it may be repeated. Failures that may pass are retried
(an overload, a crash, a lost connection, an invalid answer, a withheld reply). A wrong key, address
or model name ends the evaluation, since every other request would fail, too. Every answer has a
deadline and a limit on its size, and redirects are not followed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from agentgym_rl.config import OpenAIEngineConfig
from agentgym_rl.engines.base import (
    ContextFullError,
    TextCompletion,
    TextEngine,
    error_message,
    says_context_full,
)
from agentgym_rl.engines.openai.answer import PassingError, WithheldError, read_answer
from agentgym_rl.errors import ConfigError, EngineError
from agentgym_rl.types import Message, SamplingParams

logger = logging.getLogger(__name__)

_URL, _KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
"""Environment variables, with the names that other clients use."""
_FIRST_PAUSE_S = 0.5
_MAX_PAUSE_S = 60.0
_MAX_ANSWER_BYTES = 8 << 20
"""A reply of 32,000 tokens has about 4 MiB with its log-probabilities."""
_HOPELESS = {401: "the key", 403: "the key", 404: "the address or the model's name"}
_SUBSTITUTES = {"max_tokens": "max_completion_tokens", "logprobs": "", "seed": ""}
"""Parameters that some models refuse, and their replacement, if any. None of them changes what is
measured."""


class OpenAIEngine(TextEngine):
    """Asks an endpoint. Belongs to one event loop."""

    max_retries = 5
    """Of a request that was refused for now (429), failed (5xx), was lost, exceeded its deadline or
    got no reply. Pauses double, unless the endpoint asks for another."""

    def __init__(self, model: str, config: OpenAIEngineConfig) -> None:
        url = config.url or os.environ.get(_URL, "")
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                "--engine openai needs the address of an endpoint: set engine.url, such as "
                f"https://host/v1, or the variable {_URL}; got {url!r}"
            )
        self._model, self._config = model, config
        self._address = f"{url.rstrip('/')}/chat/completions"
        self._refused = set[str]()
        """Parameters that the endpoint has refused."""
        self._http: aiohttp.ClientSession | None = None

    async def reply(
        self, messages: Sequence[Message], params: SamplingParams, *, seed: int
    ) -> TextCompletion:
        body: dict[str, object] = {
            "model": self._model,
            "messages": [{"role": item.role, "content": item.content} for item in messages],
            "temperature": params.temperature,
            "top_p": params.top_p,
            "max_tokens": params.max_tokens,
            "seed": seed % 2**31,  # some endpoints keep it in 32 bits
            "logprobs": True,
        }
        if params.stop:
            body["stop"] = list(params.stop)
        for trial in range(self.max_retries + 1):
            try:
                return read_answer(await self._ask(body))
            except PassingError as error:
                if isinstance(error, WithheldError):  # the same draw would be withheld again
                    body["seed"] = (seed + trial + 1) % 2**31
                if trial == self.max_retries:
                    raise EngineError(f"{error}, {trial + 1} times") from error
                pause_s = error.pause_s or _FIRST_PAUSE_S * 2**trial * random.uniform(1.0, 1.5)
                logger.info("%s; asking again in %.1f s", error, pause_s)
                await asyncio.sleep(min(pause_s, _MAX_PAUSE_S))
        raise AssertionError("the last trial returns or raises")

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _ask(self, body: Mapping[str, object]) -> bytes:
        """Return the answer to a request without the parameters that the endpoint refuses."""
        while True:
            kept = {key: value for key, value in body.items() if key not in self._refused}
            for key in self._refused:
                if _SUBSTITUTES[key]:
                    kept[_SUBSTITUTES[key]] = body[key]
            answer = await self._post(kept)
            if answer.status < 300:
                return answer.body
            refused = answer.refused_parameter() if answer.status in (400, 422) else None
            if refused is None or refused in self._refused:
                raise self._error(answer)
            self._refused.add(refused)
            logger.warning("%s refuses the parameter %s: it is left out", self._model, refused)

    async def _post(self, body: Mapping[str, object]) -> _HttpAnswer:
        try:
            async with (
                asyncio.timeout(self._config.timeout_s),
                self._session().post(
                    self._address, json=body, headers=self._headers(), allow_redirects=False
                ) as answer,
            ):
                text, headers = await self._read(answer), answer.headers
                return _HttpAnswer(
                    answer.status, text, headers.get("Retry-After", ""), headers.get("Location", "")
                )
        except TimeoutError:
            raise PassingError(
                f"{self._address}: no answer within {self._config.timeout_s:g} s"
            ) from None
        except aiohttp.InvalidURL as error:
            raise ConfigError(f"engine.url: {error} is not an address") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PassingError(f"{self._address}: {type(error).__name__}: {error}") from error

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        """Return the body, within its limit and not compressed."""
        encoding = answer.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise PassingError(f"{self._address}: the answer is compressed ({encoding[:40]!r})")
        body = bytearray()
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > _MAX_ANSWER_BYTES:
                raise PassingError(f"{self._address}: more than {_MAX_ANSWER_BYTES} bytes")
        return bytes(body)

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            # rollout.max_concurrency decides how many requests are under way at once.
            connector = aiohttp.TCPConnector(limit=0)
            timeout = aiohttp.ClientTimeout(total=None)  # each call has its own
            # No decompression: a few bytes may expand to gigabytes.
            self._http = aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False
            )
        return self._http

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(_KEY, "")
        authorization = {"Authorization": f"Bearer {key}"} if key else {}
        return {"Accept-Encoding": "identity", **authorization}

    def _error(self, answer: _HttpAnswer) -> Exception:
        """Return the exception for an answer with an error status."""
        message = f"{self._address}: {answer.status}: {error_message(answer.body)}"
        if answer.status < 400:  # neither the conversation nor the key is sent elsewhere
            return ConfigError(
                f"{self._address} redirects to {answer.location[:200]!r}, which is not followed; "
                "set engine.url to the final address"
            )
        if answer.status in (408, 409, 425, 429) or answer.status >= 500:
            return PassingError(message, pause_s=answer.pause_s())
        if answer.status in _HOPELESS:
            return ConfigError(
                f"{message} - check {_HOPELESS[answer.status]} (engine.url, the key in the "
                f"variable {_KEY}, and the model, {self._model!r})"
            )
        if says_context_full(answer.status, answer.text()):
            return ContextFullError(message)
        return EngineError(message)


@dataclass(frozen=True, slots=True)
class _HttpAnswer:
    """An answer of any status."""

    status: int
    body: bytes
    retry_after: str
    location: str

    def text(self) -> str:
        return self.body.decode(errors="replace")

    def pause_s(self) -> float:
        """Return the pause that the endpoint asks for; 0 if it asks for none."""
        try:
            return max(0.0, float(self.retry_after))
        except ValueError:
            return 0.0

    def refused_parameter(self) -> str | None:
        """Return the parameter that the endpoint refuses, if it names one."""
        text = self.text()
        if not re.search(
            r"unsupported|not support|unrecognized|unknown|extra", text, re.IGNORECASE
        ):
            return None
        return next((key for key in _SUBSTITUTES if re.search(rf"\b{key}\b", text)), None)
