"""Says which sessions have the same keys and values, to the last bit.

The episodes of a group begin with the same prompt, and go on alike until they draw different
tokens. What a session has in the cache depends on its tokens and on where one pass ended and the
next began, and on nothing else: not on the other sessions, and not on its slot. Sessions with the
same history have the same lineage, a number, and one of them is computed for all.
"""

from __future__ import annotations

from collections.abc import Sequence

FRESH = 0
"""The lineage of a session without cached tokens."""

_MAX_KNOWN = 20_000
"""Beyond, what is known is forgotten: sessions with an earlier lineage then count as different."""


class Lineages:
    """Numbers histories; no number is given twice."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._newest = FRESH

    def after(self, lineage: int, ids: Sequence[int]) -> int:
        """Return the lineage of those of `lineage` that compute these tokens in one pass."""
        history = lineage, tuple(ids)
        found = self._known.get(history)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._newest += 1
            found = self._known[history] = self._newest
        return found
