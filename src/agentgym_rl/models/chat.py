"""Chat rendering that only ever appends: what was sampled is never decoded and encoded again.

The model's own chat template is asked once, with placeholders, for the text around a message. A
conversation is then built from three kinds of pieces, and old tokens are never touched:

    prompt    everything up to the place where the first reply begins
    reply     the ids that the policy sampled, as they are
    turn      the close of the reply, the observation, and the opening of the next reply

Text that an environment sends is encoded as plain text: it cannot forge the template's markers.

With tools (`with_tools`) the prompt is what the template makes of them, and the answer to a call is
a message of role `tool`, where the template's rendering of one can be appended exactly.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from agentgym_rl.envs.base import ToolSchema
from agentgym_rl.models.text_encoder import TextEncoder

logger = logging.getLogger(__name__)

_REPLY, _OBSERVATION = "[[reply-text]]", "[[observation-text]]"
_SYSTEM = "[[system-text]]"
_RESULT = f'{_OBSERVATION} says "no",\nand more'
"""Shows whether a template writes a tool's answer as it is or as JSON."""
_NOT_RENDERED = (TemplateError, TypeError)
"""How templates fail that were not made for a message or for tools."""
_CALL_IDS = ("call00001", "call00002")
"""Of nine letters and digits, as Mistral's templates want them."""


@dataclass(frozen=True, slots=True)
class _ResultTurn:
    """The template's text around the answer to a tool call, after the close of the reply.

    Example: before "\\n<|im_start|>", lead "user\\n<tool_response>\\n", tail
    "\\n</tool_response>", after "<|im_end|>\\n<|im_start|>assistant\\n"
    """

    before: str
    lead: str
    """Plain text right before the answer; it is encoded together with it, as is the tail."""
    tail: str
    after: str
    is_json: bool

    def around(self, observation: str) -> str:
        text = observation.strip()
        return self.lead + (_as_json(text) if self.is_json else text) + self.tail


class ChatRenderer:
    """Renders the messages of one model's conversations to token ids."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, *, tools: Sequence[ToolSchema] = ()
    ) -> None:
        if tokenizer.chat_template is None:
            raise ValueError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; use an "
                "instruct model, or set tokenizer.chat_template and save it again"
            )
        self._tokenizer, self._tools = tokenizer, list(tools)
        self._backend = _backend(tokenizer)
        self._marks: dict[str, list[int]] = {}
        self._encoder = TextEncoder(tokenizer, self._backend)
        self._special_words = sorted(map(str, tokenizer.get_added_vocab()), key=len, reverse=True)
        first = self._template([_user(_OBSERVATION)], tools=self._tools)
        self._before_first, self._after_first = _split_once(first, _OBSERVATION)
        self._close_reply, self._before_next, self._after_next = self._split_turn()
        self.stop_token_ids = self._find_stop_tokens()
        """What ends a reply: the end of turn first, then whatever else was declared."""
        self._warn_unless_faithful()

    def with_tools(self, tools: Sequence[ToolSchema]) -> ChatRenderer:
        """Return a renderer whose prompts show these tools (JSON schemas) as the template does.

        Where there are none, or the template does not show them, it is this one.
        """
        if not tools:
            return self
        messages = [_user(_OBSERVATION)]
        try:
            text = self._template(messages, tools=tools)
        except _NOT_RENDERED:
            return self
        if text == self._template(messages) or _OBSERVATION not in text:
            return self
        return ChatRenderer(self._tokenizer, tools=tools).with_stops(self.stop_token_ids)

    def with_stops(self, token_ids: Iterable[int]) -> ChatRenderer:
        """Return a renderer for replies that these tokens end as well."""
        renderer = copy(self)
        renderer.stop_token_ids = list(dict.fromkeys([*self.stop_token_ids, *sorted(token_ids)]))
        return renderer

    @property
    def shows_tools(self) -> bool:
        """Whether prompts show tools."""
        return bool(self._tools)

    @property
    def result_role(self) -> str:
        """The role of the message that answers a tool call: "tool" or "user"."""
        return "user" if self._result_turn is None else "tool"

    def call_text(self, name: str, arguments: Mapping[str, str]) -> str | None:
        """Return the reply that calls a tool as the template writes it.

        None where that cannot be said as text: it has special tokens, or no place of its own.
        """
        split = self._split_call(name, arguments)
        return None if split is None else split[0]

    def prompt(self, text: str, *, system: str | None = None) -> list[int]:
        """Return the ids from the start up to where the first reply begins.

        `system` is a system message to begin with. A template that has none gets it as the
        beginning of the text, with an empty line between.
        """
        if system is not None:
            return self._prompt_with_system(system, text)
        return self._prompt_of(self._encoder.ids(text.strip()))

    async def prompt_soon(self, text: str) -> list[int]:
        """Return what `prompt` does, encoded together with what other episodes wait for."""
        return self._prompt_of(await self._encoder.ids_soon(text.strip()))

    def turn(
        self, observation: str, *, reply_ids: Sequence[int], is_result: bool = False
    ) -> list[int]:
        """Return the ids that follow a reply: its close, the observation, the next reply's opening.

        `is_result` says that the observation answers a tool call (see `result_role`).

        A reply that ends with the end-of-turn token was closed by the policy itself; one that the
        token limit cut is closed here, by a token that was not sampled.
        """
        result_turn = self._result_turn if is_result else None
        ids = self._encoder.ids(_turn_text(observation, result_turn))
        return self._turn_of(ids, reply_ids, result_turn)

    async def turn_soon(
        self, observation: str, *, reply_ids: Sequence[int], is_result: bool = False
    ) -> list[int]:
        """Return what `turn` does, encoded together with what other episodes wait for."""
        result_turn = self._result_turn if is_result else None
        ids = await self._encoder.ids_soon(_turn_text(observation, result_turn))
        return self._turn_of(ids, reply_ids, result_turn)

    def reply(self, text: str) -> list[int]:
        """Return the ids of a reply given as text (a demonstration), with its stop token."""
        return [*self._encode_text(text), self.stop_token_ids[0]]

    def decode_reply(self, token_ids: Sequence[int]) -> str:
        """Return the text of a sampled reply without its stop token."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        # transformers looks at every id first. It is needed where it changes the text afterwards.
        if self._backend is None or self._tokenizer.clean_up_tokenization_spaces:
            return str(self._tokenizer.decode(ids, skip_special_tokens=False))
        return self._backend.decode(ids, skip_special_tokens=False)

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

    def _prompt_of(self, ids: Sequence[int]) -> list[int]:
        before, after = map(self._encode_marks, (self._before_first, self._after_first))
        return [*before, *ids, *after]

    def _turn_of(
        self, ids: Sequence[int], reply_ids: Sequence[int], result_turn: _ResultTurn | None
    ) -> list[int]:
        end_of_turn = self.stop_token_ids[0]
        is_closed = bool(reply_ids) and reply_ids[-1] == end_of_turn
        before, after = self._before_next, self._after_next
        if result_turn is not None:
            before, after = result_turn.before, result_turn.after
        return [
            *([] if is_closed else [end_of_turn]),
            *self._encode_marks(before),
            *ids,
            *self._encode_marks(after),
        ]

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
            before, rest = _split_once(self._template(messages, tools=self._tools), _SYSTEM)
            between, after = _split_once(rest, _OBSERVATION)
        except (TemplateError, ValueError):
            return None
        return before, between, after

    @cached_property
    def _markers(self) -> list[str]:
        """The words that text cannot write; `all_special_tokens` need not have all of them."""
        return [str(word) for word in self._tokenizer.added_tokens_decoder.values() if word.special]

    @cached_property
    def _result_turn(self) -> _ResultTurn | None:
        """What is around the answer to a call; None where it cannot be appended exactly."""
        split = self._split_call("act", {"action": "go"}) if self._tools else None
        if split is None:
            return None
        for is_json in (False, True):
            before, found, after = split[1].partition(_as_json(_RESULT) if is_json else _RESULT)
            if found:
                words = self._markers
                start = max((before.rfind(w) + len(w) for w in words if w in before), default=0)
                end = min((after.find(w) for w in words if w in after), default=len(after))
                return _ResultTurn(
                    before[:start], before[start:], after[:end], after[end:], is_json
                )
        return None

    def _split_call(self, name: str, arguments: Mapping[str, str]) -> tuple[str, str] | None:
        """Return a call as the template writes it, and what follows its close."""
        try:
            text, other = (self._render_call(name, arguments, id_) for id_ in _CALL_IDS)
        except _NOT_RENDERED:
            return None
        prompt = self._before_first + "hello" + self._after_first
        # Of an id that the template shows, only the policy could know what it should be.
        if text != other or not text.startswith(prompt):
            return None
        call, close, rest = text[len(prompt) :].partition(self._close_reply)
        if not close or any(word in call for word in self._markers):
            return None
        return call.strip(), rest

    def _render_call(self, name: str, arguments: Mapping[str, str], call_id: str) -> str:
        function = {"name": name, "arguments": dict(arguments)}
        call = {"id": call_id, "type": "function", "function": function}
        result = {"role": "tool", "tool_call_id": call_id, "name": name, "content": _RESULT}
        return self._template(
            [_user("hello"), {"role": "assistant", "content": "", "tool_calls": [call]}, result],
            tools=self._tools,
        )

    def _template(
        self, messages: Sequence[Mapping[str, object]], *, tools: Sequence[ToolSchema] = ()
    ) -> str:
        text = self._tokenizer.apply_chat_template(
            messages,  # pyrefly: ignore[bad-argument-type] - its type knows texts alone, not calls
            tools=[dict(tool) for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=True,
        )
        assert isinstance(text, str), "one conversation renders to one text"
        return text

    def _split_turn(self) -> tuple[str, str, str]:
        """Return the template's text right after a reply, before the observation, and after it.

        The first of the three is the end-of-turn mark, which the policy samples itself. Tools are
        left out: some templates show them anew before the latest of the user's messages.
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
        text = self._template(messages, tools=self._tools)
        whole = self._tokenizer.encode(text, add_special_tokens=False)
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
        return self._encoder.ids(text.strip())


def _turn_text(observation: str, result_turn: _ResultTurn | None) -> str:
    """Return the text that is encoded for an observation."""
    return observation.strip() if result_turn is None else result_turn.around(observation)


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """Return what works below transformers, whose wrapper takes as long again, or None."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    backend = tokenizer.backend_tokenizer
    return backend if backend.truncation is None and backend.padding is None else None


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _as_json(text: str) -> str:
    """Return a text as it is between the quotes of JSON, in the way of the templates' `tojson`."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _split_once(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found:
        raise ValueError(
            f"the chat template does not show message contents unchanged: {text[:80]!r}"
        )
    return before, after
