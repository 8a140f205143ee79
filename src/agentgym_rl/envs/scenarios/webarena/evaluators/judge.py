"""A language model that compares answers, at any OpenAI-compatible endpoint: `Judge`."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass

import aiohttp

from agentgym_rl.errors import EnvError

_KEY = "OPENAI_API_KEY"
_DEADLINE_S = 60.0
_NUM_TRIES = 3
_MAX_TOKENS = 768
_SYSTEM = "You grade answers. Think it over briefly, then end with the verdict alone on a line."
_ANSWER = """\
Question: {question}
Reference answer: {reference}
Answer to grade: {answer}

Does the answer to grade say the same as the reference answer? Other words and another order are \
fine, and so is more detail that does not contradict. "N/A" means that the task cannot be done.
End with one line: correct, incorrect or partially correct."""
_REASON = """\
Task, which cannot be done: {question}
Why it cannot be done: {reference}
Reason that was reported: {answer}

Is the reported reason the real one, said directly or implied?
End with one line: same or different."""
_VERDICT = re.compile(r"\b(partially correct|incorrect|correct|same|different)\b")


@dataclass(frozen=True, slots=True)
class Judge:
    """Compares what an agent says with what a task expects."""

    url: str
    model: str

    async def accepts(self, question: str, reference: str, answer: str) -> bool:
        """Return whether an answer means the same as the reference; a part of it does not."""
        words = _ANSWER.format(question=question, reference=reference, answer=answer)
        return await self._verdict(words, ("correct", "incorrect", "partially correct")) == (
            "correct"
        )

    async def agrees(self, question: str, reason: str, answer: str) -> bool:
        """Return whether an answer gives the reason why a task cannot be done."""
        words = _REASON.format(question=question, reference=reason, answer=answer)
        return await self._verdict(words, ("same", "different")) == "same"

    async def _verdict(self, words: str, known: tuple[str, ...]) -> str:
        """Return the last verdict of the judge's reply. Raises EnvError when it gives none."""
        reason = ""
        for number in range(_NUM_TRIES):
            await asyncio.sleep(number)
            try:
                reply = await self._ask(words)
            except (aiohttp.ClientError, TimeoutError, KeyError, ValueError, TypeError) as error:
                reason = f"{type(error).__name__}: {error}"
                continue
            found = [one for one in _VERDICT.findall(reply.lower()) if one in known]
            if found:
                return str(found[-1])
            reason = f"no verdict in {reply[-200:]!r}"
        raise EnvError(
            f"the judge {self.model!r} at {self.url} failed ({reason}); check "
            f"env.options.judge_url, judge_model and the key in {_KEY}"
        )

    async def _ask(self, words: str) -> str:
        body = {
            "model": self.model,
            "messages": [
                {"role": "system", "content": _SYSTEM},
                {"role": "user", "content": words},
            ],
            "temperature": 0,
            "max_tokens": _MAX_TOKENS,
        }
        key = os.environ.get(_KEY, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{self.url.rstrip('/')}/chat/completions"
        timeout = aiohttp.ClientTimeout(total=_DEADLINE_S)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            answer = await client.post(url, json=body, headers=headers, allow_redirects=False)
            answer.raise_for_status()
            reply = await answer.json(content_type=None)
            return str(reply["choices"][0]["message"]["content"])
