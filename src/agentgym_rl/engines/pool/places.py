"""The places of a pool: who fills them, who is the least loaded, and who follows one that died.

What serves in a place, its member, is an engine (pool.py) or a rollout worker (rollout/workers/):
something elsewhere that takes sessions and may end at any time. A session fails with its member;
another member is started in its place, until too many have died there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from agentgym_rl.engines.base import EngineDiedError
from agentgym_rl.engines.clock import stopped_clock
from agentgym_rl.errors import EngineError

logger = logging.getLogger(__name__)

MAX_DEATHS = 3
"""Of one place between two publications, or two steps; after that the others do its work."""


class Member(Protocol):
    """What a pool asks of whoever serves in a place."""

    @property
    def is_alive(self) -> bool:
        """Whether it is worth asking; one that ended is replaced."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it would answer now; one that brings its server back is chosen last."""
        ...

    def close(self) -> None: ...


MemberT = TypeVar("MemberT", bound=Member)


@dataclass(slots=True, eq=False)
class Place(Generic[MemberT]):
    """Where one member after another serves. The pool's lock guards it."""

    number: int
    member: MemberT | None = None
    is_current: bool = False
    """Whether the member may serve: an engine has the present weights."""
    is_held: bool = False
    """Whether replies wait, because its engine takes weights in its turn."""
    num_sessions: int = 0
    num_replies: int = 0
    """Under way."""
    num_deaths: int = 0
    """Since the last publication or step."""
    num_tokens: int = 0
    """Sampled since the metrics were taken."""
    lost_at: float | None = None
    """When a member was lost in whose place none serves yet."""

    @property
    def is_serving(self) -> bool:
        return self.member is not None and self.is_current and self.member.is_alive

    @property
    def is_given_up(self) -> bool:
        return self.num_deaths >= MAX_DEATHS

    def lose_member(self) -> None:
        if self.lost_at is None:
            self.lost_at = time.monotonic()
        self.member, self.is_current, self.is_held = None, False, False
        self.num_sessions = self.num_replies = 0
        self.num_deaths += 1


@dataclass(frozen=True, slots=True)
class Losses:
    """What was lost since the last call."""

    num_replaced: int
    seconds: float
    """From each loss until it was made good."""


class Places(Generic[MemberT]):
    """Owns the members; made with all of them ready."""

    def __init__(
        self,
        members: Sequence[MemberT],
        *,
        replace: Callable[[int], MemberT] | None,
        wait_s: float,
        noun: str,
    ) -> None:
        """`replace` makes the member of a place anew, and returns when it is ready.

        `wait_s` is the deadline of a session that waits for one; `noun` is what a member is called.
        """
        self._replace, self._wait_s, self._noun = replace, wait_s, noun
        self._places = [Place(number, member, True) for number, member in enumerate(members)]
        self._changed = threading.Condition()
        """Guards all below, and is notified when any of it changes."""
        self._waiting: list[asyncio.Future[None]] = []
        self._num_replaced = 0
        self._lost_s = 0.0
        """All since `_take_losses`."""
        self._is_closed = False
        self._end_starts: Callable[[], None] = lambda: None
        self._threads = ThreadPoolExecutor(max(1, len(members)), thread_name_prefix="pool")

    def close(self) -> None:
        """End all members, also those that are being started. Safe to repeat."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._wake()
        self._end_starts()
        self._of_all(lambda member: member.close())
        self._threads.shutdown(wait=False)
        self._closed()

    async def choose(self) -> tuple[Place[MemberT], MemberT]:
        """Return the least loaded member, with one more session; wait while none serves."""
        deadline = asyncio.get_running_loop().time() + self._wait_s
        while True:
            with self._changed:
                self._note_request()
                found = self._least_loaded()
                if found is not None:
                    return found
                waiting = self._wait()
            await self._woken(waiting, deadline)

    def leave(self, place: Place[MemberT] | None, member: MemberT | None) -> None:
        """Note the end of a session; those of a member that was replaced do not count."""
        with self._changed:
            if place is not None and place.member is member:
                place.num_sessions -= 1

    def ended(self, member: MemberT) -> None:
        """Replace a member that died, on a thread; called once for each that does."""
        with self._changed:
            place = next((place for place in self._places if place.member is member), None)
            if place is None or self._is_closed:
                return
            place.lose_member()
            self._wake()
        logger.warning("%s %d died and is replaced", self._noun, place.number)
        threading.Thread(
            target=self._restore, args=(place,), name="pool-restore", daemon=True
        ).start()

    def end_starts_by(self, end: Callable[[], None]) -> None:
        """Have `close` call this, which ends what `replace` is starting."""
        self._end_starts = end

    def _closed(self) -> None:
        """Give back what else a pool has; all members have ended."""

    def _note_request(self) -> None:
        """Note that somebody asks for a member or a reply. The lock is held."""

    def _bring_up_to_date(self, place: Place[MemberT], member: MemberT) -> None:
        """Let a member that has just been started serve, as soon as it can."""
        with self._changed:
            if place.member is member:
                self._note_current(place)
            self._wake()

    def _take_losses(self) -> Losses:
        """Return what was lost since the last call. The lock is held."""
        losses = Losses(self._num_replaced, self._lost_s)
        self._num_replaced, self._lost_s = 0, 0.0
        return losses

    def _restore(self, place: Place[MemberT]) -> None:
        """Fill a place again, or give it up."""
        while self._replace is not None and not (place.is_given_up or self._is_closed):
            try:
                member = self._replace(place.number)
            except Exception as error:  # noqa: BLE001 - nobody else would hear of it
                if self._is_closed:
                    return
                logger.warning("%s %d did not start again: %s", self._noun, place.number, error)
                with self._changed:
                    place.num_deaths += 1
                continue
            with self._changed:
                self._num_replaced += 1
                place.member = member
                is_late = self._is_closed
            if is_late:
                member.close()
            elif member.is_alive:
                self._bring_up_to_date(place, member)
            else:
                self.ended(member)  # between its start and its place it told nobody
            return
        if not self._is_closed:
            logger.error(
                "%s %d died %d times and is given up", self._noun, place.number, place.num_deaths
            )
        with self._changed:
            self._wake()

    def _note_current(self, place: Place[MemberT]) -> None:
        """Note that a member may serve, and since when one was missed. The lock is held."""
        place.is_current = True
        if place.lost_at is not None and place.is_serving:
            self._lost_s += time.monotonic() - place.lost_at
            place.lost_at = None

    def _least_loaded(self) -> tuple[Place[MemberT], MemberT] | None:
        """Return a member that serves, None if one may be there later. The lock is held."""
        if self._is_closed:
            raise EngineError(f"the {self._noun} is closed")
        serving = [
            (place, place.member)
            for place in self._places
            if place.member is not None and place.is_serving
        ]
        if not serving:
            if all(place.member is None and place.is_given_up for place in self._places):
                raise EngineDiedError(
                    f"all {len(self._places)} {self._noun}s have died, each {MAX_DEATHS} times or "
                    "more since the last step; their logs say why"
                )
            return None
        place, member = min(serving, key=lambda pair: (not pair[1].is_ready, pair[0].num_sessions))
        place.num_sessions += 1
        return place, member

    def _wait(self) -> asyncio.Future[None]:
        """Return what `_wake` settles. The lock is held."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        return waiting

    async def _woken(self, waiting: asyncio.Future[None], deadline: float) -> None:
        """Wait for a change, which is not the episode's time."""
        try:
            with stopped_clock():
                async with asyncio.timeout_at(deadline):
                    await waiting
        except TimeoutError:
            raise EngineError(f"no {self._noun} was ready within {self._wait_s:g} s") from None

    def _wake(self) -> None:
        """Let all who wait look again. The lock is held."""
        self._changed.notify_all()
        waiting, self._waiting = self._waiting, list[asyncio.Future[None]]()
        for future in waiting:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits
                future.get_loop().call_soon_threadsafe(_set, future)

    def _living(self) -> list[MemberT]:
        with self._changed:
            members = [place.member for place in self._places]
        return [member for member in members if member is not None and member.is_alive]

    def _of_all(self, work: Callable[[MemberT], None]) -> None:
        """Do something with all living members at once; one that dies of it is replaced."""

        def attempt(member: MemberT) -> None:
            try:
                work(member)
            except EngineError:
                if member.is_alive:
                    raise

        list(self._threads.map(attempt, self._living()))


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
