"""The owners of the pages of the key-value cache: a ledger on the host, without tensors.

A page holds the keys and values of `PAGE_SIZE` successive tokens of one context, for all layers.
Full pages never change, so contexts with the same beginning can share them: a full page is known by
its tokens and by the page before it, and counts its holders. A page without holders is free, but
stays known until it is reused.

The device fills pages in the order of launches, and every layer writes the keys of a whole pass
before it reads any. A page may therefore be shared as soon as the pass that fills it is planned,
even within that pass.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

PAGE_SIZE = 16

SCRAP_PAGE = 0
"""Never assigned: rows that have nothing to keep write here."""

_PageKey = tuple[int, tuple[int, ...]]
"""The serial of the page before (0: none), and the page's tokens."""


def pages_for(num_tokens: int) -> int:
    """Return how many pages this many tokens need."""
    return -(-num_tokens // PAGE_SIZE)


@dataclass(slots=True)
class HeldPages:
    """The pages of one context, in order."""

    pages: list[int] = field(default_factory=list)
    num_known: int = 0
    """Leading pages that others can find, because they are full."""
    serial: int = 0
    """The serial of the last known page, which is part of the next one's key."""


class PagePool:
    """Pages 1 to `num_pages`: their holders, and their known contents."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = OrderedDict[int, None].fromkeys(range(1, num_pages + 1))
        self._num_holders: dict[int, int] = {}
        self._found: dict[_PageKey, int] = {}
        self._keys: dict[int, _PageKey] = {}
        self._serials: dict[int, int] = {}
        self._next_serial = 1

    @property
    def num_free(self) -> int:
        return len(self._free)

    def find(self, context: Sequence[int]) -> HeldPages:
        """Return, and hold, the known pages with which the context begins.

        The last token is left out: it must be computed to predict the next one.
        """
        held = HeldPages()
        for start in range(0, len(context) - PAGE_SIZE, PAGE_SIZE):
            page = self._found.get((held.serial, tuple(context[start : start + PAGE_SIZE])))
            if page is None:
                break
            self._free.pop(page, None)
            self._num_holders[page] = self._num_holders.get(page, 0) + 1
            held.pages.append(page)
            held.num_known += 1
            held.serial = self._serials[page]
        return held

    def extend(self, held: HeldPages, num_pages: int) -> bool:
        """Extend the context to `num_pages`; if too few are free, change nothing, return False."""
        missing = num_pages - len(held.pages)
        if missing > len(self._free):
            return False
        for _ in range(missing):
            page, _none = self._free.popitem(last=False)
            self._forget(page)
            self._num_holders[page] = 1
            held.pages.append(page)
        return True

    def shrink(self, held: HeldPages, num_pages: int) -> None:
        """Release all but the first `num_pages`."""
        for page in reversed(held.pages[num_pages:]):
            self._num_holders[page] -= 1
            if not self._num_holders[page]:
                del self._num_holders[page]
                self._free[page] = None
                if page not in self._keys:
                    self._free.move_to_end(page, last=False)
        del held.pages[num_pages:]
        if held.num_known > num_pages:
            assert num_pages == 0, "known pages are full, and full pages are kept or all dropped"
            held.num_known = held.serial = 0

    def make_known(self, held: HeldPages, context: Sequence[int], num_tokens: int) -> None:
        """Make the pages that the first `num_tokens` of the context fill known to others."""
        for index in range(held.num_known, num_tokens // PAGE_SIZE):
            tokens = tuple(context[index * PAGE_SIZE : (index + 1) * PAGE_SIZE])
            key = (held.serial, tokens)
            page = self._found.get(key)
            if page is None:
                page = held.pages[index]
                self._found[key], self._keys[page] = page, key
                self._serials[page] = self._next_serial
                self._next_serial += 1
            held.num_known = index + 1
            held.serial = self._serials[page]

    def forget_all(self) -> None:
        """Make all pages unknown; holders keep theirs."""
        for page in list(self._keys):
            self._forget(page)

    def _forget(self, page: int) -> None:
        key = self._keys.pop(page, None)
        if key is not None:
            del self._found[key]
            del self._serials[page]
