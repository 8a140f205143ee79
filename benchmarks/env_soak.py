"""`agentgym bench soak`: an environment server over many episodes, watched for leaks.

A thousand clients at once open an episode, play a plan and close it, a hundred thousand times in
all. Memory, threads, file descriptors and processes of the server (all its processes together) are
read while they do; some clients vanish without closing, so that the reaper has work. At the end
everything must be where it was after the warm-up: the program says so and fails where it is not.
With `--servers` it is several servers that hold the episodes (env_hold.py).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from bench_arguments import positive, whole_from
from env_bench import NUM_PLANS, SCENARIOS, Plan, make_plans, our_server
from env_hold import run_hold
from rich.console import Console

from agentgym_rl.envs.service.client.http import HttpEnvSource

MAX_GROWTH = 0.05
_SHARE_VANISHING = 0.002
_WARM_UP_SHARE = 0.2
_NUM_SAMPLES = 25


@dataclass(frozen=True, slots=True)
class Sample:
    """What the server holds at one moment."""

    num_done: int
    """Episodes played so far."""
    seconds: float
    rss_mb: float
    num_threads: int
    num_fds: int
    num_processes: int

    def __str__(self) -> str:
        return (
            f"{self.num_done:>8,} episodes {self.seconds:>7.1f} s {self.rss_mb:>8.1f} MB "
            f"{self.num_threads:>5} threads {self.num_fds:>5} descriptors "
            f"{self.num_processes:>3} processes"
        )


def sample(server: psutil.Process, num_done: int, started: float) -> Sample:
    """Read the server and its descendants."""
    processes = [server, *server.children(recursive=True)]
    return Sample(
        num_done,
        time.monotonic() - started,
        sum(process.memory_info().rss for process in processes) / 2**20,
        sum(process.num_threads() for process in processes),
        sum(process.num_fds() for process in processes),
        len(processes),
    )


async def soak(
    url: str, server: psutil.Process, plans: Sequence[Plan], chosen: argparse.Namespace
) -> tuple[list[Sample], Sample]:
    """Play all episodes; return samples under load, and one when all is over."""
    console = Console()
    numbers = itertools.count()
    num_done, samples, started = 0, list[Sample](), time.monotonic()
    every = max(1, chosen.total // _NUM_SAMPLES)
    async with HttpEnvSource(url) as source:

        async def play() -> None:
            nonlocal num_done
            while (number := next(numbers)) < chosen.total:
                draw = random.Random(number)
                plan = draw.choice(plans)
                client = await source.open()
                await client.reset(plan.task)
                for action in plan.actions[: chosen.rounds]:
                    await client.step(action)
                if draw.random() >= _SHARE_VANISHING:
                    await client.close()
                num_done += 1
                if num_done % every == 0:
                    samples.append(sample(server, num_done, started))
                    console.print(str(samples[-1]), soft_wrap=True)

        await asyncio.gather(*(play() for _ in range(chosen.episodes)))
        deadline = time.monotonic() + 3 * chosen.lease
        while (health := await source.health()).num_episodes and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        console.print(f"at the end: {health}", soft_wrap=True)
    await asyncio.sleep(2.0)
    return samples, sample(server, num_done, started)


def judge(samples: Sequence[Sample], end: Sample, num_episodes: int) -> list[str]:
    """Return what grew, in words."""
    warm = [one for one in samples if one.num_done >= _WARM_UP_SHARE * samples[-1].num_done]
    early, late = warm[: len(warm) // 4], warm[-(len(warm) // 4) :]
    problems = []
    for name, slack in (("rss_mb", 0.0), ("num_threads", 2.0), ("num_fds", 8.0)):
        before = max(getattr(one, name) for one in early)  # three columns, judged alike
        after = max(getattr(one, name) for one in late)
        growth = (after - before) / before
        print(f"{name}: {before:.1f} -> {after:.1f} ({growth:+.1%})")  # noqa: T201 - a program
        if after > before * (1 + MAX_GROWTH) + slack:
            problems.append(f"{name} grew by {growth:.1%}")
    if len({one.num_processes for one in (*warm, end)}) > 1:
        problems.append("the number of processes changed")
    if num_episodes:
        problems.append(f"{num_episodes} episodes are left")
    return problems


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench soak", description="Leaks of a server.")
    parser.add_argument("--env", choices=SCENARIOS, default="textcraft")
    parser.add_argument("--episodes", type=whole_from(1), default=1000, help="episodes at once")
    parser.add_argument("--total", type=whole_from(1), default=100_000, help="episodes in all")
    parser.add_argument(
        "--rounds", type=whole_from(1), default=10, help="most rounds of an episode"
    )
    parser.add_argument("--workers", type=whole_from(1), default=1)
    parser.add_argument(
        "--lease", type=positive, default=20.0, help="seconds the server keeps an episode unused"
    )
    parser.add_argument(
        "--servers",
        type=whole_from(1),
        help="have this many servers, each with a worker, hold `--episodes` at once: open and "
        "close them three times, then kill a server",
    )
    chosen = parser.parse_args(arguments)
    plans = make_plans(chosen.env, NUM_PLANS[chosen.env])
    if chosen.servers is not None:
        run_hold(chosen, plans)
        return
    with our_server(chosen.env, chosen.workers, lease_s=chosen.lease) as (url, server):
        samples, end = asyncio.run(soak(url, server, plans, chosen))
        num_left = asyncio.run(_num_episodes(url))
    print(end)  # noqa: T201 - a program
    problems = judge(samples, end, num_left)
    if problems:
        raise SystemExit("; ".join(problems))
    print("nothing leaks")  # noqa: T201 - a program


async def _num_episodes(url: str) -> int:
    async with HttpEnvSource(url) as source:
        return (await source.health()).num_episodes


if __name__ == "__main__":
    main()
