"""Tabs of episodes that are over, for the next ones: `Spares`.

The pages of MiniWoB++ keep nothing, neither cookies nor storage, so that an episode may begin where
another one ended. A tab of its own costs five times as much as the page in it.
"""

from __future__ import annotations

import threading

from agentgym_rl.browser.browsing import Browsing, Layout
from agentgym_rl.browser.session import BrowserOptions
from agentgym_rl.errors import EnvError

_MAX_SPARES = 32
_MAX_EPISODES = 50
"""In one tab, which grows a little with each."""


class Spares:
    """Open tabs that nobody uses. Safe to use from several threads."""

    def __init__(self) -> None:
        self._tabs: list[Browsing] = []
        self._lock = threading.Lock()

    def open(self, url: str, options: BrowserOptions, layout: Layout) -> Browsing:
        """Return a tab at a URL, without a past."""
        while (tab := self._take(options, layout)) is not None:
            try:
                tab.renew(url)
            except EnvError:  # its browser has ended, or its page does not answer
                tab.close()
            else:
                return tab
        tab = Browsing(options, layout)
        try:
            tab.load(url)
        except BaseException:
            tab.close()
            raise
        return tab

    def give_back(self, tab: Browsing) -> None:
        """Keep a tab for later, or close it."""
        with self._lock:
            is_kept = (
                tab.can_be_renewed
                and tab.num_begun < _MAX_EPISODES
                and len(self._tabs) < _MAX_SPARES
            )
            if is_kept:
                self._tabs.append(tab)
        if not is_kept:
            tab.close()

    def _take(self, options: BrowserOptions, layout: Layout) -> Browsing | None:
        with self._lock:
            self._tabs = [tab for tab in self._tabs if tab.can_be_renewed]
            for number in range(len(self._tabs) - 1, -1, -1):
                if self._tabs[number].shows(options, layout):
                    return self._tabs.pop(number)
        return None
