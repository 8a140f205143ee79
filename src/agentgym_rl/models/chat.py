"""Chat rendering that only appends: sampled tokens are never decoded and encoded again.

The model's chat template is rendered once, with placeholders, to find the text around a message. A
conversation is then built from three kinds of pieces, and old tokens are never touched:

    prompt    everything up to where the first reply begins
    reply     the ids that the policy sampled
    turn      the close of the reply, the observation, and the opening of the next reply

An environment's text is encoded as plain text: it cannot forge the template's markers.

With tools (`with_tools`) the prompt shows them as the template does, and the answer to a call is a
message of role `tool` if the template's rendering of one can be appended exactly.
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

from agentgym_rl.envs.base import JsonValue, ToolSchema
from agentgym_rl.models.text_encoder import TextEncoder

logger = logging.getLogger(__name__)

_REPLY, _OBSERVATION = "[[reply-text]]", "[[observation-text]]"
_SYSTEM = "[[system-text]]"
_RESULT = f'{_OBSERVATION} says "no",\nand more'
"""Shows whether a template writes a tool's answer as it is or as JSON."""
_NOT_RENDERED = (TemplateError, TypeError)
"""How templates fail that do not support a message or tools."""
_CALL_IDS = ("call00001", "call00002")
"""Nine letters and digits, as Mistral's templates demand."""


@dataclass(frozen=True, slots=True)
class _ResultTurn:
    """The template's text around the answer to a tool call, after the close of the reply.

    Example: before "\\n<|im_start|>", lead "user\\n<tool_response>\\n", tail
    "\\n</tool_response>", after "<|im_end|>\\n<|im_start|>assistant\\n"
    """

    before: str
    lead: str
    """Plain text right before the answer, encoded together with it, as is the tail."""
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
        """Tokens that end a reply: the end of turn first, then any others declared."""
        self._warn_unless_faithful()

    def with_tools(self, tools: Sequence[ToolSchema]) -> ChatRenderer:
        """Return a renderer whose prompts show these tools (JSON schemas) as the template does.

        It is this renderer if there are no tools, or if the template does not show them.
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
        """Return a renderer for which these tokens end a reply, too."""
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

    def call_text(self, name: str, arguments: Mapping[str, JsonValue]) -> str | None:
        """Return the reply that calls a tool, as the template writes it.

        None if it is not plain text: it has special tokens, or is not apart from other text.
        """
        split = self._split_call(name, arguments)
        return None if split is None else split[0]

    def prompt(self, text: str, *, system: str | None = None) -> list[int]:
        """Return the ids from the start up to where the first reply begins.

        `system` is an optional system message. A template without one gets it at the beginning of
        the text, followed by an empty line.
        """
        if system is None:
            before, after = map(self._encode_marks, (self._before_first, self._after_first))
            return [*before, *self._encode_text(text), *after]
        if self._around_system is None:
            return self.prompt(f"{system.strip()}\n\n{text.strip()}")
        before, between, after = map(self._encode_marks, self._around_system)
        return [*before, *self._encode_text(system), *between, *self._encode_text(text), *after]

    def turn(
        self, observation: str, *, reply_ids: Sequence[int], is_result: bool = False
    ) -> list[int]:
        """Return the ids that follow a reply: its close, the observation, the next reply's opening.

        `is_result` says that the observation answers a tool call (see `result_role`).

        A reply that ends with the end-of-turn token was closed by the policy itself; one that the
        token limit cut is closed here, by a token that was not sampled.
        """
        end_of_turn = self.stop_token_ids[0]
        is_closed = bool(reply_ids) and reply_ids[-1] == end_of_turn
        result_turn = self._result_turn if is_result else None
        before, after = self._before_next, self._after_next
        if result_turn is not None:
            before, after = result_turn.before, result_turn.after
        return [
            *([] if is_closed else [end_of_turn]),
            *self._encode_marks(before),
            *self._encoder.ids(_turn_text(observation, result_turn)),
            *self._encode_marks(after),
        ]

    async def encode_soon(self, text: str, *, is_result: bool = False) -> None:
        """Encode a text together with those of other episodes; `prompt` or `turn` is then quick."""
        await self._encoder.ids_soon(_turn_text(text, self._result_turn if is_result else None))

    def reply(self, text: str) -> list[int]:
        """Return the ids of a reply given as text (a demonstration), with its stop token."""
        return [*self._encode_text(text), self.stop_token_ids[0]]

    def decode_reply(self, token_ids: Sequence[int]) -> str:
        """Return the text of a sampled reply without its stop token."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        # transformers is slower, and needed only where it changes the text afterwards.
        if self._backend is None or self._tokenizer.clean_up_tokenization_spaces:
            return str(self._tokenizer.decode(ids, skip_special_tokens=False))
        return self._backend.decode(ids, skip_special_tokens=False)

    def num_tokens_before(self, token_ids: Sequence[int], end: int) -> int:
        """Return how many of a reply's first tokens lie before character `end` of its text.

        A token across the border, or with a part of a character, lies after it, as does the last
        token in any case. Found by decoding prefixes: nothing is encoded.
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
        while low and not text[:end].startswith(self.decode_reply(token_ids[:low])):
            low -= 1
        return low

    @cached_property
    def _around_system(self) -> tuple[str, str, str] | None:
        """The template's text around a system and a user message; None without a system role."""
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
        """The text around the answer to a call; None if it cannot be appended exactly."""
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

    def _split_call(self, name: str, arguments: Mapping[str, JsonValue]) -> tuple[str, str] | None:
        """Return a call as the template writes it, and what follows its close."""
        try:
            text, other = (self._render_call(name, arguments, id_) for id_ in _CALL_IDS)
        except _NOT_RENDERED:
            return None
        prompt = self._before_first + "hello" + self._after_first
        # If the template shows the id of a call, only the policy could know it.
        if text != other or not text.startswith(prompt):
            return None
        call, close, rest = text[len(prompt) :].partition(self._close_reply)
        if not close or any(word in call for word in self._markers):
            return None
        return call.strip(), rest

    def _render_call(self, name: str, arguments: Mapping[str, JsonValue], call_id: str) -> str:
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
            messages,  # pyrefly: ignore[bad-argument-type] - its type has only texts, not calls
            tools=[dict(tool) for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=True,
        )
        assert isinstance(text, str), "one conversation renders to one text"
        return text

    def _split_turn(self) -> tuple[str, str, str]:
        """Return the template's text right after a reply, before the observation, and after it.

        The first is the end-of-turn mark, which the policy samples itself. Tools are left out:
        some templates show them again before the user's latest message.
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
            f"the chat template closes a reply with {between[:20]!r}, not with a special token, so "
            "the model would not know where to stop: use another model or template"
        )

    def _find_stop_tokens(self) -> list[int]:
        """Return the ids that end a reply, the template's own end-of-turn mark first."""
        end_of_turn = self._tokenizer.convert_tokens_to_ids(self._close_reply)
        eos = self._tokenizer.eos_token_id
        assert isinstance(end_of_turn, int), "one token has one id"
        return [end_of_turn, eos] if isinstance(eos, int) and eos != end_of_turn else [end_of_turn]

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
                "%s encodes a message by itself differently than within a conversation; training "
                "is consistent, but prompts differ a little from the template's",
                self._tokenizer.name_or_path,
            )

    def _encode_marks(self, text: str) -> list[int]:
        if text not in self._marks:
            self._marks[text] = self._tokenizer.encode(text, add_special_tokens=False)
        return self._marks[text]

    def _encode_text(self, text: str) -> Sequence[int]:
        return self._encoder.ids(text.strip())


def _turn_text(observation: str, result_turn: _ResultTurn | None) -> str:
    return observation.strip() if result_turn is None else result_turn.around(observation)


def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """Return the tokenizer that transformers wraps, which is twice as fast, or None."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return None
    backend = tokenizer.backend_tokenizer
    return backend if backend.truncation is None and backend.padding is None else None


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _as_json(text: str) -> str:
    """Return a text as JSON without its quotes, as the templates' `tojson` writes it."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _split_once(text: str, mark: str) -> tuple[str, str]:
    before, found, after = text.partition(mark)
    if not found:
        raise ValueError(
            f"the chat template does not show message contents unchanged: {text[:80]!r}"
        )
    return before, after
