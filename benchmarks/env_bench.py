"""`agentgym bench env`: environment servers under load, each beside its baselines, in one run.

For every scenario the same plans (a task and the expert's actions) are played
- in a bare loop of this process, the cost of the environment itself; beside a busy process, as a
  server has its client beside it (on shared or virtual cores a CPU-second is then worth less),
- on a server written in the manner of AgentGym's (baseline_server.py),
- on our server with one request a step, and with calls batched, each through our own client,
- on our server in batches with the least client that there can be, as the baseline server has one,
by 1, 64, 256 and 1,024 episodes at once. SciWorld is also stepped by the package's own `step()`
and by direct calls to its simulator.

A row says steps a second, latency of a step, and steps a CPU-second of the server (all its
processes, Java included), with their ratios to the baselines. Resets are not counted as steps, but
their time is in every figure, the bare loop's too. A measurement goes on for `--seconds`, and on
until it has the steps that a 99th percentile needs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import aiohttp
import psutil
from bench_arguments import number_from, whole_from, whole_list
from env_load import MIN_STEPS, Load, cpu_seconds
from rich.console import Console
from rich.table import Table

from agentgym_rl.envs import registry
from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.client.http import HttpEnvSource
from agentgym_rl.serving import bodies
from agentgym_rl.types import Task

SCENARIOS = ("textcraft", "babyai", "sciworld")
NUM_PLANS = {"textcraft": 200, "babyai": 100, "sciworld": 24}
MAX_PLAN_ROUNDS = 30
MIN_S = 0.5
"""A system counts CPU time in hundredths of a second."""
_BASELINE = Path(__file__).with_name("baseline_server.py")


@dataclass(frozen=True, slots=True)
class Plan:
    """A task and actions to play in it."""

    task: Task
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """How one way of stepping did."""

    scenario: str
    way: str
    num_episodes: int
    """Episodes at once."""
    steps_per_s: float
    steps_per_cpu_s: float
    """Of the process that steps; without the client where that is another."""
    bare_steps_per_cpu_s: float
    """Of the bare loop, right after: what a CPU-second is worth drifts on some machines."""
    client_cores: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0


def make_plans(scenario: str, num_plans: int) -> list[Plan]:
    """Return plans of the expert over tasks of the training split; one may stop before its end."""
    cls = registry.env_class(scenario)
    env = registry.make(scenario, {})
    plans = []
    for task in random.Random(0).sample(list(cls.tasks("train")), num_plans):
        env.reset(task)
        actions: list[str] = []
        while len(actions) < MAX_PLAN_ROUNDS and (action := env.expert_action()) is not None:
            actions.append(action)
            if env.step(action).is_last:
                break
        plans.append(Plan(task, tuple(actions)))
    env.close()
    return plans


def measure_bare_loop(scenario: str, plans: Sequence[Plan], seconds: float) -> Measurement:
    """Step one environment object in this process."""
    env = registry.make(scenario, {})

    def play(plan: Plan) -> None:
        env.reset(plan.task)
        for action in plan.actions:
            env.step(action)

    measurement = measure_loop(scenario, "bare loop", plans, play, seconds=seconds)
    env.close()
    return measurement


def measure_loop(
    scenario: str,
    way: str,
    plans: Sequence[Plan],
    play: Callable[[Plan], None],
    *,
    seconds: float,
) -> Measurement:
    """Play plans one after another in this process (and its descendants) for a while."""
    play(plans[0])
    process = psutil.Process()
    with busy_neighbour() as neighbour:
        num_steps, started = 0, time.perf_counter()
        cpu = cpu_seconds(process) - cpu_seconds(neighbour)
        while num_steps < MIN_STEPS or time.perf_counter() - started < seconds:
            for plan in plans:
                play(plan)
                num_steps += len(plan.actions)
                if num_steps >= MIN_STEPS and time.perf_counter() - started >= 2 * seconds:
                    break
        elapsed = time.perf_counter() - started
        used = cpu_seconds(process) - cpu_seconds(neighbour) - cpu
    rate = num_steps / used
    return Measurement(scenario, way, 1, num_steps / elapsed, rate, bare_steps_per_cpu_s=rate)


@contextmanager
def busy_neighbour() -> Iterator[psutil.Process]:
    """Keep another core busy with Python."""
    program = "while True:\n    {number: str(number) for number in range(1000)}"
    process = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


@contextmanager
def running(command: Sequence[str]) -> Iterator[tuple[str, psutil.Process]]:
    """Start a server that prints its address; give the address and the process."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        urls = [word for word in words if word.startswith("http://")]
        if not urls:
            raise RuntimeError(f"the server did not start: {' '.join(command)}")
        yield urls[0], psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def our_server(
    scenario: str, num_workers: int, *, lease_s: float = 600.0
) -> Iterator[tuple[str, psutil.Process]]:
    """Start `agentgym serve`."""
    program = "from agentgym_rl.cli.main import main; main()"
    options = ("--port", "0", "--workers", str(num_workers), "--capacity", "4096")
    options = (*options, "--lease", str(lease_s))
    command = (sys.executable, "-c", program, "serve", scenario, *options)
    with running(command) as server:
        yield server


async def load_ours(
    url: str, server: psutil.Process, plans: Sequence[Plan], num_episodes: int, *,
    seconds: float,
) -> tuple[Load, tuple[float, float, float]]:  # fmt: skip
    """Put load on our server through our client."""
    load = Load(seconds)
    async with HttpEnvSource(url) as source:

        async def play(number: int) -> None:
            draw = random.Random(number)
            async with await source.open() as client:
                is_ready = 0
                while not load.is_over:
                    plan = draw.choice(plans)
                    await client.reset(plan.task)
                    load.num_ready += 1 - is_ready
                    is_ready = 1
                    for action in plan.actions:
                        await load.step(client.step(action))
                        if load.is_over:
                            break

        spent = await load.run([play(number) for number in range(num_episodes)], server)
    return load, spent


async def load_baseline(
    url: str, server: psutil.Process, plans: Sequence[Plan], num_episodes: int, *, seconds: float
) -> tuple[Load, tuple[float, float, float]]:
    """Put load on the baseline server with the least client that there can be."""
    load = Load(seconds)
    connector = aiohttp.TCPConnector(limit=num_episodes)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def post(path: str, **fields: object) -> dict[str, object]:
            async with session.post(url + path, json=fields) as response:
                response.raise_for_status()
                return json.loads(await response.read())

        async def play(number: int) -> None:
            draw = random.Random(number)
            place = (await post("/create"))["id"]
            is_ready = 0
            while not load.is_over:
                plan = draw.choice(plans)
                await post("/reset", id=place, data_idx=plan.task.index)
                load.num_ready += 1 - is_ready
                is_ready = 1
                for action in plan.actions:
                    await load.step(post("/step", id=place, action=action))
                    if load.is_over:
                        break
            await post("/close", id=place)

        spent = await load.run([play(number) for number in range(num_episodes)], server)
    return load, spent


class LeastClient:
    """Plays a part of the episodes, all of them in one request after another."""

    NUM_PARTS = 3
    """So that the server always has a request to work on."""

    def __init__(self, url: str, session: aiohttp.ClientSession, plans: Sequence[Plan]) -> None:
        self._url, self._session, self._plans = f"{url}/batch", session, plans

    async def play(self, num_episodes: int, load: Load) -> None:
        created = await self._post([{"op": "create"} for _ in range(num_episodes)])
        draw = random.Random(0)
        places = [Place(answer["episode"]) for answer in created]
        while not load.is_over:
            started = time.perf_counter()
            num_steps = sum(place.plan is not None for place in places)
            await self._post([place.next_call(draw, self._plans) for place in places])
            load.count(num_steps, time.perf_counter() - started)
            load.num_ready = max(load.num_ready, self.NUM_PARTS)
        await self._post([{"op": "close", "episode": place.episode} for place in places])

    async def _post(self, calls: Sequence[dict[str, object]]) -> list[dict[str, str]]:
        """Return the bodies of the answers, in the order of the calls."""
        numbered = [{**call, "call": number} for number, call in enumerate(calls)]
        body = bodies.encode({"calls": numbered})
        async with self._session.post(self._url, data=body) as response:
            answers = [
                protocol.decode_answer(line) for line in (await response.read()).splitlines()
            ]
        failed = [answer for answer in answers if answer.status >= 300]
        if failed or len(answers) < len(calls):
            raise RuntimeError(f"{len(answers)} of {len(calls)} answered; failed: {failed[:1]}")
        return [answer.body for answer in sorted(answers)]


class Place:
    """One episode of `LeastClient`."""

    def __init__(self, episode: str) -> None:
        self.episode = episode
        self.plan: Plan | None = None
        """None when a reset comes next."""
        self._round = 0

    def next_call(self, draw: random.Random, plans: Sequence[Plan]) -> dict[str, object]:
        """Return the call that goes on with the plan, or begins another."""
        if self.plan is None:
            self.plan, self._round = draw.choice(plans), 0
            return {"op": "reset", "episode": self.episode, "task": self.plan.task}
        action = self.plan.actions[self._round]
        call = {"op": "step", "episode": self.episode, "round": self._round, "action": action}
        self._round += 1
        if self._round == len(self.plan.actions):
            self.plan = None
        return call


async def load_least(
    url: str, server: psutil.Process, plans: Sequence[Plan], num_episodes: int, *, seconds: float
) -> tuple[Load, tuple[float, float, float]]:
    """Put load on our server with the least client that there can be."""
    load = Load(seconds)
    async with aiohttp.ClientSession() as session:
        client = LeastClient(url, session, plans)
        num_parts = min(num_episodes, client.NUM_PARTS)
        sizes = [len(range(part, num_episodes, num_parts)) for part in range(num_parts)]
        spent = await load.run([client.play(size, load) for size in sizes], server)
    return load, spent


def measure_servers(
    scenario: str, plans: Sequence[Plan], counts: Sequence[int], chosen: argparse.Namespace
) -> Iterator[Measurement]:
    """Measure the baseline server and ours, for every number of episodes."""
    for count in counts:
        with running((sys.executable, str(_BASELINE), "--env", scenario)) as (url, server):
            found = _run(load_baseline(url, server, plans, count, seconds=chosen.seconds))
            yield _measurement(scenario, "baseline server", count, *found)
        with our_server(scenario, chosen.workers) as (url, server):
            found = _run(load_ours(url, server, plans, count, seconds=chosen.seconds))
        yield _measurement(scenario, "ours", count, *found)
        with our_server(scenario, chosen.workers) as (url, server):
            found = _run(load_least(url, server, plans, count, seconds=chosen.seconds))
        yield _measurement(scenario, "ours, least client", count, *found)


def _measurement(
    scenario: str, way: str, count: int, load: Load, spent: tuple[float, float, float]
) -> Measurement:
    elapsed, cpu, own_cpu = spent
    latencies = sorted(load.latencies)
    if len(latencies) < MIN_STEPS:
        told = f"{len(latencies)} steps in {elapsed:.0f} s, of at least {MIN_STEPS}"
        raise RuntimeError(f"{scenario}, {way}, {count} episodes: {told}; use fewer --episodes")
    cuts = statistics.quantiles(latencies, n=100)
    return Measurement(
        scenario, way, count,
        steps_per_s=len(latencies) / elapsed,
        steps_per_cpu_s=len(latencies) / cpu,
        bare_steps_per_cpu_s=1.0,
        client_cores=own_cpu / elapsed,
        p50_ms=1000 * cuts[49],
        p99_ms=1000 * cuts[98],
    )  # fmt: skip


def _run(coroutine: Awaitable[tuple[Load, tuple[float, float, float]]]) -> tuple[
    Load, tuple[float, float, float]
]:  # fmt: skip
    import uvloop  # not on every platform

    async def main() -> tuple[Load, tuple[float, float, float]]:
        return await coroutine

    return uvloop.run(main())


def measure_sciworld_package(plans: Sequence[Plan], seconds: float) -> Iterator[Measurement]:
    """Step ScienceWorld by its package's own step(), and by direct calls to its simulator."""
    from scienceworld import ScienceWorldEnv  # needs the extra and Java

    from agentgym_rl.envs.scenarios.sciworld.tasks import variation_of

    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # its Java leaves a file there
        world = ScienceWorldEnv("")

    def load(plan: Plan) -> None:
        variation = variation_of(plan.task.index)
        world.load(variation.topic.name, variation.number, "", generateGoldPath=False)

    def play_step(plan: Plan) -> None:
        load(plan)
        for action in plan.actions:
            world.step(action)

    def play_direct(plan: Plan) -> None:
        load(plan)
        for action in plan.actions:
            world.server.step(action)
            world.server.getScore()
            world.server.getCompleted()

    yield measure_loop("sciworld", "package's step()", plans, play_step, seconds=seconds)
    yield measure_loop("sciworld", "direct calls", plans, play_direct, seconds=seconds)
    world.close()


def show(measurements: Sequence[Measurement], console: Console) -> None:
    """Print a table for each scenario, with ratios to its baselines."""
    for scenario in dict.fromkeys(m.scenario for m in measurements):
        rows = [m for m in measurements if m.scenario == scenario]
        bare = next(m for m in rows if m.way == "bare loop").steps_per_cpu_s
        table = Table(title=scenario, title_justify="left")
        for column in ("way", "episodes", "steps/s", "p50 ms", "p99 ms", "client cores",
                       "x baseline", "steps/CPU-s", "of bare loop"):  # fmt: skip
            table.add_column(column, justify="left" if column == "way" else "right")
        for row in rows:
            same = [
                m for m in rows
                if m.way == "baseline server" and m.num_episodes == row.num_episodes
            ]  # fmt: skip
            is_server = row.p50_ms > 0
            table.add_row(
                row.way, str(row.num_episodes), f"{row.steps_per_s:,.0f}",
                f"{row.p50_ms:.2f}" if is_server else "", f"{row.p99_ms:.2f}" if is_server else "",
                f"{row.client_cores:.2f}" if is_server else "",
                f"{row.steps_per_s / same[0].steps_per_s:.1f}" if same and is_server else "",
                f"{row.steps_per_cpu_s:,.0f}",
                f"{row.steps_per_cpu_s / (row.bare_steps_per_cpu_s if is_server else bare):.0%}",
            )  # fmt: skip
        console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench env", description="Environment servers.")
    add = parser.add_argument
    add("--env", action="append", choices=SCENARIOS, help="default: all three")
    add("--episodes", type=whole_list, default="1,64,256,1024", help="how many at once, in turn")
    add("--seconds", type=number_from(MIN_S), default=5.0, help="for each measurement")
    add("--workers", type=whole_from(1), default=1, help="worker processes of our server")
    add("--json", type=Path, help="file for the measurements")
    chosen = parser.parse_args(arguments)
    console = Console()
    measurements: list[Measurement] = []
    for scenario in chosen.env or SCENARIOS:
        plans = make_plans(scenario, NUM_PLANS[scenario])
        found = [measure_bare_loop(scenario, plans, chosen.seconds)]
        if scenario == "sciworld":
            found += measure_sciworld_package(plans, chosen.seconds)
        for measured in measure_servers(scenario, plans, chosen.episodes, chosen):
            bare = measure_bare_loop(scenario, plans, chosen.seconds / 2).steps_per_cpu_s
            found.append(replace(measured, bare_steps_per_cpu_s=bare))
        show(found, console)
        measurements += found
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(m) for m in measurements], indent=1) + "\n")


if __name__ == "__main__":
    main()
