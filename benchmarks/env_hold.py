"""`agentgym bench soak --servers N`: many episodes held open by several servers at once.

The servers are started as a run starts its own (`cluster.env_servers`), and used as one. Three
times all episodes are opened, stepped and closed: the servers' memory must be flat. Then all are
opened once more and a server is killed: only its own episodes may be lost, and as many find places
again. At first a step through a pool is compared with a step through a single client of the same
server, by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psutil
from env_bench import Plan
from rich.console import Console

from agentgym_rl.config import EnvConfig
from agentgym_rl.envs.access.places import AddressPlace
from agentgym_rl.envs.access.pool import EnvPool
from agentgym_rl.envs.access.server_process import ServerOrder, ServerProcess, start_here
from agentgym_rl.envs.access.sources import make_source
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.errors import EnvAwayError

MAX_GROWTH = 0.05
MAX_POOL_MS = 0.05
NUM_ROUNDS = 3
_NUM_AT_ONCE = 512
_NUM_COMPARED, _NUM_REPEATS = 128, 9
_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step costs the process that plays."""

    wall_ms: float
    cpu_ms: float


@asynccontextmanager
async def pool_of(env: str, num_servers: int) -> AsyncIterator[tuple[EnvPool, list[ServerProcess]]]:
    """Give a pool of servers started here, and these in the order of their starts."""
    started: list[ServerProcess] = []

    async def start(order: ServerOrder) -> ServerProcess:
        server = await start_here(order)
        started.append(server)
        return server

    source = make_source(EnvConfig(name=env), num_servers=num_servers, start=start)
    assert isinstance(source, EnvPool), "servers were asked for"
    async with source:
        yield source, started


def tree_of(servers: Sequence[ServerProcess]) -> list[psutil.Process]:
    """Return the servers that live, and their descendants."""
    roots = [psutil.Process(server.pid) for server in servers if psutil.pid_exists(server.pid)]
    return [*roots, *(child for root in roots for child in root.children(recursive=True))]


def rss_mb(processes: Sequence[psutil.Process]) -> float:
    return sum(process.memory_info().rss for process in processes) / 2**20


async def opened(source: EnvSource, plans: Sequence[Plan], count: int) -> list[EnvClient]:
    """Return so many episodes, each with one round."""
    places = asyncio.Semaphore(_NUM_AT_ONCE)

    async def begin(number: int) -> EnvClient:
        plan = random.Random(number).choice(plans)
        async with places:
            client = await source.open()
            await client.reset(plan.task)
            await client.step(plan.actions[0])
        return client

    return await asyncio.gather(*map(begin, range(count)))


async def closed(clients: Sequence[EnvClient]) -> None:
    places = asyncio.Semaphore(_NUM_AT_ONCE)

    async def close(client: EnvClient) -> None:
        async with places:
            await client.close()

    await asyncio.gather(*map(close, clients))


async def compare_steps(
    server: ServerProcess, plans: Sequence[Plan]
) -> tuple[list[StepCost], list[StepCost]]:
    """Return costs of a step with one client, and through a pool, of the same server by turns."""

    def connect(url: str, has_others: object = None) -> HttpEnvSource:
        return HttpEnvSource(url, token=server.token)

    place = AddressPlace(server.url, connect, is_checked=True)
    async with connect(server.url) as single, EnvPool([place], timeout_s=60.0) as pool:
        costs: tuple[list[StepCost], list[StepCost]] = ([], [])
        for _ in range(_NUM_REPEATS):
            for source, found in zip((single, pool), costs, strict=True):
                found.append(await _step_cost(source, plans))
    return costs


async def _step_cost(source: EnvSource, plans: Sequence[Plan]) -> StepCost:
    clients = [await source.open() for _ in range(_NUM_COMPARED)]
    chosen = [random.Random(number).choice(plans) for number in range(_NUM_COMPARED)]

    async def play(client: EnvClient, plan: Plan) -> None:
        for action in plan.actions:
            await client.step(action)

    for client, plan in zip(clients, chosen, strict=True):
        await client.reset(plan.task)
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(play, clients, chosen))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    await closed(clients)
    num_steps = sum(len(plan.actions) for plan in chosen)
    return StepCost(1000 * wall / num_steps, 1000 * cpu / num_steps)


def show_costs(single: Sequence[StepCost], pool: Sequence[StepCost], console: Console) -> float:
    """Print what a pool adds; return its milliseconds of processor per step."""
    added = 0.0
    for what, a, b in (
        ("wall", [cost.wall_ms for cost in single], [cost.wall_ms for cost in pool]),
        ("processor", [cost.cpu_ms for cost in single], [cost.cpu_ms for cost in pool]),
    ):
        one, other = statistics.median(a), statistics.median(b)
        added = other - one
        console.print(
            f"{what} per step: one client {one:.4f} ms, pool {other:.4f} ms: "
            f"{added:+.4f} ms, x{other / one:.3f}"
        )
    return added


async def lose_one(
    pool: EnvPool, servers: Sequence[ServerProcess], plans: Sequence[Plan], count: int
) -> list[str]:
    """Kill a server with its share of the episodes open; return what is not as it should be."""
    num_servers = len(servers)
    clients = await opened(pool, plans, count)
    psutil.Process(servers[0].pid).kill()
    places = asyncio.Semaphore(_NUM_AT_ONCE)

    async def is_lost(client: EnvClient) -> bool:
        async with places:
            try:
                await client.observation()
            except EnvAwayError:
                return True
        return False

    started = time.monotonic()
    num_lost = sum(await asyncio.gather(*map(is_lost, clients)))
    lost_s = time.monotonic() - started
    again = await opened(pool, plans, num_lost)
    metrics = pool.take_metrics()
    await closed([*clients, *again])
    print(  # noqa: T201 - a program
        f"killed one of {num_servers} servers: {num_lost:,} of {count:,} episodes lost, known "
        f"after {lost_s:.1f} s; {len(again):,} opened again by {time.monotonic() - started:.1f} s; "
        f"{metrics}"
    )
    share = count / num_servers
    if abs(num_lost - share) > 1 or metrics["cluster/episodes_lost"] != num_lost:
        return [f"{num_lost} episodes were lost, and the server had {share:g}"]
    return []


async def hold(chosen: argparse.Namespace, plans: Sequence[Plan]) -> list[str]:
    """Hold the episodes; return what is not as it should be."""
    console, problems = Console(soft_wrap=True), list[str]()
    async with pool_of(chosen.env, chosen.servers) as (pool, servers):
        added = show_costs(*await compare_steps(servers[0], plans), console)
        if added > MAX_POOL_MS:
            problems.append(f"a pool adds {added:.3f} ms per step")
        held = []
        for number in range(1, NUM_ROUNDS + 1):
            started = time.monotonic()
            clients = await opened(pool, plans, chosen.episodes)
            opened_s = time.monotonic() - started
            family = tree_of(servers)
            held.append(rss_mb(family))
            await closed(clients)
            console.print(
                f"round {number}: {len(clients):,} episodes on {chosen.servers} servers in "
                f"{opened_s:.1f} s: {held[-1]:.1f} MB in {len(family)} processes; "
                f"{rss_mb(family):.1f} MB when closed; {rss_mb([psutil.Process()]):.1f} MB here"
            )
        growth = held[-1] / held[0] - 1
        console.print(f"memory of the servers: {growth:+.1%} from the first round to the last")
        if growth > MAX_GROWTH:
            problems.append(f"the memory of the servers grew by {growth:.1%}")
        if chosen.servers > 1:
            problems += await lose_one(pool, servers, plans, chosen.episodes)
        family = tree_of(servers)
    _, alive = psutil.wait_procs(family, 30)
    return [*problems, *(f"process {process.pid} is left" for process in alive)]


def run_hold(chosen: argparse.Namespace, plans: Sequence[Plan]) -> None:
    problems = asyncio.run(asyncio.wait_for(hold(chosen, plans), _DEADLINE_S))
    if problems:
        raise SystemExit("; ".join(problems))
    print("the servers hold")  # noqa: T201 - a program
