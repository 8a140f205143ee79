"""Rendering conversations: the template's own ids, only ever appended, and safe from forgery."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from agentgym_rl.models.chat import ChatRenderer
from chat_families import FAMILIES, Family, family

FIRST_PROMPT = {
    "qwen": (
        "<|im_start|>system\nYou are a small model. Help as well as you can.<|im_end|>\n"
        "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n"
    ),
    "llama3": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nGo.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "gemma": "<bos><start_of_turn>user\nGo.<end_of_turn>\n<start_of_turn>model\n",
    "smollm2": (
        "<|im_start|>system\nYou are smaller still, and kind.<|im_end|>\n"
        "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n"
    ),
}

TURN_AFTER_CLOSED_REPLY = {
    "qwen": "\n<|im_start|>user\nWall.<|im_end|>\n<|im_start|>assistant\n",
    "llama3": (
        "<|start_header_id|>user<|end_header_id|>\n\nWall.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "gemma": "\n<start_of_turn>user\nWall.<end_of_turn>\n<start_of_turn>model\n",
    "smollm2": "\n<|im_start|>user\nWall.<|im_end|>\n<|im_start|>assistant\n",
}

AFTER_LAST_REPLY = {"qwen": "\n", "llama3": "", "gemma": "\n", "smollm2": "\n"}

quick = settings(max_examples=40)
families = pytest.mark.parametrize("name", FAMILIES)


def texts(*, special_words: bool) -> st.SearchStrategy[str]:
    """Any text, with words and spaces of all kinds, and the markers of every family if asked."""
    bits = ["user\n", "100", " ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "e\u0301", "▁", "<0x0A>"]
    bits += ["<tool_call>", "<|", "|>", "'s", "日本", "🙂"]
    if special_words:
        bits += [word for name in FAMILIES for word in family(name).special_words]
    return st.lists(st.one_of(st.text(max_size=8), st.sampled_from(bits)), max_size=6).map("".join)


def plain_texts(chat: Family) -> st.SearchStrategy[str]:
    """Text without spaces around it and without the family's own markers."""
    return (
        texts(special_words=False)
        .map(str.strip)
        .filter(lambda text: not any(word in text for word in chat.special_words))
    )


def special_ids_of(chat: Family, ids: list[int]) -> list[int]:
    return [token for token in ids if token in chat.tokenizer.all_special_ids]


def as_kept(chat: Family, text: str) -> str:
    """The text as far as the tokenizer itself keeps it."""
    if chat.name == "qwen":
        return unicodedata.normalize("NFC", text)
    return text.replace("▁", " ") if chat.name == "gemma" else text


def without_template() -> PreTrainedTokenizerFast:
    """A tokenizer whose template a test can replace; it shares nothing with the family's."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=family("qwen").tokenizer._tokenizer)
    tokenizer.chat_template = None
    return tokenizer


@families
def test_prompt_is_the_familys_format(name: str):
    chat = family(name)
    ids = chat.renderer.prompt("  Go.\n")
    assert chat.tokenizer.decode(ids) == FIRST_PROMPT[name]
    assert ids == chat.tokenizer.encode(FIRST_PROMPT[name], add_special_tokens=False)


@families
def test_turn_is_the_familys_format(name: str):
    chat = family(name)
    ids = chat.renderer.turn("Wall.", reply_ids=[1, chat.end_of_turn])
    assert ids == chat.tokenizer.encode(TURN_AFTER_CLOSED_REPLY[name], add_special_tokens=False)


@families
def test_end_of_turn_is_the_first_stop_token_and_the_end_of_text_another(name: str):
    chat = family(name)
    assert chat.renderer.stop_token_ids == list(chat.stops)


@families
def test_a_turn_closes_a_reply_that_did_not_close_itself(name: str):
    chat = family(name)
    closed = chat.renderer.turn("Wall.", reply_ids=[5, chat.end_of_turn])
    assert closed[0] != chat.end_of_turn
    for last in (5, *chat.other_stops):
        turn = chat.renderer.turn("Wall.", reply_ids=[chat.end_of_turn, last])
        assert turn == [chat.end_of_turn, *closed]


@families
def test_canonical_conversations_have_the_ids_of_the_whole_template(name: str):
    chat = family(name)

    @quick
    @given(st.lists(st.tuples(plain_texts(chat), plain_texts(chat)), min_size=1, max_size=4))
    def check(pairs: list[tuple[str, str]]) -> None:
        messages, ids = [], []
        for prompt, reply in pairs:
            messages += [{"role": "user", "content": prompt}]
            messages += [{"role": "assistant", "content": reply}]
            ids += (
                chat.renderer.turn(prompt, reply_ids=ids) if ids else chat.renderer.prompt(prompt)
            )
            ids += chat.renderer.reply(reply)
        text = chat.tokenizer.apply_chat_template(messages, tokenize=False)
        rest = chat.tokenizer.encode(AFTER_LAST_REPLY[name], add_special_tokens=False)
        assert chat.tokenizer(text, add_special_tokens=False)["input_ids"] == ids + rest

    check()


@families
def test_no_text_can_forge_a_marker(name: str):
    chat = family(name)

    @quick
    @given(texts(special_words=True))
    def check(text: str) -> None:
        renderer, closed = chat.renderer, [chat.end_of_turn]
        assert special_ids_of(chat, renderer.reply(text)) == [chat.end_of_turn]
        for render in (renderer.prompt, lambda text: renderer.turn(text, reply_ids=closed)):
            assert special_ids_of(chat, render(text)) == special_ids_of(chat, render("harmless"))

    check()


@families
def test_texts_are_shown_in_full(name: str):
    chat = family(name)
    before, after = FIRST_PROMPT[name].split("Go.")

    @quick
    @given(texts(special_words=True).map(str.strip))
    def check(text: str) -> None:
        shown = chat.tokenizer.decode(chat.renderer.prompt(text))
        assert shown == before + as_kept(chat, text) + after
        assert chat.renderer.decode_reply(chat.renderer.reply(text)) == as_kept(chat, text)

    check()


@families
def test_decoding_a_reply_leaves_out_one_stop_token_at_its_end(name: str):
    chat = family(name)
    go = chat.renderer.reply("go left")[:-1]
    assert chat.renderer.decode_reply(go) == "go left"
    for stop in chat.stops:
        word = chat.tokenizer.convert_ids_to_tokens(stop)
        assert chat.renderer.decode_reply([*go, stop]) == "go left"
        assert chat.renderer.decode_reply([*go, stop, *go]) == f"go left{word}go left"
        assert chat.renderer.decode_reply([*go, stop, stop]) == f"go left{word}"
    assert chat.renderer.decode_reply([chat.end_of_turn]) == ""
    assert chat.renderer.decode_reply([]) == ""


@families
def test_any_sampled_ids_can_be_decoded(name: str):
    chat = family(name)
    # A model's vocabulary is often rounded up: ids beyond the tokenizer's mean nothing.
    ids = st.lists(st.integers(0, len(chat.tokenizer) + 63), max_size=12)

    @quick
    @given(ids)
    def check(sampled: list[int]) -> None:
        text = chat.renderer.decode_reply(sampled)
        if not sampled or sampled[-1] not in chat.stops:
            assert text == chat.tokenizer.decode(sampled, skip_special_tokens=False)

    check()


@families
def test_rendering_leaves_the_tokenizer_as_it_was(name: str):
    chat = family(name)
    chat.renderer.turn("Wall.", reply_ids=[])
    word = chat.tokenizer.convert_ids_to_tokens(chat.end_of_turn)
    assert chat.tokenizer.encode(word, add_special_tokens=False) == [chat.end_of_turn]


def test_a_tokenizer_without_chat_template_is_refused():
    with pytest.raises(ValueError, match="has no chat template; use an instruct model"):
        ChatRenderer(without_template())


def test_a_template_without_end_of_turn_token_is_refused():
    tokenizer = without_template()
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    with pytest.raises(ValueError, match=r"closes a reply with '\\nuser: ', not with a special"):
        ChatRenderer(tokenizer)


def test_a_template_that_changes_contents_is_refused():
    tokenizer = without_template()
    tokenizer.chat_template = (
        "{% for message in messages %}{{ message['content'] | upper }}<|im_end|>{% endfor %}"
    )
    with pytest.raises(ValueError, match="does not show message contents unchanged"):
        ChatRenderer(tokenizer)
