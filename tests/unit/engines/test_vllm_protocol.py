"""What vLLM answers is believed only if it is a reply to the question, in exact tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from agentgym_rl.engines.vllm.protocol import CompletionRequest, read_answer
from agentgym_rl.errors import EngineError
from agentgym_rl.types import SamplingParams
from vllm_stand_in import RECORDED


def question(**changes: float | int) -> CompletionRequest:
    params = SamplingParams(**({"max_tokens": 4} | changes))
    return CompletionRequest([5, 6, 7, 8], params, seed=-5, stop_ids=frozenset({2}))


def changed(change: Callable[[dict], object]) -> bytes:
    answer = json.loads(RECORDED)
    change(answer)
    return json.dumps(answer).encode()


def test_a_recorded_answer_is_read_exactly():
    reply = read_answer(RECORDED.encode(), question(), version=7)
    assert reply.token_ids == (265, 94, 156, 258)
    assert reply.logprobs[0] == -5.123708724975586
    assert not reply.is_stopped
    assert reply.version == 7


def test_a_stop_token_ends_a_reply():
    def stop(answer: dict) -> None:
        answer["choices"][0]["logprobs"] = {
            "tokens": ["token_id:9", "token_id:2"],
            "token_logprobs": [-1.0, -2.0],
        }

    reply = read_answer(changed(stop), question(), version=0)
    assert reply.token_ids == (9, 2)
    assert reply.is_stopped


def test_a_stop_text_ends_a_reply():
    params = SamplingParams(max_tokens=9, stop=("wall",))
    asked = CompletionRequest([5, 6, 7, 8], params, seed=-5, stop_ids=frozenset({2}))
    assert asked.body("policy")["stop"] == ["wall"]
    stopped = changed(lambda answer: answer["choices"][0].update(finish_reason="stop"))
    reply = read_answer(stopped, asked, version=0)
    assert len(reply.token_ids) == 4
    assert reply.is_stopped
    with pytest.raises(EngineError, match=r"ended early \(length\), after 4"):
        read_answer(RECORDED.encode(), asked, version=0)


def test_the_most_likely_token_is_certain_at_temperature_0():
    assert read_answer(RECORDED.encode(), question(temperature=0), version=0).logprobs == (0.0,) * 4


def test_every_setting_is_sent():
    body = question(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1).body("policy")
    assert body == {
        "model": "policy",
        "prompt": [5, 6, 7, 8],
        "max_tokens": 4,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "repetition_penalty": 1.0,
        "seed": -5,
        "stop_token_ids": [2],
        "ignore_eos": True,
        "stop": [],
        "logprobs": 0,
        "return_tokens_as_token_ids": True,
    }


def logprobs_of(answer: dict) -> dict:
    return answer["choices"][0]["logprobs"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda a: a["usage"].update(prompt_tokens=5), "it read 5 tokens, but 4 were sent"),
        (lambda a: logprobs_of(a)["token_logprobs"].pop(), "4 tokens have 3 log-prob"),
        (lambda a: logprobs_of(a).update(tokens=[], token_logprobs=[]), "0 tokens have 0"),
        (lambda a: logprobs_of(a)["token_logprobs"].__setitem__(1, math.nan), "not all"),
        (lambda a: logprobs_of(a)["token_logprobs"].__setitem__(1, None), "not all"),
        (lambda a: logprobs_of(a)["token_logprobs"].__setitem__(3, -9999.0), "not all"),
        (
            lambda a: logprobs_of(a)["tokens"].__setitem__(1, "token_id:2"),
            "after a limit or a stop",
        ),
        (lambda a: logprobs_of(a)["tokens"].__setitem__(1, "go"), "cannot be used"),
        (lambda a: a["choices"].append(a["choices"][0]), "cannot be used"),
        (lambda a: a.pop("usage"), "cannot be used"),
    ],
)
def test_what_is_no_reply_to_the_question_is_refused(
    change: Callable[[dict], object], complaint: str
):
    with pytest.raises(EngineError, match=complaint):
        read_answer(changed(change), question(), version=0)


def test_a_reply_of_another_length_is_refused():
    with pytest.raises(EngineError, match=r"ended early \(length\), after 4"):
        read_answer(RECORDED.encode(), question(max_tokens=9), version=0)
    with pytest.raises(EngineError, match="4 tokens continue"):
        read_answer(RECORDED.encode(), question(max_tokens=3), version=0)


def test_what_is_no_json_is_refused():
    with pytest.raises(EngineError, match="Bad Gateway"):
        read_answer(b"<html>Bad Gateway</html>", question(), version=0)
