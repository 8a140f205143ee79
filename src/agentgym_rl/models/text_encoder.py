"""Encodes texts to ids, remembers them, and encodes many texts at once.

A tokenizer takes longer than the rest of a round, and blocks the interpreter meanwhile. Texts that
episodes wait for in one turn of the event loop are therefore encoded in one call, which uses all
cores and lets the engine's thread run.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

Ids = tuple[int, ...]

_SHORT_CHARS = 1000
_NUM_SHORT, _NUM_LONG = 4096, 1024
"""Texts to remember: environments repeat short texts, and a group shares one long prompt."""


class TextEncoder:
    """Encodes plain text: words that look like special tokens are text as well.

    `backend` is the tokenizer that transformers wraps; None if only the wrapper can be used, one
    text after another.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, backend: Tokenizer | None) -> None:
        self._tokenizer, self._backend = tokenizer, backend
        self._short, self._long = _Memory(_NUM_SHORT), _Memory(_NUM_LONG)
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        """Travel to another process without what it remembers."""
        return type(self), (self._tokenizer, self._backend)

    def ids(self, text: str) -> Ids:
        memory = self._memory_of(text)
        ids = memory.find(text)
        if ids is None:
            (ids,) = self._encode([text])
            memory.keep(text, ids)
        return ids

    async def ids_soon(self, text: str) -> Ids:
        """Return the ids of a text, encoded together with others that are needed now."""
        ids = self._memory_of(text).find(text)
        if ids is not None:
            return ids
        loop = asyncio.get_running_loop()
        if loop not in self._waiting:
            self._waiting[loop] = []
            loop.call_soon(self._answer_waiting, loop)
        future: asyncio.Future[Ids] = loop.create_future()
        self._waiting[loop].append((text, future))
        return await future

    def _answer_waiting(self, loop: asyncio.AbstractEventLoop) -> None:
        # A future is done if its episode was cancelled.
        waiting = [(text, future) for text, future in self._waiting.pop(loop) if not future.done()]
        texts = list(dict.fromkeys(text for text, _future in waiting))
        try:
            found = dict(zip(texts, self._encode(texts), strict=True))
        except Exception as error:  # noqa: BLE001 - raised again where the ids are waited for
            for _text, future in waiting:
                future.set_exception(error)
            return
        for text, future in waiting:
            self._memory_of(text).keep(text, found[text])
            future.set_result(found[text])

    def _memory_of(self, text: str) -> _Memory:
        return self._short if len(text) <= _SHORT_CHARS else self._long

    def _encode(self, texts: Sequence[str]) -> list[Ids]:
        if self._backend is None:
            encode = self._tokenizer.encode
            return [
                tuple(encode(text, add_special_tokens=False, split_special_tokens=True))
                for text in texts
            ]
        self._backend.encode_special_tokens = True  # transformers changes it in its own calls
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [tuple(encoding.ids) for encoding in encodings]


_Waiting = tuple[str, asyncio.Future[Ids]]


class _Memory:
    """The ids of the latest texts."""

    def __init__(self, max_texts: int) -> None:
        self._max_texts = max_texts
        self._ids = OrderedDict[str, Ids]()

    def find(self, text: str) -> Ids | None:
        ids = self._ids.get(text)
        if ids is not None:
            self._ids.move_to_end(text)
        return ids

    def keep(self, text: str, ids: Ids) -> None:
        self._ids[text] = ids
        if len(self._ids) > self._max_texts:
            self._ids.popitem(last=False)
