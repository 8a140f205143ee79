"""One tab: its protocol session, when it is quiet, and what is on it.

Every request to the page has a deadline, because a page whose script computes for ever answers
none. Its script is ended then (`Runtime.terminateExecution`), and the page stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, cast
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from agentgym_rl.browser.origins import Origins
from agentgym_rl.browser.page_tree import PageTree, read_page
from agentgym_rl.browser.wire import Speaker, Wire
from agentgym_rl.errors import EnvError

_WORLD = "agentgym"
_WATCH = """
globalThis.changed = performance.now();
const look = new MutationObserver(() => { globalThis.changed = performance.now(); });
look.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
"""
"""Runs in a world of its own, which scripts of the page can neither see nor change."""
_STILL = """
(quiet, patience) => new Promise(done => {
    const began = performance.now();
    const look = () => {
        const now = performance.now(), still = now - globalThis.changed;
        const is_complete = document.readyState === "complete";
        if (is_complete && (still >= quiet || now - began >= patience)) done(true);
        else if (now - began >= 1000) done(false);
        else setTimeout(look, is_complete ? Math.max(1, quiet - still) : 20);
    };
    setTimeout(look, 0);
})
"""
"""Waits in the page: asking again and again costs more than the page itself."""
_QUIET_MS = 40.0
"""Without a change of the page for this long it is quiet."""
_PAUSE_S = 0.1
"""For news of a document or a request; they end it."""
_PATIENCE_S = 1.5
"""A page that changes all the time, as by an animation, is read after this long."""
_MAX_WAIT_S = 8.0
"""For documents and requests of scripts."""
_WAITED_FOR = ("XHR", "Fetch", "Script", "Stylesheet", "Document")
"""Kinds of requests whose answers change the page: a script often loads another one."""
_CALL_S = 5.0
_MAX_TRIES = 5
"""Of a page that leads to another one meanwhile."""
_MAX_ELEMENTS = 30_000
_MAX_CHARS = 5_000_000
_SIZE = """
[document.getElementsByTagName("*").length, document.documentElement?.textContent.length || 0]
"""
_FOREIGN = "{} is outside the sites of this task and was not opened."
_BLOCKED = "The page's script did not end, so it was stopped."


T = TypeVar("T")


class UnresponsiveError(EnvError):
    """A page does not answer, whatever is tried."""


class Tab:
    """A page with what is known of it. Make one with `Tab.open`."""

    def __init__(self, page: Page, speaker: Speaker, origins: Origins) -> None:
        self.page = page
        self._speaker = speaker
        self.notes: list[str] = []
        """What happened that the agent should be told, e.g. a dialog."""
        self._origins = origins
        self._main_frame = ""
        self._loading: set[str] = set()
        """Frames whose documents are on their way."""
        self._requests: set[str] = set()
        self._world: int | None = None
        self._has_news = asyncio.Event()
        """Set when a document or a request begins or ends."""
        self._last_news = 0.0
        self._has_crashed = False
        self.num_popups = 0
        """Windows that it opened, or tried to, since somebody looked."""

    @classmethod
    async def open(cls, page: Page, wire: Wire, origins: Origins, *, is_recorded: bool) -> Tab:
        """Begin to watch a page. Playwright hears of its requests only where they are recorded."""
        session = await page.context.new_cdp_session(page)
        told = await session.send("Target.getTargetInfo")
        speaker = wire.speaker(cast(Mapping[str, str], told["targetInfo"])["targetId"])
        await session.detach()
        speaker.keep(["Fetch"] if is_recorded else ["Fetch", "Network"])
        tab = cls(page, speaker, origins)
        page.on("crash", tab._on_crash)
        listeners = {
            "Page.frameRequestedNavigation": tab._on_plan,
            "Page.frameScheduledNavigation": tab._on_plan,
            "Page.frameStartedLoading": tab._on_loading,
            "Page.windowOpen": tab._on_popup,
            "Page.frameStoppedLoading": tab._on_loaded,
            "Page.frameDetached": tab._on_loaded,
            "Network.requestWillBeSent": tab._on_request,
            "Network.loadingFinished": tab._on_answer,
            "Network.loadingFailed": tab._on_answer,
            "Runtime.executionContextCreated": tab._on_world,
            "Fetch.requestPaused": tab._on_document,
        }
        for event, listener in listeners.items():
            speaker.on(event, listener)
        with contextlib.suppress(PlaywrightError):  # a popup may be gone already
            await tab._enable()
        return tab

    async def _enable(self) -> None:
        send = self._speaker.send
        tree = await send("Page.getFrameTree")
        self._main_frame = str(
            cast(Mapping[str, Mapping[str, str]], tree["frameTree"])["frame"]["id"]
        )
        if self._origins.has_files:  # elsewhere a proxy guards: this costs all requests something
            documents = [{"urlPattern": "*", "resourceType": "Document"}]
            await send("Fetch.enable", {"patterns": documents})
        await asyncio.gather(  # Playwright has enabled Page, Runtime and Network
            send("Network.setBlockedURLs", {"urlPatterns": self._origins.block_rules}),
            send(
                "Page.addScriptToEvaluateOnNewDocument",
                {"source": _WATCH, "worldName": _WORLD, "runImmediately": True},
            ),
        )

    async def call(self, method: str, **parameters: object) -> Mapping[str, object]:
        """Send a request of the protocol, with a deadline; a script that blocks it is ended."""
        return await self.within(self._speaker.send(method, parameters))

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
        ending = asyncio.ensure_future(self._speaker.send("Runtime.terminateExecution"))
        ending.add_done_callback(forget)  # not answered while a dialog is open
        await asyncio.sleep(0)

    def begin_wait(self) -> None:
        """Let the next `settle` wait for what an action may have begun, if only for a moment."""
        self._tell()

    async def settle(self) -> None:
        """Wait until the page is loaded and still, or for as long as patience lasts."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < _MAX_WAIT_S:
            self._has_news.clear()
            is_still = await self._is_still(_PATIENCE_S - waited)
            if self._has_crashed:
                raise EnvError("a page of the browser crashed")
            if is_still and not self._loading and not self._requests:
                missing_s = _QUIET_MS / 1000 - (time.monotonic() - self._last_news)
                if missing_s <= 0:
                    return
                await asyncio.sleep(missing_s)  # a script that has come may not have run yet
            elif is_still is not False:
                await self._news()
        self._requests.clear()  # what never ends is not waited for again
        self._loading.clear()
        self.notes.append("The page is still loading.")

    async def _is_still(self, patience_s: float) -> bool | None:
        """Wait for at most a second until the document is complete and does not change any more.

        Return whether it is; None where there is no document yet.
        """
        if self._world is None:
            return None
        try:
            answer = await self.call(
                "Runtime.evaluate",
                expression=f"({_STILL})({_QUIET_MS}, {1000 * patience_s})",
                contextId=self._world,
                awaitPromise=True,
                returnByValue=True,
            )
        except PlaywrightError:
            return None  # a new document is on its way
        return cast(Mapping[str, object], answer["result"]).get("value") is True

    def _tell(self) -> None:
        self._last_news = time.monotonic()
        self._has_news.set()

    async def _news(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S):
                await self._has_news.wait()

    async def read(self) -> PageTree | str:
        """Return what is on the page now, or why it cannot be shown."""
        tree = await self._persistently(self._read)
        return tree if tree is not None else "The page changes too fast to be shown."

    async def title(self) -> str:
        """Return the page's title, as the browser has it."""
        return await self._persistently(self._title) or ""

    async def _persistently(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Ask again where another document came in between; None where that goes on and on."""
        for _ in range(_MAX_TRIES):
            try:
                return await ask()
            except PlaywrightError:
                if self.page.is_closed() or not self._speaker.is_open:
                    raise
                await self._news()
        return None

    async def _title(self) -> str:
        history = await self.call("Page.getNavigationHistory")
        entries = cast(list[Mapping[str, str]], history["entries"])
        return entries[cast(int, history["currentIndex"])]["title"]

    async def _read(self) -> PageTree | str:
        answer = await self.call("Runtime.evaluate", expression=_SIZE, returnByValue=True)
        size = cast(Mapping[str, object], answer["result"]).get("value")
        if isinstance(size, list) and (size[0] > _MAX_ELEMENTS or size[1] > _MAX_CHARS):
            return f"The page is too large to be shown ({size[0]} elements, {size[1]} characters)."
        return await self.within(read_page(self._speaker))

    def _on_crash(self, _: object) -> None:
        self._has_crashed = True

    def _on_popup(self, _: object) -> None:
        self.num_popups += 1

    def _on_plan(self, _: object) -> None:
        self._tell()

    def _on_loading(self, event: Mapping[str, object]) -> None:
        frame = str(event["frameId"])
        if frame == self._main_frame:
            self._loading.clear()
            self._requests.clear()
        self._loading.add(frame)
        self._tell()

    def _on_loaded(self, event: Mapping[str, object]) -> None:
        self._loading.discard(str(event["frameId"]))
        self._tell()

    def _on_request(self, event: Mapping[str, object]) -> None:
        is_document = event.get("type") == "Document"
        if is_document:
            self._note_foreign(str(cast(Mapping[str, object], event["request"])["url"]))
        is_main = is_document and event.get("frameId") == self._main_frame
        if event.get("type") in _WAITED_FOR and not is_main:
            self._requests.add(str(event["requestId"]))

    def _on_answer(self, event: Mapping[str, object]) -> None:
        request = str(event["requestId"])
        if request in self._requests:
            self._requests.discard(request)
            self._tell()

    def _on_world(self, event: Mapping[str, object]) -> None:
        context = cast(Mapping[str, object], event["context"])
        data = cast(Mapping[str, object], context.get("auxData", {}))
        if context.get("name") == _WORLD and data.get("frameId") == self._main_frame:
            self._world = cast(int, context["id"])
            self._tell()

    def _note_foreign(self, url: str) -> None:
        """Note an address that a guard refuses."""
        if urlsplit(url).scheme in ("http", "https") and not self._origins.allows(url):
            self.notes.append(_FOREIGN.format(url[:200]))

    async def note_where_it_could_not_go(self) -> None:
        """Note the address of an error page, where that is outside of the task's sites."""
        tree = cast(
            Mapping[str, Mapping[str, str]], (await self.call("Page.getFrameTree"))["frameTree"]
        )
        self._note_foreign(tree["frame"].get("unreachableUrl", ""))

    def _on_document(self, event: Mapping[str, object]) -> None:
        url = str(cast(Mapping[str, object], event["request"])["url"])
        if self._origins.allows(url):
            answer = self._speaker.send("Fetch.continueRequest", {"requestId": event["requestId"]})
        else:
            self.notes.append(_FOREIGN.format(url[:200]))
            answer = self._speaker.send(
                "Fetch.failRequest",
                {"requestId": event["requestId"], "errorReason": "BlockedByClient"},
            )
        asyncio.ensure_future(answer).add_done_callback(forget)


def forget(request: asyncio.Future[T]) -> None:
    """Take note of a result that nobody waits for, so that a failure is not reported."""
    if not request.cancelled():
        request.exception()
