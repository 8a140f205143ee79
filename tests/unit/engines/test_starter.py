"""What a pool is starting when it closes ends with it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from agentgym_rl.engines.pool.places import Places
from agentgym_rl.engines.pool.starter import Starter
from agentgym_rl.errors import EngineError
from waiting import wait_for


class Member:
    """Ready at once, or only when it is closed."""

    def __init__(self, *, is_ready: bool) -> None:
        self.is_ready, self.is_alive = is_ready, True
        self._closed = threading.Event()

    def ready(self) -> None:
        if not self.is_ready:
            assert self._closed.wait(60)
            raise EngineError("it was closed")

    def close(self) -> None:
        self.is_alive = False
        self._closed.set()


def pool_that_starts_another() -> tuple[Places[Member], Starter[Member], list[Member]]:
    """Return a pool whose member has died, while the one in its place does not become ready."""
    made = list[Member]()

    def begin(_place: int, _on_end: Callable[[Member], None]) -> Member:
        made.append(Member(is_ready=not made))
        return made[-1]

    starter = Starter(begin)
    members = starter.all(1)
    pool = Places(members, replace=starter.one, wait_s=1.0, noun="engine")
    starter.report_to(pool, members)
    members[0].is_alive = False
    pool.ended(members[0])
    wait_for(lambda: len(made) == 2)
    return pool, starter, made


def test_a_member_that_is_being_started_ends_with_its_pool():
    pool, _, made = pool_that_starts_another()
    pool.close()
    wait_for(lambda: not any(member.is_alive for member in made))


def test_nothing_is_started_for_a_pool_that_was_closed():
    pool, starter, made = pool_that_starts_another()
    pool.close()
    with pytest.raises(EngineError, match="the pool is closed"):
        starter.one(0)
    assert len(made) == 3 and not made[2].is_alive
