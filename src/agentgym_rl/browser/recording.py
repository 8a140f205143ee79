"""What the pages of an episode asked for, and what they were answered: `Recorder`.

Entries are those of an HTTP archive (HAR), with what is known of each: address, method, headers,
the form that was sent, status, cookies, and the text of answers in JSON. Scripts, styles, pictures
and fonts are left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from playwright.async_api import BrowserContext, Request, Response
from playwright.async_api import Error as PlaywrightError

from agentgym_rl.frozen import JsonValue

MAX_ENTRIES = 5_000
"""Of one episode; later requests are not recorded."""
_MAX_BODY_BYTES = 1_000_000
"""Of what is sent or answered; a larger one is left out."""
_MAX_TOTAL_BYTES = 30_000_000
"""Of all of them in an episode; later ones are left out."""
_KINDS = frozenset(["document", "xhr", "fetch", "other", "ping"])
_PATIENCE_S = 5.0

Entry = dict[str, JsonValue]


class Recorder:
    """Watches a context from its beginning to its end."""

    def __init__(self, context: BrowserContext) -> None:
        self._entries: dict[int, Entry] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._numbers: dict[Request, int] = {}
        self._num_bytes = 0
        context.on("request", self._on_request)
        context.on("requestfinished", self._on_end)
        context.on("requestfailed", self._on_end)

    async def entries(self) -> Sequence[Entry]:
        """Return what was recorded so far, in the order of the requests."""
        if self._reading:
            await asyncio.wait(set(self._reading), timeout=_PATIENCE_S)
        return [self._entries[number] for number in sorted(self._entries)]

    def _on_request(self, request: Request) -> None:
        if request.resource_type in _KINDS and len(self._numbers) < MAX_ENTRIES:
            self._numbers[request] = len(self._numbers)

    def _on_end(self, request: Request) -> None:
        """Read the answer at once: Chromium forgets it with the page."""
        number = self._numbers.get(request)
        if number is None:
            return
        task = asyncio.ensure_future(self._read(number, request))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read(self, number: int, request: Request) -> None:
        try:
            self._entries[number] = await self._entry(request)
        except PlaywrightError:
            return  # the page went away before its answer came

    async def _entry(self, request: Request) -> Entry:
        response = await request.response()
        asked: Entry = {
            "url": request.url,
            "method": request.method,
            "headers": _named([(h["name"], h["value"]) for h in await request.headers_array()]),
        }
        body = request.post_data_buffer
        if body is not None:
            kind = await request.header_value("content-type") or ""
            asked["postData"] = {"mimeType": kind, "text": self._kept(body)}
        if response is None:
            return {"request": asked, "response": {"status": 0, "headers": [], "redirectURL": ""}}
        return {"request": asked, "response": await self._answer(response)}

    async def _answer(self, response: Response) -> Entry:
        headers = [(h["name"], h["value"]) for h in await response.headers_array()]
        target = _first(headers, "location")
        cookies = [value for name, value in headers if name.lower() == "set-cookie"]
        answered: Entry = {
            "status": response.status,
            "headers": _named(headers),
            "redirectURL": target,
            "cookies": [_cookie(line) for line in cookies],
        }
        kind = _first(headers, "content-type")
        if "json" in kind and not target:
            answered["content"] = {"mimeType": kind, "text": self._kept(await response.body())}
        return answered

    def _kept(self, body: bytes) -> str:
        """Return a body as text; empty where it is too much."""
        self._num_bytes += len(body)
        if len(body) > _MAX_BODY_BYTES or self._num_bytes > _MAX_TOTAL_BYTES:
            return ""
        return body.decode(errors="replace")


def _first(headers: Sequence[tuple[str, str]], wanted: str) -> str:
    return next((value for name, value in headers if name.lower() == wanted), "")


def _named(headers: Sequence[tuple[str, str]]) -> list[JsonValue]:
    return [{"name": name, "value": value} for name, value in headers]


def _cookie(line: str) -> JsonValue:
    name, _, value = line.partition(";")[0].partition("=")
    return {"name": name.strip(), "value": value.strip()}
