"""`agentgym bench web-load`: what episodes on the shop cost, one alone and many at once.

Reported are the seconds to build the template and to start the process, the milliseconds of a
reset, the processor time of a round on a page of about 1,000 nodes (browser, driver and site each),
and for many episodes at once rounds per second, the slowest rounds, failures and memory.
"""

from __future__ import annotations

import argparse
import itertools
import os
import secrets
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
from bench_arguments import whole_from
from rich.console import Console

from agentgym_rl.envs.scenarios.web.env import WebEnvironment
from agentgym_rl.envs.scenarios.web.site_process import SiteProcess, shared_process
from agentgym_rl.envs.scenarios.web.table import Entry, find
from agentgym_rl.errors import EnvError

_BIG_PAGE = "goto [http://shop.test/catalogue/?page={page}]"
_NUM_RESETS = 200
_PARTS = ("browser", "driver", "site")


def processes() -> dict[str, list[psutil.Process]]:
    """Return this process and its descendants by their part in a round."""
    found: dict[str, list[psutil.Process]] = {part: [] for part in _PARTS}
    found["driver"].append(psutil.Process())
    for process in psutil.Process().children(recursive=True):
        try:
            name, words = process.name(), " ".join(process.cmdline())
        except psutil.Error:
            continue  # it has just ended
        is_browser = "headless" in name or "chrom" in name
        is_site = "sites.serve" in words
        found["browser" if is_browser else "site" if is_site else "driver"].append(process)
    return found


def cpu_s() -> dict[str, float]:
    """Return the processor time that each part has used."""
    used = dict.fromkeys(_PARTS, 0.0)
    for part, several in processes().items():
        for process in several:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            used[part] += times.user + times.system
    return used


def memory_mb(part: str) -> float:
    """Return the memory of a part, where shared pages are counted once (PSS)."""
    total = 0.0
    for process in processes()[part]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 2**20


def measure_start(console: Console) -> None:
    """Build a template from nothing, start its process, and reset episodes."""
    with tempfile.TemporaryDirectory() as folder, caching_in(Path(folder)):
        site = SiteProcess("shop")
        started = time.monotonic()
        site.create("first")
        first = time.monotonic() - started
        site.close()
        started = time.monotonic()
        site.create("again")
        console.print(
            f"first use (template built) {first:.1f} s, "
            f"later start {time.monotonic() - started:.1f} s"
        )
        times = list[float]()
        for number in range(_NUM_RESETS):
            started = time.perf_counter()
            episode = site.create(f"key-{number}")
            times.append(1000 * (time.perf_counter() - started))
            site.delete(episode)
        console.print(
            f"reset of the site: median {statistics.median(times):.1f} ms, "
            f"95th percentile {sorted(times)[int(0.95 * len(times))]:.1f} ms"
        )
        site.close()


@contextmanager
def caching_in(folder: Path) -> Iterator[None]:
    """Let templates be built in a folder of its own."""
    before = os.environ.get("AGENTGYM_CACHE")
    os.environ["AGENTGYM_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("AGENTGYM_CACHE")
        if before is not None:
            os.environ["AGENTGYM_CACHE"] = before


def measure_rounds(entry: Entry, num_rounds: int, console: Console) -> None:
    """Open long lists of products, one after another, in one episode."""
    with closing(WebEnvironment()) as env:
        env.start(entry)
        env.step(_BIG_PAGE.format(page=1))
        before = cpu_s()
        for page in range(2, 2 + num_rounds):
            env.step(_BIG_PAGE.format(page=page))
        after = cpu_s()
    parts = ", ".join(
        f"{part} {1000 * (after[part] - before[part]) / num_rounds:.0f}" for part in _PARTS
    )
    console.print(f"CPU ms per round on a list of 20 products: {parts} ({num_rounds} rounds)")


def play_for(env: WebEnvironment, entries: Iterator[Entry], until: float, log: list[float]) -> int:
    """Play experts' episodes one after another until it is time; return how many."""
    num_episodes = 0
    while time.monotonic() < until:
        num_episodes += 1
        env.start(next(entries))
        while (action := env.expert_action()) is not None and time.monotonic() < until:
            started = time.monotonic()
            result = env.step(action)
            log.append(time.monotonic() - started)
            if result.terminated:
                break
    return num_episodes


def by_quarter(sizes: Sequence[float]) -> str:
    """Return the mean of each quarter: memory that grows shows."""
    quarters = [sizes[n * len(sizes) // 4 : (n + 1) * len(sizes) // 4] for n in range(4)]
    return ", ".join(f"{statistics.mean(part):.0f}" for part in quarters if part)


def measure_many(
    entries: Sequence[Entry], num_episodes: int, seconds: float, console: Console
) -> None:
    """Play many episodes at once and report rounds, failures and memory."""
    shared_process("shop").delete(shared_process("shop").create(secrets.token_hex(8)))
    places = itertools.cycle(entries)
    lock = threading.Lock()

    def draw() -> Iterator[Entry]:
        while True:
            with lock:
                entry = next(places)
            yield entry

    rounds, failures = list[float](), list[str]()
    until = time.monotonic() + seconds
    before, began = cpu_s(), time.monotonic()

    def play(_: int) -> int:
        with closing(WebEnvironment()) as env:
            try:
                return play_for(env, draw(), until, rounds)
            except EnvError as error:
                failures.append(str(error))
                return 0

    sizes: dict[str, list[float]] = {"browser": [], "site": []}
    with ThreadPoolExecutor(num_episodes) as pool:
        running = pool.map(play, range(num_episodes))
        while time.monotonic() < until - 5:
            time.sleep(5)
            for part, log in sizes.items():
                log.append(memory_mb(part))
        num_played = sum(running)
    lasted, after = time.monotonic() - began, cpu_s()
    parts = ", ".join(
        f"{p} {1000 * (after[p] - before[p]) / max(1, len(rounds)):.0f}" for p in _PARTS
    )
    slow = sorted(rounds)[int(0.95 * len(rounds))] if rounds else 0.0
    console.print(
        f"{num_episodes} episodes at once: {len(rounds)} rounds in {lasted:.0f} s "
        f"({len(rounds) / lasted:.2f} per second), 95th percentile of a round {slow:.1f} s, "
        f"{len(failures)} failures {failures[:3]}"
    )
    console.print(f"CPU ms per round: {parts}")
    most = max(sizes["browser"], default=0)
    console.print(
        f"memory: browser {most:.0f} MB at most ({most / num_episodes:.0f} per context); means of "
        f"the four quarters of {num_played} episodes: browser {by_quarter(sizes['browser'])} MB, "
        f"site {by_quarter(sizes['site'])} MB"
    )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench web-load", description=__doc__)
    parser.add_argument("--episodes", type=whole_from(1), default=32, help="at once")
    parser.add_argument("--seconds", type=whole_from(10), default=90, help="for many at once")
    parser.add_argument("--rounds", type=whole_from(1), default=20, help="of one episode alone")
    parser.add_argument("--no-build", action="store_true", help="leave out the template's building")
    options = parser.parse_args(list(arguments))
    console = Console(soft_wrap=True)
    if not options.no_build:
        measure_start(console)
    tasks = [find(task.index) for task in WebEnvironment.tasks("train")]
    entries = [entry for entry in tasks if entry.template.sites == ("shop",)]
    measure_rounds(entries[0], options.rounds, console)
    measure_many(entries, options.episodes, options.seconds, console)
    shared_process("shop").close()
