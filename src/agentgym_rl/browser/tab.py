"""One tab: its protocol session, when it is quiet, and what is on it.

Every request to the page has a deadline, because a page whose script computes for ever answers
none. Its script is ended then (`Runtime.terminateExecution`), and the page stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Mapping
from typing import TypeVar, cast

from playwright.async_api import BrowserContext, CDPSession, Page
from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.page_tree import PageTree, read_page
from agentgym_rl.errors import EnvError

_WORLD = "agentgym"
_WATCH = """
globalThis.changed = performance.now();
const look = new MutationObserver(() => { globalThis.changed = performance.now(); });
look.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
"""
"""Runs in a world of its own, which scripts of the page can neither see nor change."""
_STATE = """
new Promise(done => setTimeout(() => done(
    [document.readyState === "complete", performance.now() - globalThis.changed]), 0))
"""
_QUIET_MS = 40.0
"""Without a change of the page for this long it is quiet."""
_PAUSE_S = 0.015
_PATIENCE_S = 1.5
"""A page that changes all the time, as by an animation, is read after this long."""
_MAX_WAIT_S = 8.0
"""For documents and requests of scripts."""
_CALL_S = 5.0
_MAX_ELEMENTS = 30_000
_MAX_CHARS = 5_000_000
_SIZE = """
[document.getElementsByTagName("*").length, document.documentElement?.textContent.length || 0]
"""
_BLOCKED = "The page's script did not end, so it was stopped."


T = TypeVar("T")


class UnresponsiveError(EnvError):
    """A page does not answer, whatever is tried."""


class Tab:
    """A page with what is known of it. Make one with `Tab.open`."""

    def __init__(self, page: Page, cdp: CDPSession, origins: Origins) -> None:
        self.page = page
        self.cdp = cdp
        self.notes: list[str] = []
        """What happened that the agent should be told, e.g. a dialog."""
        self._origins = origins
        self._main_frame = ""
        self._is_loading = False
        self._requests: set[str] = set()
        self._world: int | None = None
        self._has_crashed = False
        self.num_popups = 0
        """Windows that it opened, or tried to, since somebody looked."""

    @classmethod
    async def open(cls, context: BrowserContext, page: Page, origins: Origins) -> Tab:
        """Begin to watch a page."""
        tab = cls(page, await context.new_cdp_session(page), origins)
        page.on("crash", tab._on_crash)
        listeners = {
            "Page.frameStartedLoading": tab._on_loading,
            "Page.windowOpen": tab._on_popup,
            "Page.frameStoppedLoading": tab._on_loaded,
            "Network.requestWillBeSent": tab._on_request,
            "Network.loadingFinished": tab._on_answer,
            "Network.loadingFailed": tab._on_answer,
            "Runtime.executionContextCreated": tab._on_world,
            "Fetch.requestPaused": tab._on_document,
        }
        for event, listener in listeners.items():
            tab.cdp.on(event, listener)
        with contextlib.suppress(PlaywrightError):  # a popup may be gone already
            await tab._enable()
        return tab

    async def _enable(self) -> None:
        send = self.cdp.send
        tree = await send("Page.getFrameTree")
        self._main_frame = str(
            cast(Mapping[str, Mapping[str, str]], tree["frameTree"])["frame"]["id"]
        )
        documents = [{"urlPattern": "*", "resourceType": "Document"}]
        await asyncio.gather(
            send("Page.enable"),
            send("DOM.enable"),
            send("Accessibility.enable"),
            send("Runtime.enable"),
            send("Network.enable"),
            send("Fetch.enable", {"patterns": documents}),
            send("Network.setBlockedURLs", {"urlPatterns": self._origins.block_rules}),
            send(
                "Page.addScriptToEvaluateOnNewDocument",
                {"source": _WATCH, "worldName": _WORLD, "runImmediately": True},
            ),
        )

    async def call(self, method: str, **parameters: object) -> Mapping[str, object]:
        """Send a request of the protocol, with a deadline; a script that blocks it is ended."""
        return await self.within(self.cdp.send(method, parameters))

    async def within(self, work: Awaitable[T]) -> T:
        """Await what the page must answer; end its script when that takes too long.

        Raises UnresponsiveError when it does not answer even then.
        """
        request = asyncio.ensure_future(work)
        for _ in range(2):
            done, _ = await asyncio.wait({request}, timeout=_CALL_S)
            if done:
                return request.result()
            await self.stop_script()
        request.add_done_callback(forget)
        request.cancel()
        raise UnresponsiveError("a page does not answer, even with its script stopped")

    async def stop_script(self) -> None:
        """End what the page's script is doing."""
        if _BLOCKED not in self.notes:
            self.notes.append(_BLOCKED)
        ending = asyncio.ensure_future(self.cdp.send("Runtime.terminateExecution"))
        ending.add_done_callback(forget)  # not answered while a dialog is open
        await asyncio.sleep(0)

    async def settle(self) -> None:
        """Wait until the page is loaded and still, or for as long as patience lasts."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < _MAX_WAIT_S:
            state = await self._state()
            if self._has_crashed:
                raise EnvError("a page of the browser crashed")
            is_idle = state is not None and state[0] and not self._is_loading
            if is_idle and not self._requests:
                assert state is not None
                if state[1] >= _QUIET_MS or waited > _PATIENCE_S:
                    return
            await asyncio.sleep(_PAUSE_S)
        self._requests.clear()  # one that never ends is not waited for again
        self.notes.append("The page is still loading.")

    async def _state(self) -> tuple[bool, float] | None:
        """Return whether the document is complete, and the milliseconds since its last change."""
        if self._world is None:
            return None
        try:
            answer = await self.call(
                "Runtime.evaluate",
                expression=_STATE,
                contextId=self._world,
                awaitPromise=True,
                returnByValue=True,
            )
        except PlaywrightError:
            return None  # a new document is on its way
        value = cast(Mapping[str, object], answer["result"]).get("value")
        return (bool(value[0]), float(value[1])) if isinstance(value, list) else None

    async def read(self) -> PageTree | str:
        """Return what is on the page now, or why it cannot be shown."""
        answer = await self.call("Runtime.evaluate", expression=_SIZE, returnByValue=True)
        size = cast(Mapping[str, object], answer["result"]).get("value")
        if isinstance(size, list) and (size[0] > _MAX_ELEMENTS or size[1] > _MAX_CHARS):
            return f"The page is too large to be shown ({size[0]} elements, {size[1]} characters)."
        return await self.within(read_page(self.cdp))

    def _on_crash(self, _: object) -> None:
        self._has_crashed = True

    def _on_popup(self, _: object) -> None:
        self.num_popups += 1

    def _on_loading(self, event: Mapping[str, object]) -> None:
        if event["frameId"] == self._main_frame:
            self._is_loading = True
            self._requests.clear()

    def _on_loaded(self, event: Mapping[str, object]) -> None:
        if event["frameId"] == self._main_frame:
            self._is_loading = False

    def _on_request(self, event: Mapping[str, object]) -> None:
        if event.get("type") in ("XHR", "Fetch"):
            self._requests.add(str(event["requestId"]))

    def _on_answer(self, event: Mapping[str, object]) -> None:
        self._requests.discard(str(event["requestId"]))

    def _on_world(self, event: Mapping[str, object]) -> None:
        context = cast(Mapping[str, object], event["context"])
        data = cast(Mapping[str, object], context.get("auxData", {}))
        if context.get("name") == _WORLD and data.get("frameId") == self._main_frame:
            self._world = cast(int, context["id"])

    def _on_document(self, event: Mapping[str, object]) -> None:
        url = str(cast(Mapping[str, object], event["request"])["url"])
        if self._origins.allows(url):
            answer = self.cdp.send("Fetch.continueRequest", {"requestId": event["requestId"]})
        else:
            self.notes.append(f"{url[:200]} is outside the sites of this task and was not opened.")
            answer = self.cdp.send(
                "Fetch.failRequest",
                {"requestId": event["requestId"], "errorReason": "BlockedByClient"},
            )
        asyncio.ensure_future(answer).add_done_callback(forget)


def forget(request: asyncio.Future[T]) -> None:
    """Take note of a result that nobody waits for, so that a failure is not reported."""
    if not request.cancelled():
        request.exception()
