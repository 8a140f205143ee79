"""A browser for one episode, without asynchrony: `Browsing`. What environments use."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from agentgym_rl.browser.acting import CannotActError, act
from agentgym_rl.browser.actions import (
    BrowserAction,
    Click,
    Hover,
    Scroll,
    SelectOption,
    Stop,
    Type,
    UnreadableActionError,
    parse_action,
)
from agentgym_rl.browser.host import BrowserHost, shared_host
from agentgym_rl.browser.layouts import LAYOUTS, Line
from agentgym_rl.browser.layouts.lines import Place
from agentgym_rl.browser.page_tree import Box, Node
from agentgym_rl.browser.session import BrowserOptions, BrowserSession, View, require_open

T = TypeVar("T")

_ROUND_S = 45.0
"""For one action and the look at what it did."""
_MAX_ADDRESS, _MAX_TITLE = 500, 150
"""Characters of an address and of a title that are shown."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How pages are shown."""

    name: str = "compact"
    full_page: bool = False
    """Whether what is not on the screen is shown as well."""
    max_chars: int = 6000
    """Of one observation; scrolling shows the rest."""
    has_address: bool = True
    """Whether it begins with the tabs and the address."""

    def __post_init__(self) -> None:
        if self.max_chars < 1:
            raise ValueError(f"max_chars must be at least 1, got {self.max_chars}")


@dataclass(frozen=True, slots=True)
class Seen:
    """What an agent sees after an action."""

    text: str
    url: str
    valid: bool = True
    """False where the action could not be read or done."""
    answer: str | None = None
    """Of `stop`, which ends an episode."""


class Browsing:
    """Tabs of one episode. Use it from one thread at a time; `close` gives it back."""

    def __init__(self, options: BrowserOptions, layout: Layout | None = None) -> None:
        self._layout = layout or Layout()
        self._options = options
        self._host: BrowserHost = shared_host()
        self._session: BrowserSession | None = None
        self._elements: Mapping[int, Node] = {}
        self._first_line = self._num_shown = self._num_hidden = 0
        self._view: View | None = None
        self._acted_on: Box | None = None
        self.num_begun = 0
        """How often a session was begun in it."""

    def open(self, *urls: str) -> Seen:
        """Begin with one tab per URL, the first one current, and look."""
        self.close()
        return self._host.call(self._host.round(self._open(urls)), _ROUND_S)

    def load(self, *urls: str) -> None:
        """Begin as `open` does, without a look: for a script of ours that must run before."""
        self.close()
        self._host.call(self._host.round(self._load(urls)), _ROUND_S)

    def renew(self, url: str) -> None:
        """Begin again as `load` does, in the same tab: a fifth of the work of a new one.

        Only for pages that keep nothing, because cookies and storage stay.
        """
        self._acted_on = self._view = None
        self._elements = {}
        self._first_line = self._num_shown = self._num_hidden = 0
        self._host.call(self._host.round(self._renew(url)), _ROUND_S)

    def shows(self, options: BrowserOptions, layout: Layout) -> bool:
        """Return whether it is what these ask for."""
        return (self._options, self._layout) == (options, layout)

    @property
    def can_be_renewed(self) -> bool:
        """Whether it is open, in this process."""
        return self._session is not None and self._host.is_ours

    def do(self, text: str) -> Seen:
        """Carry out the action that a text says, and look."""
        self._acted_on = None
        try:
            action = parse_action(text, self._options.verbs)
        except UnreadableActionError as error:
            return self._refusal(str(error))
        if isinstance(action, Stop):
            # Nothing may be scored where the browser has ended, and with it what was done in it.
            self._host.call(require_open(self._session).require_alive(), _ROUND_S)
            return Seen("", self.url, answer=action.answer)
        if isinstance(action, Click | Hover | Type | SelectOption):
            element = self._elements.get(action.element)
            self._acted_on = element.box if element else None
        return self._host.call(self._do(action), _ROUND_S)

    @property
    def url(self) -> str:
        """Of the current tab, when it was last looked at."""
        return self._view.url if self._view else ""

    @property
    def elements(self) -> Mapping[int, Node]:
        """What can be acted on, by the numbers of the last observation."""
        return self._elements

    @property
    def acted_on(self) -> tuple[float, float, float, float] | None:
        """Where the last action took place: x, y, width and height on the screen before it."""
        box = self._acted_on
        return (box.x, box.y, box.width, box.height) if box else None

    def look(self) -> Seen:
        """Look again, without an action."""
        return self._host.call(self._host.round(self._look()), _ROUND_S)

    @property
    def titles(self) -> tuple[str, ...]:
        """Of all tabs, when they were last looked at."""
        return self._view.titles if self._view else ()

    @property
    def current(self) -> int:
        """The number of the current tab, when it was last looked at."""
        return self._view.current if self._view else 0

    def run(self, work: Callable[[BrowserSession], Coroutine[object, object, T]], s: float) -> T:
        """Do something of ours with the session, within `s` seconds; counts as a round."""
        session = require_open(self._session)
        return self._host.call(self._host.round(work(session)), s)

    def evaluate(self, script: str, argument: object = None) -> object:
        """Return what a script of ours says in the page. Never a text of the agent's."""
        page = require_open(self._session).tab.page
        return self._host.call(page.evaluate(script, argument), _ROUND_S)

    def picture(self) -> bytes:
        """Return the screen as JPEG, which is a third as large as PNG."""
        return self._host.call(require_open(self._session).picture(), _ROUND_S)

    def close(self) -> None:
        """Give the browser back. Safe to repeat."""
        if self._session is not None:
            session, self._session = self._session, None
            self._host.call(session.close(), _ROUND_S)

    async def _open(self, urls: tuple[str, ...]) -> Seen:
        await self._begin(urls)
        return await self._look()

    async def _load(self, urls: tuple[str, ...]) -> None:
        session = await self._begin(urls)
        await session.tab.settle()

    async def _renew(self, url: str) -> None:
        self.num_begun += 1
        session = require_open(self._session)
        await session.renew(url)
        await session.tab.settle()

    async def _begin(self, urls: tuple[str, ...]) -> BrowserSession:
        self.num_begun += 1
        self._session = await BrowserSession.open(self._host, self._options)
        for number, url in enumerate(urls):
            if number:
                await self._session.new_tab()
            await self._session.goto(url)
            if len(urls) > 1:
                await self._session.tab.settle()  # a look waits for the current tab only
        if len(urls) > 1:
            await self._session.focus(0)
        return self._session

    async def _do(self, action: BrowserAction) -> Seen:
        session = require_open(self._session)
        if isinstance(action, Scroll) and self._turns_page(down=action.is_down):
            return self._write(valid=True)
        return await self._host.round(self._act(session, action))

    async def _act(self, session: BrowserSession, action: BrowserAction) -> Seen:
        valid = True
        try:
            await act(session, action, self._elements)
        except CannotActError as error:
            session.note(str(error))
            valid = False
        self._first_line = 0
        return await self._look(valid=valid)

    async def _look(self, *, valid: bool = True) -> Seen:
        self._view = await require_open(self._session).look()
        return self._write(valid=valid)

    def _turns_page(self, *, down: bool) -> bool:
        """Show other lines of the same screen where not all of them fit; False where they do."""
        if down and self._num_hidden:
            self._first_line += self._num_shown
            return True
        if not down and self._first_line:
            self._first_line = 0
            return True
        return False

    def _refusal(self, reason: str) -> Seen:
        shown = self._write(valid=False)
        return Seen(f"{reason}\n{shown.text}", shown.url, valid=False)

    def _write(self, *, valid: bool) -> Seen:
        """Write the last view down, as much of it as fits."""
        view = self._view
        assert view is not None, "nothing was opened yet"
        options = self._options
        lines = LAYOUTS[self._layout.name](view.tree.root, options.width, options.height)
        places = {Place.SEEN, Place.ABOVE, Place.BELOW} if self._layout.full_page else {Place.SEEN}
        seen = [line for line in lines if line.place in places]
        shown = self._fitting(seen[self._first_line :])
        self._num_shown = len(shown)
        self._num_hidden = len(seen) - self._first_line - len(shown)
        self._elements = dict(pair for line in lines for pair in line.elements)
        num_above = self._first_line + sum(line.place is Place.ABOVE for line in lines)
        num_below = self._num_hidden + sum(line.place is Place.BELOW for line in lines)
        if self._layout.full_page:
            num_above, num_below = self._first_line, self._num_hidden
        parts = [*view.notes, *([_tabs(view)] if self._layout.has_address else [])]
        self._view = replace(view, notes=())  # they are told once
        if num_above:
            parts.append(f"({num_above} lines above: scroll [up])")
        parts += [line.text for line in shown] or ["(an empty page)"]
        if num_below:
            parts.append(f"({num_below} more lines below: scroll [down])")
        return Seen("\n".join(parts), view.url, valid)

    def _fitting(self, lines: list[Line]) -> list[Line]:
        shown, num_chars = list[Line](), 0
        for line in lines:
            num_chars += len(line.text) + 1
            if shown and num_chars > self._layout.max_chars:
                break
            shown.append(line)
        return shown


def _tabs(view: View) -> str:
    """Return the line that names the page, or all tabs where there are several."""
    titles = [_cut(title, _MAX_TITLE) for title in view.titles]
    url = _cut(view.url, _MAX_ADDRESS)
    if len(titles) == 1:
        return f"{titles[0]} ({url})" if url else titles[0]
    tabs = [
        f"Tab {number}{' (current)' if number == view.current else ''}: {title}"
        for number, title in enumerate(titles)
    ]
    return " | ".join(tabs) + (f"\n({url})" if url else "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
