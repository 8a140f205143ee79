"""The load that `agentgym bench env` puts on a server, and what is counted of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence

import psutil

WARM_UP_S = 1.0
MAX_START_S = 120.0
MIN_STEPS = 100
MAX_LONGER_S = 120.0
"""How much longer than asked a measurement may take until it has so many steps."""


class Load:
    """Counts the steps that coroutines take within a span of time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.latencies: list[float] = []
        self.num_ready = 0
        """Players that have done their first reset."""
        self.is_over = False
        self._is_counting = False

    async def step(self, call: Awaitable[object]) -> None:
        started = time.perf_counter()
        await call
        if self._is_counting:
            self.latencies.append(time.perf_counter() - started)

    def count(self, num_steps: int, seconds: float) -> None:
        """Count steps that were taken together."""
        if self._is_counting:
            self.latencies += [seconds] * num_steps

    async def run(
        self, players: Sequence[Awaitable[None]], server: psutil.Process
    ) -> tuple[float, float, float]:
        """Run the players; return the seconds, and the CPU-seconds of the server and of us."""
        tasks = [asyncio.ensure_future(player) for player in players]
        deadline = time.perf_counter() + MAX_START_S
        while self.num_ready < len(players) and time.perf_counter() < deadline:
            await asyncio.wait(tasks, timeout=0.1, return_when=asyncio.FIRST_EXCEPTION)
            if failed := [task for task in tasks if task.done()]:
                failed[0].result()
        await asyncio.sleep(WARM_UP_S)
        self._is_counting = True
        started, cpu, own_cpu = time.perf_counter(), cpu_seconds(server), time.process_time()
        done: set[asyncio.Future[None]] = set()
        while not done and self._goes_on(time.perf_counter() - started):
            left = started + self._seconds - time.perf_counter()
            done, _ = await asyncio.wait(
                tasks, timeout=max(left, 0.1), return_when=asyncio.FIRST_EXCEPTION
            )
        elapsed = time.perf_counter() - started
        cpu, own_cpu = cpu_seconds(server) - cpu, time.process_time() - own_cpu
        self._is_counting, self.is_over = False, True
        for task in done:
            task.result()
        await asyncio.gather(*tasks)
        return elapsed, cpu, own_cpu

    def _goes_on(self, elapsed: float) -> bool:
        if elapsed < self._seconds:
            return True
        return len(self.latencies) < MIN_STEPS and elapsed < self._seconds + MAX_LONGER_S


def cpu_seconds(process: psutil.Process) -> float:
    """Return what a process and its descendants have used."""
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        total += times.user + times.system
    return total
