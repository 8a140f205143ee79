"""Chat rendering that only ever appends: what was sampled is never decoded and encoded again.

The model's own chat template is asked once, with placeholders, for the text around a message. A
conversation is then built from three kinds of pieces, and old tokens are never touched:

    prompt    everything up to the place where the first reply begins
    reply     the ids that the policy sampled, as they are
    turn      the close of the reply, the observation, and the opening of the next reply

Text that an environment sends is encoded as plain text: it cannot forge the template's markers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property, lru_cache

from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

_REPLY, _OBSERVATION = "[[reply-text]]", "[[observation-text]]"
_SYSTEM = "[[system-text]]"

_NUM_REMEMBERED_TEXTS = 4096
_MAX_REMEMBERED_CHARS = 1000
"""Environments say the same short things again and again; a tokenizer takes longer than all the
rest of a round."""


class ChatRenderer:
    """Renders the messages of one model's conversations to token ids."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if tokenizer.chat_template is None:
            raise ValueError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; use an "
                "instruct model, or set tokenizer.chat_template and save it again"
            )
        self._tokenizer = tokenizer
        self._backend = _backend(tokenizer)
        self._marks: dict[str, list[int]] = {}
        self._encode_short = lru_cache(_NUM_REMEMBERED_TEXTS)(self._encode_anew)
        self._special_words = sorted(map(str, tokenizer.get_added_vocab()), key=len, reverse=True)
        first = self._template([_user(_OBSERVATION)])
        self._before_first, self._after_first = _split_once(first, _OBSERVATION)
        self._close_reply, self._before_next, self._after_next = self._split_turn()
        self.stop_token_ids = self._find_stop_tokens()
        self._warn_unless_faithful()

    def prompt(self, text: str, *, system: str | None = None) -> list[int]:
        """Return the ids from the start up to where the first reply begins.

        `system` is a system message to begin with. A template that has none gets it as the
        beginning of the text, with an empty line between.
        """
        if system is not None:
            return self._prompt_with_system(system, text)
        return [
            *self._encode_marks(self._before_first),
            *self._encode_text(text),
            *self._encode_marks(self._after_first),
        ]

    def turn(self, observation: str, *, reply_ids: Sequence[int]) -> list[int]:
        """Return the ids that follow a reply: its close, the observation, the next reply's opening.

        A reply that ends with the end-of-turn token was closed by the policy itself; one that the
        token limit cut is closed here, by a token that was not sampled.
        """
        end_of_turn = self.stop_token_ids[0]
        is_closed = bool(reply_ids) and reply_ids[-1] == end_of_turn
        return [
            *([] if is_closed else [end_of_turn]),
            *self._encode_marks(self._before_next),
            *self._encode_text(observation),
            *self._encode_marks(self._after_next),
        ]

    def reply(self, text: str) -> list[int]:
        """Return the ids of a reply given as text (a demonstration), with its stop token."""
        return [*self._encode_text(text), self.stop_token_ids[0]]

    def decode_reply(self, token_ids: Sequence[int]) -> str:
        """Return the text of a sampled reply without its stop token."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))

    def num_tokens_before(self, token_ids: Sequence[int], end: int) -> int:
        """Return how many of a reply's first tokens lie before character `end` of its text.

        A token across the border, or one that holds a part of a character, lies after it; and so
        does the last token in any case. Found by decoding beginnings: nothing is encoded.
        """
        if not end:
            return 0
        text = self.decode_reply(token_ids)
        low, high = 0, len(token_ids) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if len(self.decode_reply(token_ids[:middle])) <= end:
                low = middle
            else:
                high = middle - 1
        while low and not self._is_beginning(token_ids[:low], text[:end]):
            low -= 1
        return low

    def _is_beginning(self, token_ids: Sequence[int], text: str) -> bool:
        return text.startswith(self.decode_reply(token_ids))

    def _prompt_with_system(self, system: str, text: str) -> list[int]:
        if self._around_system is None:
            return self.prompt(f"{system.strip()}\n\n{text.strip()}")
        before, between, after = self._around_system
        return [
            *self._encode_marks(before),
            *self._encode_text(system),
            *self._encode_marks(between),
            *self._encode_text(text),
            *self._encode_marks(after),
        ]

    @cached_property
    def _around_system(self) -> tuple[str, str, str] | None:
        """The template's text around a system and a user message; None where it has no system."""
        messages = [{"role": "system", "content": _SYSTEM}, _user(_OBSERVATION)]
        try:
            before, rest = _split_once(self._template(messages), _SYSTEM)
            between, after = _split_once(rest, _OBSERVATION)
        except (TemplateError, ValueError):
            return None
        return before, between, after

    def _template(self, messages: list[dict[str, str]]) -> str:
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        assert isinstance(text, str), "one conversation renders to one text"
        return text

    def _split_turn(self) -> tuple[str, str, str]:
        """Return the template's text right after a reply, before the observation, and after it.

        The first of the three is the end-of-turn mark, which the policy samples itself.
        """
        text = self._template(
            [_user("hello"), {"role": "assistant", "content": _REPLY}, _user(_OBSERVATION)]
        )
        _, rest = _split_once(text, _REPLY)
        between, after = _split_once(rest, _OBSERVATION)
        for word in self._special_words:
            if between.startswith(word):
                return word, between[len(word) :], after
        raise ValueError(
            f"the chat template closes a reply not with a special token but with {between[:20]!r}; "
            "such a template cannot tell a model where to stop"
        )

    def _find_stop_tokens(self) -> list[int]:
        """Return the ids that end a reply, the template's own end-of-turn mark first."""
        end_of_turn = self._tokenizer.convert_tokens_to_ids(self._close_reply)
        eos = self._tokenizer.eos_token_id
        assert isinstance(end_of_turn, int), "one token has one id"
        return (
            [end_of_turn] if not isinstance(eos, int) or eos == end_of_turn else [end_of_turn, eos]
        )

    def _warn_unless_faithful(self) -> None:
        """Compare a small conversation in pieces with the template's own rendering of it."""
        first, reply, second = "a question", "an answer", "one more"
        messages = [_user(first), {"role": "assistant", "content": reply}, _user(second)]
        pieces = [*self.prompt(first), *self.reply(reply)]
        pieces += self.turn(second, reply_ids=pieces)
        whole = self._tokenizer.encode(self._template(messages), add_special_tokens=False)
        if pieces != whole:
            logger.warning(
                "%s encodes a message apart from its surroundings differently than with them; "
                "training is consistent, but prompts differ a little from the template's",
                self._tokenizer.name_or_path,
            )

    def _encode_marks(self, text: str) -> list[int]:
        if text not in self._marks:
            self._marks[text] = self._tokenizer.encode(text, add_special_tokens=False)
        return self._marks[text]

    def _encode_text(self, text: str) -> Sequence[int]:
        text = text.strip()
        is_short = len(text) <= _MAX_REMEMBERED_CHARS
        return self._encode_short(text) if is_short else self._encode_anew(text)

    def _encode_anew(self, text: str) -> tuple[int, ...]:
        if self._backend is None:
            ids = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
            return tuple(ids)
        self._backend.encode_special_tokens = True  # transformers sets it for each of its own calls
        return tuple(self._backend.encode(text, add_special_tokens=False).ids)


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """Return what encodes below transformers, whose wrapper takes as long again, or None."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    backend = tokenizer.backend_tokenizer
    return backend if backend.truncation is None and backend.padding is None else None


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _split_once(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found:
        raise ValueError(
            f"the chat template does not show message contents unchanged: {text[:80]!r}"
        )
    return before, after
