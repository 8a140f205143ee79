"""Endpoints that lie, stall, flood and point elsewhere: a request fails in time, and only it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig, OpenAIEngineConfig
from agentgym_rl.engines.base import TextCompletion
from agentgym_rl.engines.openai.engine import OpenAIEngine
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError, EngineError
from agentgym_rl.rollout.episode import EpisodeSpec, Participants, TextPolicy, run_episode
from agentgym_rl.types import Episode, Message, SamplingParams, StopReason, Task
from fake_engines import make_limits
from fakes import CountingEnv

Writer = asyncio.StreamWriter
Attack = bytes | Callable[[Writer], Awaitable[None]]
"""What follows a request: bytes, or whatever is done to the connection."""

DEADLINE_S = 30.0
STALL_S = 0.3
"""Deadline where it is waited for."""
MEBIBYTE = 1 << 20


@pytest.fixture(autouse=True)
def no_long_pauses_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("agentgym_rl.engines.openai.engine._FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("agentgym_rl.engines.openai.engine._MAX_PAUSE_S", 0.05)


class Endpoint:
    """A server on a real socket that answers its n-th request with the n-th attack.

    The last serves all later requests.
    """

    def __init__(self, *attacks: Attack) -> None:
        self._attacks = attacks
        self.num_requests = 0
        self.bytes_sent = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            await reader.readexactly(length)
            attack = self._attacks[min(self.num_requests, len(self._attacks) - 1)]
            self.num_requests += 1
            if isinstance(attack, bytes):
                writer.write(attack)
                await writer.drain()
            else:
                await attack(writer)
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Endpoint]:
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()


def http(body: bytes | str, *headers: str, status: str = "200 OK") -> bytes:
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(raw)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + raw


def chat(content: object = "Action: add 3", reason: str | None = "stop", **more: object) -> bytes:
    message = {"role": "assistant", "content": content, **more}
    return http(json.dumps({"choices": [{"message": message, "finish_reason": reason}]}))


def endless(piece: bytes, *, pause_s: float = 0.0) -> Callable[[Writer], Awaitable[None]]:
    """Return an answer that goes on until nobody listens any more."""

    async def attack(writer: Writer) -> None:
        while not writer.is_closing():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return attack


async def silence(writer: Writer) -> None:
    await asyncio.sleep(60)


async def hang_up(writer: Writer) -> None:
    writer.transport.abort()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BOMB = gzip.compress(b"0" * 64 * MEBIBYTE)


async def drip(writer: Writer) -> None:
    writer.write(CHUNKED)
    await endless(b"1\r\n \r\n", pause_s=0.01)(writer)


async def flood(writer: Writer) -> None:
    writer.write(CHUNKED)
    await endless(b"10000\r\n" + b" " * 0x10000 + b"\r\n")(writer)


ATTACKS: dict[str, Attack] = {
    "nothing": b"",
    "silence": silence,
    "hangs up": hang_up,
    "not HTTP": b"220 mail.example ESMTP\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "endless headers": endless(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100, pause_s=0.01),
    "one long header": http("{}", "X-A: " + "b" * 300_000),
    "fewer bytes than promised": http(b"{}").replace(b"Length: 2", b"Length: 200"),
    "two lengths": http(b"{}", "Content-Length: 7"),
    "slow drip": drip,
    "flood": flood,
    "broken chunks": CHUNKED + b"zz\r\n{}\r\n",
    "empty body": http(b""),
    "no content (204)": http(b"", status="204 No Content"),
    "HTML": http("<html>Please log in</html>", "Content-Type: text/html"),
    "an event stream": http('data: {"choices": []}\n\ndata: [DONE]\n\n'),
    "half a JSON": http('{"choices": [{"message": {"content": "Action: add'),
    "NUL bytes": http(b"\x00" * 100),
    "not UTF-8": http(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "a lone surrogate": http('{"choices": [{"message": {"content": "\\ud800"}}]}'),
    "null": http("null"),
    "a list": http("[]"),
    "an error in a 200": http('{"error": {"message": "overloaded", "code": 529}}'),
    "no choices": http("{}"),
    "choices are null": http('{"choices": null}'),
    "choices are empty": http('{"choices": []}'),
    "choices are a text": http('{"choices": "Action: add 3"}'),
    "no message": http('{"choices": [{}]}'),
    "message is a text": http('{"choices": [{"message": "Action: add 3"}]}'),
    "content is a number": chat(3),
    "content is a list": chat([{"type": "text", "text": "Action: add 3"}]),
    "calls without a function": chat(None, "tool_calls", tool_calls=[{"id": "1"}]),
    "finish_reason is a list": http('{"choices": [{"message": {}, "finish_reason": ["stop"]}]}'),
    "deep lists": http("[" * 200_000),
    "deep in an unused place": http(
        '{"choices": [{"message": {"content": "x"}}], "x": ' + "[" * 9000 + "]" * 9000 + "}"
    ),
    "a number of 100,000 digits": http('{"choices": ' + "9" * 100_000 + "}"),
    "content_filter": chat("Action: add", "content_filter"),
    "null content": chat(None),
    "a refusal": chat(None, "stop", refusal="I cannot help with that."),
    "a gzip bomb": http(BOMB, "Content-Encoding: gzip"),
    "an unknown packing": http("xxxx", "Content-Encoding: br"),
    "500 with deep lists": http("[" * 200_000, status="500 Oops"),
    "429 for ever": http("{}", "Retry-After: 1e300", status="429 Slow"),
    "429 not a number": http("{}", "Retry-After: nan", status="429 Slow"),
    "429 minus one": http("{}", "Retry-After: -1", status="429 Slow"),
}


STALLS = ("silence", "slow drip", "endless headers")


def make_engine(endpoint: Endpoint, max_retries: int = 1, **settings: object) -> OpenAIEngine:
    settings = {"timeout_s": DEADLINE_S} | settings
    engine = OpenAIEngine("model", OpenAIEngineConfig(url=endpoint.url, **settings))
    engine.max_retries = max_retries
    return engine


async def ask(endpoint: Endpoint, **settings: object) -> TextCompletion:
    engine = make_engine(endpoint, **settings)
    try:
        return await engine.reply([Message("user", "hi")], SamplingParams(0.0, 32), seed=1)
    finally:
        await engine.close()


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_answer_fails_its_request_in_time(name: str):
    async with Endpoint(ATTACKS[name]).running() as endpoint:
        began = time.monotonic()
        with pytest.raises(EngineError) as failure:
            await ask(endpoint, timeout_s=STALL_S if name in STALLS else DEADLINE_S)
        assert time.monotonic() - began < 20.0, "two short deadlines at most"
    assert endpoint.num_requests == 2, "it is asked again, and not for ever"
    assert len(str(failure.value)) < 1000


@pytest.mark.parametrize("name", ATTACKS)
async def test_the_request_is_repeated_and_not_the_episode(name: str):
    async with Endpoint(ATTACKS[name], chat()).running() as endpoint:
        reply = await ask(endpoint, timeout_s=1.0 if name in STALLS else DEADLINE_S)
    assert (reply.text, reply.is_cut) == ("Action: add 3", False)
    assert endpoint.num_requests == 2


async def test_no_more_is_read_than_an_answer_may_have(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("agentgym_rl.engines.openai.engine._MAX_ANSWER_BYTES", MEBIBYTE)
    sent = list[int]()

    async def counted(writer: Writer) -> None:
        writer.write(CHUNKED)
        while not writer.is_closing():
            writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            await writer.drain()
            sent.append(0x10000)

    async with Endpoint(counted).running() as endpoint:
        with pytest.raises(EngineError, match="more than 1048576 bytes"):
            await ask(endpoint, timeout_s=30.0, max_retries=0)
    assert sum(sent) < 16 * MEBIBYTE, "the limit, and what sockets hold"


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_not_followed(status: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    async with Endpoint(chat()).running() as elsewhere:
        answer = http(b"", f"Location: {elsewhere.url}/chat/completions", status=status)
        async with Endpoint(answer).running() as endpoint:
            with pytest.raises(ConfigError, match="redirects to 'http://127"):
                await ask(endpoint)
    assert elsewhere.num_requests == 0


@pytest.mark.parametrize(
    "usage",
    [
        '{"prompt_tokens": -5, "completion_tokens": -1}',
        '{"prompt_tokens": "many", "completion_tokens": "few"}',
        '{"prompt_tokens": 1e300, "completion_tokens": 1}',
        '{"prompt_tokens": 99999999999, "completion_tokens": 1}',
        '{"prompt_tokens": null, "completion_tokens": null}',
        '"none"',
        "[]",
    ],
)
async def test_counts_that_cannot_be_right_are_taken_as_not_told(usage: str):
    body = '{"choices": [{"message": {"content": "hi"}}], "usage": ' + usage + "}"
    async with Endpoint(http(body)).running() as endpoint:
        reply = await ask(endpoint)
    assert (reply.text, reply.num_prompt_tokens, reply.num_tokens) == ("hi", None, None)


@pytest.mark.parametrize("logprobs", ["3", '{"content": 3}', '{"content": [{"logprob": NaN}]}'])
async def test_log_probabilities_that_are_none_are_taken_as_not_told(logprobs: str):
    body = '{"choices": [{"message": {"content": "hi"}, "logprobs": ' + logprobs + "}]}"
    async with Endpoint(http(body)).running() as endpoint:
        assert (await ask(endpoint)).logprobs == ()


async def test_the_reason_of_the_end_is_read():
    call = {"id": "1", "function": {"name": "act", "arguments": '{"action": "go"}'}}
    answers = (chat("go to 1", "length"), chat(None, "length"), chat("", "stop"),
               chat("So:", "tool_calls", tool_calls=[call]))  # fmt: skip
    async with Endpoint(*answers).running() as endpoint:
        replies = [await ask(endpoint) for _ in answers]
    assert [reply.is_cut for reply in replies] == [True, True, False, False]
    assert [reply.text for reply in replies[:3]] == ["go to 1", "", ""]
    agent = Agent(AgentConfig(format="function_call"), CountingEnv.spec)
    assert agent.parse(replies[3].text).action == "go"


async def play(endpoint: Endpoint) -> Episode:
    engine = make_engine(endpoint)
    try:
        async with LocalEnvSource(CountingEnv, timeout_s=30.0) as source:
            agent = Agent(AgentConfig(include_instructions=False), CountingEnv.spec)
            participants = Participants(source, agent, TextPolicy(engine))
            request = EpisodeSpec(Task("counting", "train", 2), 0, ())
            return await run_episode(request, participants, make_limits(max_restarts=1))
    finally:
        await engine.close()


@pytest.mark.parametrize("name", ["content_filter", "null content", "a refusal", "no choices"])
async def test_a_reply_that_never_comes_is_no_failure_of_the_agent(name: str):
    async with Endpoint(chat("Action: add 1"), ATTACKS[name]).running() as endpoint:
        episode = await play(endpoint)
    assert (episode.stop_reason, episode.reward) == (StopReason.ENGINE_ERROR, None)
    assert episode.num_restarts == 1 and episode.num_invalid_actions == 0


async def test_a_withheld_reply_in_the_middle_costs_a_request_and_nothing_else():
    answers = (chat("Action: add 1"), ATTACKS["content_filter"], chat("Action: add 2"))
    async with Endpoint(*answers).running() as endpoint:
        episode = await play(endpoint)
    assert (episode.stop_reason, episode.num_restarts) == (StopReason.SUCCESS, 0)
    assert [round_.action for round_ in episode.rounds] == ["add 1", "add 2"]
    assert endpoint.num_requests == 3
