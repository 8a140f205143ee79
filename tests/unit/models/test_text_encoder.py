"""Encoding many texts at once: the same ids, encoded once, for whoever still waits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tokenizers import Encoding, Tokenizer

from agentgym_rl.models import text_encoder
from agentgym_rl.models.text_encoder import TextEncoder
from chat_families import FAMILIES, family

families = pytest.mark.parametrize("name", FAMILIES)


class CountingTokenizer:
    """Notes which texts are encoded together."""

    def __init__(self, backend: Tokenizer) -> None:
        self._backend = backend
        self.batches: list[list[str]] = []
        self.encode_special_tokens = False

    def encode_batch_fast(self, texts: list[str], *, add_special_tokens: bool) -> list[Encoding]:
        self.batches.append(texts)
        return self._backend.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


def counting() -> tuple[TextEncoder, CountingTokenizer]:
    tokenizer = family("qwen").tokenizer
    backend = CountingTokenizer(tokenizer.backend_tokenizer)
    # pyrefly: ignore[bad-argument-type] - has what is used of a tokenizer
    return TextEncoder(tokenizer, backend), backend


async def ids_of(encoder: TextEncoder, texts: Sequence[str]) -> list[tuple[int, ...]]:
    return await asyncio.gather(*map(encoder.ids_soon, texts))


@families
async def test_ids_are_the_same_alone_and_together(name: str):
    chat = family(name)
    texts = ["Wall.", *chat.special_words, "", "e\u0301 日本\r\n🙂", "long " * 300, "Wall."]
    wrapped = TextEncoder(chat.tokenizer, None)
    alone = [wrapped.ids(text) for text in texts]
    for backend in (None, chat.tokenizer.backend_tokenizer):
        assert await ids_of(TextEncoder(chat.tokenizer, backend), texts) == alone
        assert [TextEncoder(chat.tokenizer, backend).ids(text) for text in texts] == alone


async def test_texts_of_one_turn_are_encoded_together_each_once_and_remembered():
    encoder, backend = counting()
    first = await ids_of(encoder, ["a wall", "a ball", "a wall"])
    assert first[0] == first[2] == encoder.ids("a wall")
    assert await ids_of(encoder, ["a door", "a ball"]) == [encoder.ids("a door"), first[1]]
    assert backend.batches == [["a wall", "a ball"], ["a door"]]


async def test_who_was_cancelled_keeps_nobody_from_the_ids():
    encoder, backend = counting()
    tasks = [asyncio.create_task(encoder.ids_soon(text)) for text in ("a wall", "a ball")]
    asyncio.get_running_loop().call_soon(tasks[0].cancel)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1] == encoder.ids("a ball")
    assert backend.batches[0][-1] == "a ball"


async def test_a_text_that_cannot_be_encoded_is_an_error_for_who_waits_and_for_no_later_one():
    encoder, _backend = counting()
    results = await asyncio.gather(encoder.ids_soon("\ud800"), return_exceptions=True)
    assert isinstance(results[0], Exception)
    assert await encoder.ids_soon("a wall") == encoder.ids("a wall")


def test_the_text_asked_for_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(text_encoder, "_NUM_SHORT", 2)
    encoder, backend = counting()
    for text in ("a wall", "a ball", "a wall", "a door", "a wall", "a ball"):
        encoder.ids(text)
    assert backend.batches == [["a wall"], ["a ball"], ["a door"], ["a ball"]]
