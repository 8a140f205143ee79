"""Ways on the road graph: `find_way`. The graph is read once per process; nothing changes it."""

from __future__ import annotations

import heapq
import math
import threading
from dataclasses import dataclass
from functools import lru_cache

from agentgym_rl.envs.scenarios.web.sites.town.reference import rows

MODES = {"car": "Car", "bike": "Bike", "foot": "Foot"}
_SPEEDS = {
    "car": {"motorway": 110.0, "road": 70.0, "street": 28.0},
    "bike": {"road": 18.0, "street": 15.0},
    "foot": {"road": 5.0, "street": 4.8},
}
"""Kilometres per hour, by mode and kind of road."""
_EARTH_KM = 6371.0
_TURNS = ((25, "Continue straight"), (65, "Turn slightly"), (130, "Turn"), (181, "Turn sharp"))
_WINDS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")


@dataclass(frozen=True)
class Step:
    """One line of the directions."""

    text: str
    km: float


@dataclass(frozen=True)
class Way:
    """How to get somewhere."""

    km: float
    hours: float
    steps: tuple[Step, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class _Edge:
    to: int
    km: float
    road: str
    kind: str


@dataclass(frozen=True)
class _Graph:
    positions: dict[int, tuple[float, float]]
    names: dict[int, str]
    edges: dict[int, list[_Edge]]


_reading = threading.Lock()


@lru_cache(maxsize=1)
def _read() -> _Graph:
    positions, names = {}, {}
    for one in rows("SELECT id, lat, lon, name FROM node"):
        positions[one["id"]] = (one["lat"], one["lon"])
        names[one["id"]] = one["name"]
    edges: dict[int, list[_Edge]] = {number: [] for number in positions}
    for one in rows("SELECT a, b, km, road, kind FROM edge ORDER BY rowid"):
        edges[one["a"]].append(_Edge(one["b"], one["km"], one["road"], one["kind"]))
        edges[one["b"]].append(_Edge(one["a"], one["km"], one["road"], one["kind"]))
    return _Graph(positions, names, edges)


def graph() -> _Graph:
    """Return the graph, read once."""
    with _reading:
        return _read()


@lru_cache(maxsize=2000)
def find_way(start: int, end: int, mode: str) -> Way | None:
    """Return the fastest way between two nodes; None where no road leads there."""
    whole, speeds = graph(), _SPEEDS[mode]
    fastest = max(speeds.values())
    goal = whole.positions[end]

    def least(number: int) -> float:
        return _km(whole.positions[number], goal) / fastest

    best = {start: 0.0}
    came: dict[int, tuple[int, _Edge]] = {}
    waiting = [(least(start), start)]
    done = set[int]()
    while waiting:
        _, here = heapq.heappop(waiting)
        if here == end:
            return _way(whole, speeds, start, end, came)
        if here in done:
            continue
        done.add(here)
        for edge in whole.edges[here]:
            if edge.kind not in speeds or edge.to in done:
                continue
            hours = best[here] + edge.km / speeds[edge.kind]
            if hours < best.get(edge.to, math.inf):
                best[edge.to] = hours
                came[edge.to] = (here, edge)
                heapq.heappush(waiting, (hours + least(edge.to), edge.to))
    return None


def _way(
    whole: _Graph,
    speeds: dict[str, float],
    start: int,
    end: int,
    came: dict[int, tuple[int, _Edge]],
) -> Way:
    pieces: list[tuple[int, _Edge]] = []
    here = end
    while here != start:
        before, edge = came[here]
        pieces.append((before, edge))
        here = before
    pieces.reverse()
    steps = _steps(whole, pieces, whole.names[end])
    hours = sum(edge.km / speeds[edge.kind] for _, edge in pieces)
    points = [whole.positions[start], *(whole.positions[edge.to] for _, edge in pieces)]
    return Way(sum(edge.km for _, edge in pieces), hours, tuple(steps), tuple(points))


def _steps(whole: _Graph, pieces: list[tuple[int, _Edge]], end: str) -> list[Step]:
    steps: list[Step] = []
    last_heading = 0.0
    for number, (before, edge) in enumerate(pieces):
        heading = _heading(whole.positions[before], whole.positions[edge.to])
        if number == 0:
            wind = _WINDS[round(heading / 45) % 8]
            steps.append(Step(f"Head {wind} on {edge.road}", edge.km))
        elif edge.road == pieces[number - 1][1].road:
            steps[-1] = Step(steps[-1].text, steps[-1].km + edge.km)
        else:
            text = f"{_turn(heading - last_heading)} onto {edge.road}"
            if whole.names[before]:
                text += f" at {whole.names[before]}"
            steps.append(Step(text, edge.km))
        last_heading = heading
    steps.append(Step(f"Arrive at {end}" if end else "Arrive at your destination", 0.0))
    return steps


def _turn(change: float) -> str:
    change = (change + 180) % 360 - 180
    word = next(word for limit, word in _TURNS if abs(change) < limit)
    return word if word == "Continue straight" else f"{word} {'right' if change > 0 else 'left'}"


def _heading(a: tuple[float, float], b: tuple[float, float]) -> float:
    east = (b[1] - a[1]) * math.cos(math.radians((a[0] + b[0]) / 2))
    return math.degrees(math.atan2(east, b[0] - a[0])) % 360


def _km(a: tuple[float, float], b: tuple[float, float]) -> float:
    p, q = math.radians(a[0]), math.radians(b[0])
    half = (
        math.sin((q - p) / 2) ** 2
        + math.cos(p) * math.cos(q) * math.sin(math.radians(b[1] - a[1]) / 2) ** 2
    )
    return 2 * _EARTH_KM * math.asin(math.sqrt(half))


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the distance of two points as the crow flies."""
    return _km(a, b)


def told_distance(km: float) -> str:
    """Return "350 m", "4.2 km" or "1,240 km"."""
    if km < 1:
        return f"{round(km * 1000, -1):.0f} m"
    return f"{km:.1f} km" if km < 100 else f"{km:,.0f} km"


def told_time(hours: float) -> str:
    """Return "25 min" or "3 h 05 min"."""
    minutes = max(1, round(hours * 60))
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
