"""The browsers of this process, and the thread that talks to them (`shared_host`).

Environments are synchronous and each has a thread; Playwright is asynchronous. One thread with an
event loop owns Playwright and every browser, and `BrowserHost.call` runs a coroutine there.

A browser serves many contexts. After `_MAX_CONTEXTS` of them new ones go to a fresh browser, and
the old one ends with its last context, so that it never grows large. A browser that dies takes only
its own contexts with it: their calls raise EnvError, and the next context gets a new browser.
Chromium ends with this process however that ends, because it watches a pipe from it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import TypeVar

from playwright.async_api import Browser, BrowserContext, Playwright, async_playwright
from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser.executable import require_browser
from agentgym_rl.browser.wire import Wire
from agentgym_rl.errors import EnvError, EnvTimeoutError

T = TypeVar("T")

_MAX_CONTEXTS = 300
"""Contexts that a browser serves in its life."""
_MAX_ROUNDS_AT_ONCE = 2 * (os.cpu_count() or 1)
"""More at once only make every one of them slower."""
_START_S = 60.0
_ARGUMENTS = (
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-gpu",
    # One process per page, frames included: one protocol session then reaches all frames.
    "--disable-site-isolation-trials",
    "--disable-features=IsolateOrigins,site-per-process,Translate,MediaRouter,PaintHolding",
    "--renderer-process-limit=8",
    "--font-render-hinting=none",
    "--hide-scrollbars",
    "--mute-audio",
    "--disable-smooth-scrolling",
)


@dataclass(frozen=True)
class Names:
    """Which names a browser can resolve: the first of two guards of the network.

    Chromium resolves every host by these, IP literals and `localhost` included. Whatever is not
    listed does not exist.
    """

    addresses: tuple[tuple[str, str], ...] = ()
    """("shop.test", "127.0.0.1:8001"): host and where it is; the address may be a name."""

    @property
    def rules(self) -> str:
        mapped = [f"MAP {host} {address}" for host, address in self.addresses]
        return ", ".join([*mapped, "MAP * ~NOTFOUND"])


class _Chromium:
    """One running browser and how many contexts it has."""

    def __init__(self, browser: Browser, wire: Wire, names: Names) -> None:
        self.browser = browser
        self.wire = wire
        self.names = names
        self.num_opened = 0
        self.num_open = 0

    @property
    def is_running(self) -> bool:
        return self.wire.is_open and self.browser.is_connected()

    @property
    def takes_contexts(self) -> bool:
        return self.is_running and self.num_opened < _MAX_CONTEXTS


class BrowserHost:
    """Playwright on a thread of its own. Make one with `shared_host`."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="browser", daemon=True)
        self._thread.start()
        self._playwright: Playwright | None = None
        self._browsers: list[_Chromium] = []
        self._starting = asyncio.Lock()
        self._rounds = asyncio.Semaphore(_MAX_ROUNDS_AT_ONCE)

    @property
    def is_ours(self) -> bool:
        """Whether it belongs to this process rather than to one that forked it."""
        return self._owner == os.getpid()

    def call(self, work: Coroutine[object, object, T], timeout_s: float) -> T:
        """Run a coroutine on the browser's thread and return its result.

        Raises EnvTimeoutError when it takes too long, and EnvError when the browser failed.
        """
        future = asyncio.run_coroutine_threadsafe(_within(work, timeout_s), self._loop)
        try:
            return future.result()
        except TimeoutError as error:
            raise EnvTimeoutError(f"the browser did not answer within {timeout_s:g} s") from error
        except PlaywrightError as error:
            raise EnvError(f"the browser failed: {error.message.splitlines()[0]}") from error
        except BaseException:
            future.cancel()
            raise

    async def round(self, work: Awaitable[T]) -> T:
        """Await the work of one round, with a bounded number of rounds at once."""
        async with self._rounds:
            return await work

    async def open_context(self, names: Names, **settings: object) -> tuple[BrowserContext, Wire]:
        """Return a new context of a browser that resolves these names, and the browser's wire."""
        async with self._starting:
            chromium = next(
                (one for one in self._browsers if one.names == names and one.takes_contexts), None
            )
            if chromium is None:
                chromium = await self._start(names)
            chromium.num_opened += 1
            chromium.num_open += 1
        try:
            context = await chromium.browser.new_context(**settings)  # type: ignore[arg-type]
        except BaseException:
            await self._give_back(chromium)
            raise
        context.once("close", lambda _: self._loop.create_task(self._give_back(chromium)))
        return context, chromium.wire

    async def _start(self, names: Names) -> _Chromium:
        playwright = await self._driver()
        path = require_browser()
        # As root, as in containers, Chromium starts only without its own sandbox.
        extra = ["--no-sandbox"] if os.geteuid() == 0 else []
        wire = Wire()
        connecting = asyncio.ensure_future(wire.connect(_START_S))
        try:
            browser = await playwright.chromium.launch(
                executable_path=wire.program(path),
                args=[*_ARGUMENTS, *extra, f"--host-resolver-rules={names.rules}"],
                timeout=_START_S * 1000,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
            await connecting
        except BaseException:
            connecting.cancel()
            wire.close()
            raise
        chromium = _Chromium(browser, wire, names)
        self._browsers = [one for one in self._browsers if one.is_running]
        self._browsers.append(chromium)
        return chromium

    async def _driver(self) -> Playwright:
        """Return Playwright, a new one where its process has ended."""
        if self._playwright is not None:
            try:
                requests = await self._playwright.request.new_context()
                await requests.dispose()
            except PlaywrightError:
                self._playwright = None
        if self._playwright is None:
            self._playwright = await async_playwright().start()
        return self._playwright

    async def _give_back(self, chromium: _Chromium) -> None:
        chromium.num_open -= 1
        if not chromium.num_open and not chromium.takes_contexts:
            await chromium.browser.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()


async def _within(work: Coroutine[object, object, T], timeout_s: float) -> T:
    async with asyncio.timeout(timeout_s):
        return await work


_shared: BrowserHost | None = None
_shared_lock = threading.Lock()


def shared_host() -> BrowserHost:
    """Return this process's host, made when it is first asked for."""
    global _shared
    with _shared_lock:
        if _shared is None or not _shared.is_ours:
            _shared = BrowserHost()
        return _shared
