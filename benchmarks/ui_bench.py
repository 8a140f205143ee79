"""Measure `agentgym ui` on a run with 100,000 episodes: every route, cold and warm.

Cold is the first request to a server that has just started; lists then cover the parts that were
read in time and say so, and the table shows when all had been read. Warm is the median of several
requests once the index is whole. The design's limits: 0.5 s for any list, filter or
chart, 1 s for an episode of 100 rounds and 20,000 tokens.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import psutil
from bench_arguments import whole_from
from rich.console import Console
from rich.table import Table
from ui_episodes import LONG_EPISODE, NEEDLE, Size, write_run

_LIST_S, _EPISODE_S = 0.5, 1.0
_ANEW = "(anew)"
"""Stands for a text that was not searched for before, since results of searches are kept."""
_PROGRAM = "from agentgym_rl.cli.main import main; main()"
Route = tuple[str, str, dict[str, object], float]
"""What it is, the route, its parameters, its limit."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = _parser().parse_args(arguments)
    size = Size(options.parts, options.episodes, options.tokens)
    if options.folder is not None:
        _measure(options.folder, size, options.repeats)
        return
    with tempfile.TemporaryDirectory(prefix="ui-bench-") as folder:
        _measure(Path(folder), size, options.repeats)


def _routes(size: Size) -> list[Route]:
    num_episodes = size.num_parts * size.episodes_per_part
    step = (size.num_parts + 1) // 2
    middle = f"train-{step:06d}:{size.episodes_per_part // 2}"
    steps = {"step_min": size.num_parts // 9, "step_max": size.num_parts // 3, "rounds_min": 9}
    return [
        ("runs", "runs", {}, _LIST_S),
        ("metric names", "metric_names", {}, _LIST_S),
        ("all metrics", "metrics", {}, _LIST_S),
        ("evaluations", "evaluations", {}, _LIST_S),
        ("their curves", "eval_curves", {}, _LIST_S),
        ("facets", "facets", {}, _LIST_S),
        ("episodes, newest", "episodes", {}, _LIST_S),
        ("by reward", "episodes", {"sort": "reward"}, _LIST_S),
        ("by invalid rounds", "episodes", {"sort": "num_invalid", "invalid_min": 1}, _LIST_S),
        (
            "by seconds, page 500",
            "episodes",
            {"sort": "seconds", "offset": num_episodes // 4},
            _LIST_S,
        ),
        (
            "successes of a category",
            "episodes",
            {"outcome": "success", "category": "depth 2"},
            _LIST_S,
        ),
        ("steps and rounds", "episodes", steps, _LIST_S),
        ("text, rare", "episodes", {"text": NEEDLE}, _LIST_S),
        ("text, in most episodes", "episodes", {"text": "iron ingot"}, _LIST_S),
        ("text, never the same", "episodes", {"text": _ANEW}, _LIST_S),
        ("text and filters", "episodes", {"text": "redstone", "outcome": "failure"}, _LIST_S),
        ("diagnosis", "diagnosis", {}, _LIST_S),
        ("time", "time", {}, _LIST_S),
        ("group", "group", {"step": step, "group": 0}, _LIST_S),
        ("an episode", "episode", {"episode": middle}, _EPISODE_S),
        ("its tokens", "tokens", {"episode": middle}, _EPISODE_S),
        ("100 rounds, 20,000 tokens", "episode", {"episode": LONG_EPISODE}, _EPISODE_S),
        ("tokens of it", "tokens", {"episode": LONG_EPISODE}, _EPISODE_S),
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agentgym bench ui", description=__doc__)
    parser.add_argument("--parts", type=whole_from(1), default=1000, help="parts of the run")
    parser.add_argument("--episodes", type=whole_from(1), default=100, help="episodes of each part")
    parser.add_argument("--tokens", type=whole_from(1), default=400, help="tokens of each episode")
    parser.add_argument(
        "--repeats", type=whole_from(1), default=5, help="warm requests to each route"
    )
    parser.add_argument("--folder", type=Path, help="keep the run here, and use it if it is there")
    return parser


def _measure(folder: Path, size: Size, repeats: int) -> None:
    run, console, routes = folder / "large", Console(highlight=False), _routes(size)
    if not run.exists():
        started = time.perf_counter()
        write_run(run, size)
        console.print(f"the run was written in {time.perf_counter() - started:.0f} s")
    size_mb = sum(file.stat().st_size for file in run.rglob("*.*")) / 1e6
    console.print(f"{size.num_parts} parts of {size.episodes_per_part} episodes, {size_mb:.0f} MB")
    cold: list[float] = []
    with _server(folder) as (url, start_s, process):
        console.print(f"the server answers after {start_s:.2f} s")
        cold += [_ask(url, route, parameters)[0] for _, route, parameters, _ in routes]
        indexed_s = _wait_for_index(url)
        memory_mb = psutil.Process(process).memory_info().rss / 1e6
        console.print(
            f"all parts are in the index {indexed_s:.1f} s after that; memory {memory_mb:.0f} MB"
        )
        warm = [
            median(_ask(url, route, parameters)[0] for _ in range(repeats))
            for _, route, parameters, _ in routes
        ]
    _print(console, routes, cold, warm)


def _print(
    console: Console, routes: Sequence[Route], cold: Sequence[float], warm: Sequence[float]
) -> None:
    table = Table(title="seconds of a request", title_justify="left")
    for name in ("request", "cold", "warm", "limit", ""):
        table.add_column(name, justify="right" if name != "request" else "left")
    for (name, _, _, limit), first, later in zip(routes, cold, warm, strict=True):
        verdict = (
            "" if max(first, later) <= limit else "warm late" if later > limit else "cold late"
        )
        table.add_row(name, f"{first:.3f}", f"{later:.3f}", f"{limit:g}", verdict)
    console.print(table)


def _ask(url: str, route: str, parameters: dict[str, object]) -> tuple[float, dict[str, object]]:
    if parameters.get("text") == _ANEW:
        parameters = {"text": f"no such words {time.monotonic_ns()}"}
    query = urlencode({"run": "large"} | parameters) if route != "runs" else ""
    started = time.perf_counter()
    with urllib.request.urlopen(f"{url}/api/{route}?{query}", timeout=60) as response:
        body = response.read()
    return time.perf_counter() - started, json.loads(body)


def _wait_for_index(url: str) -> float:
    started = time.perf_counter()
    while True:
        index = _ask(url, "facets", {})[1]["index"]
        assert isinstance(index, dict), "the state of the index"
        if index["parts_read"] == index["parts"]:
            return time.perf_counter() - started
        time.sleep(0.1)


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, float, int]]:
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "ui", str(folder), "--port", "0", "--no-open"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield line.split(" at ")[1].split()[0], time.perf_counter() - started, process.pid
    finally:
        process.terminate()
        process.wait(10)


if __name__ == "__main__":
    main()
