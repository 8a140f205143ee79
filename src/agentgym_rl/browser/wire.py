"""The messages between Playwright and one browser, which pass through here: `Wire`.

Playwright's own process takes and gives every message of the protocol as JSON, and trees of pages
are large: what it took to pass them on was more than half of a round. So this process holds the
browser's pipes. What Playwright says goes on to the browser and the other way round, and `Speaker`
puts requests of ours in between, on the protocol session that Playwright has of a page anyway.
Events of a page that only we need are kept from Playwright (`Speaker.keep`).
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

import orjson
from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser import hand_over
from agentgym_rl.frozen import JsonValue

_OUR_FIRST = 1 << 30
"""Numbers of our requests begin here; Playwright counts from 1."""
_END = b"\0"
_ANSWER = b'{"id":'
_EVENT = b'{"method":"'
_SESSION = b'"sessionId":"'
_PIPE_BYTES = 1 << 20
_ENDING_LENGTH = 80
"""Of a message's last part, where the browser writes the session."""

Json = Mapping[str, JsonValue]
Listener = Callable[[Json], None]


class ProtocolError(PlaywrightError):
    """The browser refused a request of ours, or has ended."""


class Speaker:
    """Asks one page of a browser for something, and hears its events."""

    def __init__(self, wire: Wire, session: bytes) -> None:
        self._wire = wire
        self._session = session
        self.listeners: dict[bytes, Listener] = {}
        self.kept: tuple[bytes, ...] = ()
        self.waiting: set[int] = set()

    async def send(self, method: str, parameters: Mapping[str, object] | None = None) -> Json:
        """Ask, and return the answer. Raises ProtocolError where the browser refuses."""
        number, answer = self._wire.ask(self._session, method, parameters or {})
        self.waiting.add(number)
        try:
            return await answer
        finally:
            self.waiting.discard(number)

    @property
    def is_open(self) -> bool:
        """Whether the browser runs."""
        return self._wire.is_open

    def on(self, event: str, listener: Listener) -> None:
        """Call a function for every event of a kind."""
        self.listeners[event.encode()] = listener

    def keep(self, domains: Iterable[str]) -> None:
        """Keep the events of some domains ("Network") from Playwright."""
        self.kept = tuple(f"{domain}.".encode() for domain in domains)


class Wire:
    """Passes the messages of one browser on. Make one before the browser, then `connect`."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="agentgym-browser-")
        self._listening = socket.socket(socket.AF_UNIX)
        self._address = Path(self._folder.name) / "wire"
        self._listening.bind(str(self._address))
        self._listening.listen(1)
        self._numbers = itertools.count(_OUR_FIRST)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._sessions: dict[str, bytes] = {}
        """Target -> Playwright's session of it."""
        self._speakers: dict[bytes, Speaker] = {}
        self._to_browser: asyncio.WriteTransport | None = None
        self._to_playwright: asyncio.WriteTransport | None = None
        self._ends: list[asyncio.BaseTransport] = []

    def program(self, browser: Path) -> Path:
        """Return what Playwright must start instead of the browser."""
        words = [sys.executable, "-SE", hand_over.__file__, str(self._address), str(browser)]
        script = Path(self._folder.name) / "browser"
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        script.chmod(0o700)
        return script

    async def connect(self, timeout_s: float) -> None:
        """Wait for the browser's start and take its pipes over."""
        self._listening.settimeout(timeout_s)
        asked, told, to_browser, from_browser = await asyncio.to_thread(self._swap)
        self._folder.cleanup()
        loop = asyncio.get_running_loop()
        self._to_browser, _ = await loop.connect_write_pipe(_Messages, os.fdopen(to_browser, "wb"))
        self._to_playwright, _ = await loop.create_unix_connection(_Messages, sock=told)
        asking, _ = await loop.create_unix_connection(
            lambda: _Messages(self._on_asked, self.close), sock=asked
        )
        telling, _ = await loop.connect_read_pipe(
            lambda: _Messages(self._on_told, self.close), os.fdopen(from_browser, "rb")
        )
        self._ends = [self._to_browser, self._to_playwright, asking, telling]

    def _swap(self) -> tuple[socket.socket, socket.socket, int, int]:
        """Give the browser new pipes for Playwright's, and return those and the ends of ours."""
        with self._listening:
            other, _ = self._listening.accept()
        with other:
            _, given, _, _ = socket.recv_fds(other, 1, 2)
            (for_reading, to_browser), (from_browser, for_writing) = os.pipe(), os.pipe()
            if hasattr(fcntl, "F_SETPIPE_SZ"):  # Linux: a tree then comes in a few pieces
                fcntl.fcntl(from_browser, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            socket.send_fds(other, [b"."], [for_reading, for_writing])
        os.close(for_reading)
        os.close(for_writing)
        asked, told = (socket.socket(fileno=end) for end in given)
        return asked, told, to_browser, from_browser

    @property
    def is_open(self) -> bool:
        """Whether the browser runs, as far as is known here."""
        return self._to_browser is not None and not self._to_browser.is_closing()

    def speaker(self, target: str) -> Speaker:
        """Return who speaks to a page. Raises ProtocolError where there is no such page."""
        session = self._sessions.get(target)
        if session is None:
            raise ProtocolError("the page is gone")
        return self._speakers.setdefault(session, Speaker(self, session))

    def ask(
        self, session: bytes, method: str, parameters: Mapping[str, object]
    ) -> tuple[int, asyncio.Future[Json]]:
        """Send a request and return its number and its answer to come."""
        if self._to_browser is None or not self.is_open:
            raise ProtocolError("the browser has ended")
        number = next(self._numbers)
        message = {
            "id": number,
            "method": method,
            "params": parameters,
            "sessionId": session.decode(),
        }
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._to_browser.write(json.dumps(message).encode() + _END)
        return number, answer

    def close(self) -> None:
        """End the talk: the browser ends, and Playwright sees that it has ended."""
        for end in self._ends:
            end.close()
        self._fail(list(self._answers), "the browser has ended")

    def _on_asked(self, message: bytes) -> None:
        assert self._to_browser is not None
        self._to_browser.write(message + _END)

    def _on_told(self, message: bytes) -> None:
        """Take what is for us, and pass the rest on to Playwright."""
        if message.startswith(_ANSWER):
            number = int(message[len(_ANSWER) : message.index(b",")])
            if number >= _OUR_FIRST:
                self._on_answer(number, message)
                return
        elif message.startswith(_EVENT) and self._on_event(message):
            return
        assert self._to_playwright is not None
        self._to_playwright.write(message + _END)

    def _on_answer(self, number: int, message: bytes) -> None:
        answer = self._answers.pop(number, None)
        if answer is None or answer.done():
            return
        content = _parsed(message)
        error = content.get("error")
        if error is None:
            answer.set_result(cast(Json, content["result"]))
        else:
            answer.set_exception(ProtocolError(str(cast(Json, error)["message"])))

    def _on_event(self, message: bytes) -> bool:
        """Tell our listeners; return whether Playwright does not hear of it."""
        method = message[len(_EVENT) : message.index(b'"', len(_EVENT))]
        if method.startswith(b"Target."):
            self._on_target(method, message)
            return False
        speaker = self._speakers.get(_session_of(message))
        if speaker is None:
            return False
        listener = speaker.listeners.get(method)
        if listener is not None:
            listener(cast(Json, _parsed(message)["params"]))
        return method.startswith(speaker.kept)

    def _on_target(self, method: bytes, message: bytes) -> None:
        if method == b"Target.attachedToTarget":
            told = cast(Json, _parsed(message)["params"])
            target = str(cast(Json, told["targetInfo"])["targetId"])
            self._sessions.setdefault(target, str(told["sessionId"]).encode())
        elif method == b"Target.detachedFromTarget":
            session = str(cast(Json, _parsed(message)["params"])["sessionId"]).encode()
            self._sessions = {t: one for t, one in self._sessions.items() if one != session}
            speaker = self._speakers.pop(session, None)
            if speaker is not None:
                self._fail(list(speaker.waiting), "the page is gone")

    def _fail(self, numbers: Iterable[int], reason: str) -> None:
        for number in numbers:
            answer = self._answers.pop(number, None)
            if answer is not None and not answer.done():
                answer.set_exception(ProtocolError(reason))


class _Messages(asyncio.Protocol):
    """Cuts what comes into messages."""

    def __init__(
        self,
        on_message: Callable[[bytes], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._on_message = on_message
        self._on_end = on_end
        self._parts: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        if self._on_message is None:
            return
        *whole, rest = data.split(_END)
        for message in whole:
            self._parts.append(message)
            self._on_message(b"".join(self._parts))
            self._parts.clear()
        if rest:
            self._parts.append(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._on_end is not None:
            self._on_end()


def _session_of(message: bytes) -> bytes:
    """Return the session of an event, which the browser writes at its end."""
    ending = message[-_ENDING_LENGTH:]
    start = ending.rfind(_SESSION)
    if start < 0:
        return b""
    start += len(_SESSION)
    return ending[start : ending.index(b'"', start)]


def _parsed(message: bytes) -> Json:
    try:
        return orjson.loads(message)
    except orjson.JSONDecodeError:  # half a character, which a page may contain
        return cast(Json, json.loads(message))
