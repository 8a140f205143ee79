"""Servers that speak AgentGym's protocol, and deadlines and leases that do not race the machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from agentgym_clients import Lab, serving
from agentgym_rl.envs.execution import guarded
from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.envs.scenarios.textcraft.env import TextCraft
from agentgym_rl.envs.service.server import session, session_store
from fakes import HANGING, end_hangs


@pytest.fixture(scope="module")
def textcraft() -> Iterator[str]:
    with serving(TextCraft) as (url, _):
        yield url


@pytest.fixture(scope="module")
def babyai() -> Iterator[str]:
    with serving(BabyAI) as (url, _):
        yield url


@pytest.fixture(scope="module")
def sciworld() -> Iterator[str]:
    with serving(Lab) as (url, _):
        yield url


@pytest.fixture(autouse=True)
def no_hang_is_left() -> Iterator[None]:
    yield
    end_hangs()


class _DoneUnlessHanging(threading.Event):
    """Waits with a limit for a call that hangs, and without one for any other."""

    def __init__(self) -> None:
        super().__init__()
        self._num_hanging = len(HANGING)

    def wait(self, timeout: float | None = None) -> bool:
        while not super().wait(0.005):
            if len(HANGING) > self._num_hanging:
                return super().wait(timeout)
        return True


@pytest.fixture
def patient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the deadlines of guarded environments begin when a call hangs."""

    class PatientCall(guarded._BlockingCall):
        def __init__(self, function: Callable[[], object]) -> None:
            super().__init__(function)
            self.is_done = _DoneUnlessHanging()

    monkeypatch.setattr(guarded, "_BlockingCall", PatientCall)


@pytest.fixture
def patient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let servers of this process enforce deadlines only while a call hangs."""
    enforce = session_store.SessionStore.enforce_deadlines

    def enforce_on_hangs(store: session_store.SessionStore) -> None:
        if HANGING:
            enforce(store)

    monkeypatch.setattr(session_store.SessionStore, "enforce_deadlines", enforce_on_hangs)


@pytest.fixture
def skip_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Give a function that moves the clock of leases in servers of this process by seconds."""
    skipped_s = 0.0

    def skip(seconds: float) -> None:
        nonlocal skipped_s
        skipped_s += seconds

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + skipped_s)
    monkeypatch.setattr(session_store, "time", clock)
    monkeypatch.setattr(session, "time", clock)
    return skip
