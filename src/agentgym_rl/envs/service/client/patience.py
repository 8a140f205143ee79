"""How long a server that cannot be reached is waited for: by time, not by a count of tries.

    outages = Outages(url)                  # one for each server
    answer = await outages.outlast(send, is_away=..., timeout_s=60)

Which failures mean that a call may be sent again is for the clients to say. Where other servers
have the same environment (access/pool.py), a call gives up soon, and its episode starts again on
one of them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

logger = logging.getLogger(__name__)

OUTAGE_S = 120.0
"""A server that is restarted is back by then: ours takes 5 s with BabyAI and up to a minute with
simulators of others, and a container or a machine has its own time to start."""
_FIRST_CONTACT_S = 15.0
"""For a server that has never answered: it may be starting, but the address may be wrong as well,
which should show soon."""
_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 2.0
_BUSY_PAUSE_S = 1.0
_T = TypeVar("_T")
_ELSEWHERE_S = 1.0
"""For a server that is one of several: a connection may break, but a server that died is not waited
for while others serve."""
_NOTED_AFTER_S = 1.0
"""A connection that breaks now and then is not worth a line in the log."""


class Outages:
    """What is known of one server's being away; shared by all calls to it.

    While `has_others` returns true, a call waits no longer than a moment for a server that is
    away, and not at all for a place.
    """

    def __init__(
        self, url: str, max_s: float = OUTAGE_S, *, has_others: Callable[[], bool] = lambda: False
    ) -> None:
        self._url = url
        self._max_s = max_s
        self._has_others = has_others
        self._has_answered = False
        self._noted_at: float | None = None

    async def outlast(
        self,
        send: Callable[[], Awaitable[_T]],
        *,
        is_away: Callable[[Exception], Awaitable[bool]],
        is_busy: Callable[[_T], bool] = lambda answer: False,
        timeout_s: float,
        max_s: float | None = None,
    ) -> _T:
        """Return what `send` returns, sent again while the server is away or has no free place.

        Every try has `timeout_s`, and so has the wait for a place, after which the answer that
        says "busy" is returned. `is_away` says whether an exception calls for another try;
        `max_s` limits the wait for a server that is away, as in `tries`.
        """
        loop = asyncio.get_running_loop()
        tries, deadline = self.tries(max_s=max_s), loop.time() + timeout_s
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await send()
            except Exception as error:
                if not await is_away(error):
                    raise
                await tries.pause(error)
                deadline = loop.time() + timeout_s
                continue
            self._note_answer()
            is_late = loop.time() + 1.5 * _BUSY_PAUSE_S > deadline
            if not is_busy(answer) or is_late or self._has_others():
                return answer
            # Jitter, so that episodes that found no place together do not come back together.
            await asyncio.sleep(_BUSY_PAUSE_S * random.uniform(1.0, 1.5))
            tries = self.tries(max_s=max_s)

    def tries(self, *, max_s: float | None = None) -> Tries:
        """Return the tries of a call that begins now; `max_s` may be less than the default."""
        limit_s = self._max_s if self._has_answered else min(self._max_s, _FIRST_CONTACT_S)
        return Tries(self, limit_s if max_s is None else min(max_s, limit_s))

    def _note_answer(self) -> None:
        self._has_answered = True
        if self._noted_at is not None:
            away_s = asyncio.get_running_loop().time() - self._noted_at
            logger.warning("the server at %s answers again, after %.0f s", self._url, away_s)
            self._noted_at = None

    def limit_s(self, max_s: float) -> float:
        """Return how much of `max_s` a call may wait as things are now."""
        return min(max_s, _ELSEWHERE_S) if self._has_others() else max_s

    def note(self, error: Exception, since: float, max_s: float) -> None:
        """Say once that the server is away."""
        if self._noted_at is None:
            self._noted_at = since
            logger.warning(
                "the server at %s does not answer (%s); waiting for it up to %g s",
                self._url, str(error) or type(error).__name__, max_s,
            )  # fmt: skip


class Tries:
    """The pauses between the tries of one call."""

    def __init__(self, outages: Outages, max_s: float) -> None:
        self._outages = outages
        self._max_s = max_s
        self._since = asyncio.get_running_loop().time()
        self._num_failures = 0

    async def pause(self, error: Exception) -> None:
        """Wait before the next try, each time longer; raise `error` where the time is over."""
        away_s = asyncio.get_running_loop().time() - self._since
        pause_s = min(_FIRST_PAUSE_S * 2**self._num_failures, _MAX_PAUSE_S)
        # Jitter, so that episodes that failed together do not come back together.
        pause_s *= random.uniform(1.0, 1.5)
        max_s = self._outages.limit_s(self._max_s)
        if away_s + pause_s > max_s:
            raise error
        if away_s > _NOTED_AFTER_S:
            self._outages.note(error, self._since, max_s)
        self._num_failures += 1
        await asyncio.sleep(pause_s)
