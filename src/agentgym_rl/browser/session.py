"""One episode's browser: tabs, what happens in them, and the actions of an agent.

`BrowserSession` is asynchronous and lives on the host's thread; environments use `Browsing`
(browsing.py), which is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from playwright.async_api import BrowserContext, Dialog, Download, Page
from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser.actions import USAGE
from agentgym_rl.browser.host import BrowserHost, Names
from agentgym_rl.browser.origins import BLANK, Origins
from agentgym_rl.browser.page_tree import EMPTY_PAGE, MAX_NODES, PageTree
from agentgym_rl.browser.recording import Recorder
from agentgym_rl.browser.tab import Tab, UnresponsiveError, forget
from agentgym_rl.browser.wire import Wire
from agentgym_rl.errors import EnvError

MAX_TABS = 8
_MAX_DIALOGS = 5
"""Of one round; a page that opens more has its script stopped."""
_NAVIGATION_S = 15.0
_CLOSE_S = 5.0
_POPUP_S = 2.0
_BLOCKED = ("BLOCKED_BY_CLIENT", "PROXY_CONNECTION_FAILED")
"""What Chromium says of another site's page; it is noted where it was asked for."""


@dataclass(frozen=True)
class BrowserOptions:
    """What an episode's browser is like."""

    origins: Origins
    names: Names = field(default_factory=Names)
    width: int = 1280
    height: int = 720
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with every request."""
    now: float | None = None
    """The time that scripts see, in seconds since 1970; None is the present."""
    cookies: tuple[dict[str, object], ...] = field(default=(), hash=False)
    """As Playwright writes them; with `storage` they make a login."""
    storage: tuple[dict[str, object], ...] = field(default=(), hash=False)
    """Local storage by origin: {"origin": ..., "localStorage": [{"name": ..., "value": ...}]}."""
    verbs: tuple[str, ...] = tuple(USAGE)
    """The actions that an agent has."""
    records: bool = False
    """Whether requests and answers are recorded, for those who judge an episode by them."""
    geolocation: tuple[float, float] | None = None
    """Latitude and longitude."""


@dataclass(frozen=True, slots=True)
class View:
    """What an agent can see: the tabs, the page of the current one, and what has happened."""

    titles: tuple[str, ...]
    current: int
    url: str
    tree: PageTree
    notes: tuple[str, ...]


class BrowserSession:
    """A context of its own, with tabs. Make one with `open`."""

    def __init__(self, context: BrowserContext, wire: Wire, options: BrowserOptions) -> None:
        self.options = options
        self.tabs: list[Tab] = []
        self.recorder = Recorder(context) if options.records else None
        self._context = context
        self._wire = wire
        self._current = 0
        self._notes: list[str] = []
        self._num_dialogs = 0
        self._num_popups = 0
        """Windows that pages opened since the last look."""
        self._opening: set[asyncio.Task[None]] = set()
        self._is_opening_own = False

    @classmethod
    async def open(cls, host: BrowserHost, options: BrowserOptions) -> BrowserSession:
        """Return a session with one empty tab."""
        latitude, longitude = options.geolocation or (0.0, 0.0)
        place = {"latitude": latitude, "longitude": longitude} if options.geolocation else None
        context, wire = await host.open_context(
            options.names,
            viewport={"width": options.width, "height": options.height},
            device_scale_factor=1,
            locale="en-US",
            timezone_id="UTC",
            accept_downloads=False,
            reduced_motion="reduce",
            service_workers="block",
            extra_http_headers=dict(options.headers),
            geolocation=place,
            permissions=["geolocation"] if place else [],
            proxy=options.origins.proxy,
            storage_state={"cookies": list(options.cookies), "origins": list(options.storage)},
        )
        session = cls(context, wire, options)
        try:
            if options.now is not None:
                await context.clock.set_fixed_time(options.now)
            context.set_default_navigation_timeout(_NAVIGATION_S * 1000)
            context.on("page", session._on_page)
            await session.new_tab()
        except BaseException:
            await session.close()
            raise
        return session

    @property
    def tab(self) -> Tab:
        """The current tab."""
        return self.tabs[self._current]

    @property
    def has_room(self) -> bool:
        """Whether there may be another tab."""
        return len(self.tabs) < MAX_TABS

    async def new_tab(self) -> None:
        """Open an empty tab and make it the current one."""
        self._is_opening_own = True
        try:
            page = await self._context.new_page()
        finally:
            self._is_opening_own = False
        await self._add(page)

    async def close_tab(self) -> None:
        """Close the current tab; the last one is replaced by an empty one."""
        tab = self.tabs.pop(self._current)
        await tab.page.close()
        if not self.tabs:
            await self.new_tab()
        await self.focus(max(0, self._current - 1))

    async def focus(self, number: int) -> bool:
        """Make a tab the current one; False where there is none of this number."""
        if not 0 <= number < len(self.tabs):
            return False
        self._current = number
        await self.tab.page.bring_to_front()
        return True

    async def goto(self, url: str) -> None:
        """Open a URL in the current tab. What goes wrong is noted for the agent."""
        if not self.options.origins.allows(url):
            self._notes.append(f"{url[:200]} is outside the sites of this task.")
            return
        await self._navigate(self.tab.page.goto(url, wait_until="commit"))

    async def renew(self, url: str) -> None:
        """Begin again at a URL, in one tab without a past. Cookies and storage stay as they are."""
        while len(self.tabs) > 1:
            await self.close_tab()
        # A pointer left in the middle of the page would hover over what comes there.
        await self.tab.within(
            self.tab.page.mouse.move(self.options.width - 1, self.options.height - 1)
        )
        self._notes.clear()
        self.tab.notes.clear()
        await self.goto(url)
        await self.tab.call("Page.resetNavigationHistory")

    @contextlib.asynccontextmanager
    async def aside(self, url: str) -> AsyncIterator[Tab]:
        """Open a URL in a tab of ours, beyond the agent's limit, and close it afterwards.

        Raises EnvError when it cannot be opened.
        """
        before = self._current
        await self.new_tab()
        tab = self.tab
        try:
            await tab.within(tab.page.goto(url, wait_until="commit"))
            await tab.settle()
            yield tab
        except PlaywrightError as error:
            raise EnvError(f"{url} could not be opened: {error.message.splitlines()[0]}") from error
        finally:
            self.tabs.remove(tab)
            self._current = min(before, len(self.tabs) - 1)
            with contextlib.suppress(PlaywrightError):
                await tab.page.close()

    async def go_back(self) -> None:
        await self._navigate(self.tab.page.go_back(wait_until="commit"))

    async def go_forward(self) -> None:
        await self._navigate(self.tab.page.go_forward(wait_until="commit"))

    async def _navigate(self, navigation: object) -> None:
        try:
            await navigation  # type: ignore[misc] - an awaitable
        except PlaywrightError as error:
            if self.tab.page.is_closed():
                raise
            reason = error.message.splitlines()[0].partition(" at ")[0].partition(": ")[2]
            if not any(word in reason for word in _BLOCKED):
                self._notes.append(f"The page could not be opened ({reason[:100]}).")

    def note(self, text: str) -> None:
        """Add what the agent is told with the next view."""
        self._notes.append(text)

    async def look(self) -> View:
        """Return what can be seen now, once the page is quiet."""
        try:
            await self.tab.settle()
            if await self._take_in_popups():
                await self.tab.settle()
            if not self.options.origins.allows(self.tab.page.url):
                await self._leave_foreign_page()
            tree = await self.tab.read()
        except UnresponsiveError:
            tree = await self._replace_tab()
        if isinstance(tree, str):
            self._notes.append(tree)
            tree = EMPTY_PAGE
        if tree.is_cut:
            self._notes.append(f"The page has more than {MAX_NODES} parts; its end is not shown.")
        titles = tuple([await self._title(tab) for tab in self.tabs])
        notes = tuple(dict.fromkeys((*self._notes, *self.tab.notes)))
        self._notes.clear()
        self.tab.notes.clear()
        self._num_dialogs = 0
        url = self.tab.page.url
        return View(titles, self._current, "" if url == BLANK else url, tree, notes)

    async def _take_in_popups(self) -> bool:
        """Wait for the windows that pages have opened; return whether there was one."""
        num_opened = 0
        for tab in self.tabs:
            num_opened += tab.num_popups
            tab.num_popups = 0
        if num_opened <= 0 and not self._opening:
            return False
        deadline = time.monotonic() + _POPUP_S
        while self._num_popups < num_opened and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._opening:
            await asyncio.wait(self._opening, timeout=_POPUP_S)
        self._num_popups = 0
        return True

    async def _replace_tab(self) -> PageTree | str:
        """Close a page that does not answer and put an empty one in its place."""
        stuck = self.tabs.pop(self._current)
        await self.new_tab()
        closing = asyncio.ensure_future(stuck.page.close())
        closing.add_done_callback(forget)
        self._notes.append("The page did not respond and was closed.")
        await self.tab.settle()
        return await self.tab.read()

    async def _leave_foreign_page(self) -> None:
        """Leave a document that no guard could refuse, such as `data:`, or an error page."""
        url = self.tab.page.url
        if url.startswith("chrome-error:"):
            await self.tab.note_where_it_could_not_go()
        else:
            self._notes.append(f"{url[:100]} is outside the sites of this task and was closed.")
        with contextlib.suppress(PlaywrightError):
            await self.tab.page.goto(BLANK)
        await self.tab.settle()

    async def _title(self, tab: Tab) -> str:
        if tab.page.url == BLANK:
            return "New tab"
        return await tab.title()

    async def picture(self) -> bytes:
        """Return the viewport as JPEG."""
        return await self.tab.page.screenshot(
            type="jpeg", quality=50, animations="disabled", caret="hide", timeout=10_000
        )

    async def require_alive(self) -> None:
        """Raise PlaywrightError where the browser has ended; the page is not asked."""
        await self._context.cookies(BLANK)

    async def close(self) -> None:
        """Give the context back. Safe to repeat."""
        with contextlib.suppress(PlaywrightError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._context.close()

    async def _add(self, page: Page) -> None:
        page.on("dialog", self._on_dialog)
        page.on("download", self._on_download)
        page.on("close", self._on_closed)
        tab = await Tab.open(
            page, self._wire, self.options.origins, is_recorded=self.options.records
        )
        if page.is_closed():
            return
        self.tabs.append(tab)
        self._current = len(self.tabs) - 1

    def _on_page(self, page: Page) -> None:
        """Take in a tab that a page opened."""
        if self._is_opening_own:
            return
        self._num_popups += 1
        task = asyncio.ensure_future(self._take_in(page))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _take_in(self, page: Page) -> None:
        with contextlib.suppress(PlaywrightError):
            if not self.has_room:
                await page.close()
                self._notes.append(f"A tab was not opened: there are {MAX_TABS} already.")
            else:
                await self._add(page)

    def _on_closed(self, page: Page) -> None:
        """Forget a tab that a page closed by itself."""
        number = next((i for i, tab in enumerate(self.tabs) if tab.page is page), None)
        if number is not None and len(self.tabs) > 1:
            del self.tabs[number]
            self._current = min(self._current, len(self.tabs) - 1)

    async def _on_dialog(self, dialog: Dialog) -> None:
        self._num_dialogs += 1
        text = dialog.message[:300]
        with contextlib.suppress(PlaywrightError):
            if self._num_dialogs > _MAX_DIALOGS:
                for tab in self.tabs:
                    if tab.page is dialog.page:
                        await tab.stop_script()
                await dialog.dismiss()
            elif dialog.type in ("alert", "confirm", "beforeunload"):
                if dialog.type != "beforeunload":
                    self._notes.append(f"The page opened a dialog, which was accepted: {text}")
                await dialog.accept()
            else:
                self._notes.append(f"The page asked for a text, which was refused: {text}")
                await dialog.dismiss()

    async def _on_download(self, download: Download) -> None:
        self._notes.append(f"A download was refused: {download.suggested_filename[:100]}")
        with contextlib.suppress(PlaywrightError):
            await download.cancel()


def require_open(session: BrowserSession | None) -> BrowserSession:
    """Return a session. Raises EnvError where there is none."""
    if session is None:
        raise EnvError("the browser of this episode is closed")
    return session
