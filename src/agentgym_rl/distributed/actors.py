"""Processes as Ray actors: an actor's only method is the main function that a process would have.

The actor opens the links of that function to the controller itself, by TCP; Ray places it, reports
its end and kills it. A link ends with either side, so an actor also ends with a killed controller.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError

Main = Callable[..., int]
"""Gets a list of links and its arguments; returns the status that a process would end with."""
_PLACE_TIMEOUT_S = 600.0
"""For Ray to find a place for an actor, as when a node was lost and another is to come."""
_KEEPALIVE_S = 15
"""After how long a silent link asks whether the other machine is there."""


@dataclass(frozen=True, slots=True)
class Way:
    """How an actor reaches the controller."""

    address: tuple[str, int]
    key: bytes
    number: int
    """Of the actor."""


class Host:
    """The actor."""

    def run(self, way: Way, num_links: int, main: Main, *arguments: object) -> int:
        """Call `main`; it returns its status, and the controller then ends the actor."""
        links = list[Connection]()
        for place in range(num_links):
            link = Client(way.address, family="AF_INET")
            answer_challenge(link, way.key)
            deliver_challenge(link, way.key)
            _prepare(link)
            link.send((way.number, place, os.getpid()))
            links.append(link)
        return main(links, *arguments)


class EngineHost(Host):
    """Hosts an engine; its name is what Ray shows."""


class VllmHost(Host):
    """Hosts a vLLM server."""


class RankHost(Host):
    """Hosts a learner rank."""


class WorkerHost(Host):
    """Plays episodes."""


class ActorProcess:
    """An actor as a process: a `HostedProcess`."""

    def __init__(self, actor: ActorHandle[Any], num_links: int) -> None:
        self._actor = actor
        self._links: list[Future[Connection]] = [Future() for _ in range(num_links)]
        self._ended = threading.Event()
        self._sentinel, self._held = socket.socketpair()
        self.exitcode: int | None = None
        self.pid: int | None = None
        """On its node; None until it has opened its links."""

    @property
    def sentinel(self) -> int:
        return self._sentinel.fileno()

    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def kill(self) -> None:
        with contextlib.suppress(RayError, ValueError):
            ray.kill(self._actor)

    def link(self, place: int = 0) -> Connection:
        """Wait for a link; raises EOFError where the actor ended before, TimeoutError where it was
        not even begun."""
        return self._links[place].result(_PLACE_TIMEOUT_S)

    def opened(self, place: int, pid: int, link: Connection) -> None:
        self.pid = pid
        self._links[place].set_result(link)

    def watch(self, status: ray.ObjectRef[int]) -> None:
        """Wait until it has ended, on a thread of its own."""
        try:
            self.exitcode = ray.get(status)
        except RayError:
            self.exitcode = -signal.SIGKILL  # or its node died
        self.kill()
        self._ended.set()
        for link in self._links:
            with contextlib.suppress(Exception):  # it was opened
                link.set_exception(EOFError("the actor has ended"))
        self._held.close()


class Actors:
    """Starts actors and takes the links that they open; `close` kills those that are left."""

    def __init__(self, address: str) -> None:
        """`address` is what the nodes call this machine."""
        self._key = secrets.token_bytes(32)
        self._listener = Listener((address, 0), family="AF_INET", backlog=64)
        self._lock, self._number = threading.Lock(), 0
        self._processes: dict[int, ActorProcess] = {}
        threading.Thread(target=self._accept, name="actor-links", daemon=True).start()

    def start(
        self,
        kind: type[Host],
        options: Mapping[str, object],
        num_links: int,
        main: Main,
        *arguments: object,
    ) -> ActorProcess:
        """Start an actor at once; it begins when Ray has found a place for it."""
        # Any: Ray makes methods of it that have no types.
        actor: Any = (
            ray.remote(kind).options(max_restarts=0, max_task_retries=0, **options).remote()
        )
        process = ActorProcess(actor, num_links)
        with self._lock:
            self._number += 1
            number = self._number
            self._processes[number] = process
        address = self._listener.address
        assert isinstance(address, tuple), "AF_INET"
        way = Way(address, self._key, number)
        status = actor.run.remote(way, num_links, main, *arguments)
        threading.Thread(
            target=self._watch, args=(number, process, status), name="actor-watch", daemon=True
        ).start()
        return process

    def close(self) -> None:
        """Kill all actors, and wait until they have ended."""
        with self._lock:
            left = list(self._processes.values())
        for process in left:
            process.kill()
        for process in left:
            process.join(10.0)
        self._listener.close()

    def _watch(self, number: int, process: ActorProcess, status: ray.ObjectRef[int]) -> None:
        process.watch(status)
        with self._lock:
            del self._processes[number]

    def _accept(self) -> None:
        while True:
            try:
                link = self._listener.accept()
            except OSError:
                return  # it was closed
            # A stranger may say nothing at all.
            threading.Thread(target=self._admit, args=(link,), daemon=True).start()

    def _admit(self, link: Connection) -> None:
        try:
            deliver_challenge(link, self._key)
            answer_challenge(link, self._key)
            _prepare(link)
            number, place, pid = link.recv()
            with self._lock:
                process = self._processes[number]
            process.opened(place, pid, link)
        except Exception:  # noqa: BLE001 - a stranger, or an actor that has died
            link.close()


def _prepare(link: Connection) -> None:
    """Send at once, and notice a machine that is gone."""
    with socket.socket(fileno=os.dup(link.fileno())) as end:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):  # Linux
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S // 3)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
