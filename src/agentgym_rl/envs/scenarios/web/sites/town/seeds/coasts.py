"""Coasts for the map's background: `make_coasts`.

No shapes of countries are in the package, but 34,000 towns are. Land is where a town is near, and
what the sea cannot reach; its outline, smoothed, is the coast. It is a sketch, and looks like one.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from agentgym_rl.envs.scenarios.web.sites.town.seeds.corpus import City

_CELL = 0.4
_WIDE, _HIGH = int(360 / _CELL), int(150 / _CELL)
_SOUTH = -65.0
_REACHES_KM = ((3, 170.0), (8, 95.0), (20, 60.0), (10**9, 38.0))
"""(towns around a town, how far the land reaches from it): few towns are far from each other."""
_OCEANS = (
    (0, -150), (0, -30), (-30, 80), (0, 150), (60, -40), (75, 0), (75, 150), (75, -150),
    (-50, -120), (25, -90), (15, -75), (15, 88), (15, 65), (15, 114), (35, 180), (35, -50),
    (50, -170),
)  # fmt: skip
"""Points at sea: (latitude, longitude). From here the sea goes wherever it is wide."""
_SEAS = (
    (35.5, 18, 6), (38, 5, 7), (33.5, 28, 4), (43, 15.5, 4), (38, 25, 3), (43, 34, 7),
    (42, 50.5, 4),
    (56.5, 18.8, 4), (62.5, 20, 3), (56, 3, 6), (50, -2, 3), (45.5, -4, 4), (53.7, -5, 2),
    (26, 35, 2), (23, 37, 2), (20, 38.5, 2), (17, 40.5, 2), (27, 51, 3), (40, 134, 7),
    (36, 123, 4), (-5, 111, 5), (10, 102, 3), (59, -85, 7), (27, -111.5, 3), (47.7, -87.5, 3),
    (43.7, -87, 2), (44.8, -82.4, 2), (5, 112, 5),
)  # fmt: skip
"""Smaller ones: (latitude, longitude, how many degrees it reaches)."""
_PASSAGE = 2
"""Cells on each side that the sea needs to go on."""
_MIN_CELLS = 3

Point = tuple[float, float]


def make_coasts(cities: Sequence[City]) -> Iterator[tuple[float, float, float, float, str]]:
    """Yield south, west, north, east and points (JSON, [[lat, lon], ...]) of every coast."""
    land = _land(cities)
    for ring in _rings(land):
        if len(ring) < 4 * _MIN_CELLS:
            continue
        points = _smooth(_smooth(ring[::2] if len(ring) > 40 else ring))
        lats, lons = [lat for lat, _ in points], [lon for _, lon in points]
        shape = json.dumps([[round(lat, 2), round(lon, 2)] for lat, lon in points])
        yield min(lats), min(lons), max(lats), max(lons), shape


def _land(cities: Sequence[City]) -> list[bytearray]:
    """Return the grid, row by row from the south: 1 is land."""
    near = [bytearray(_WIDE) for _ in range(_HIGH)]
    crowds = Counter((int(city.lat // 2), int(city.lon // 2)) for city in cities)
    for city in cities:
        row, column = _cell(city.lat, city.lon)
        reach = _reach_km(city, crowds)
        high = int(reach / 111 / _CELL) + 1
        shrink = max(0.2, math.cos(math.radians(city.lat)))
        wide = int(reach / (111 * shrink) / _CELL) + 1
        for r in range(row - high, row + high + 1):
            if not 0 <= r < _HIGH:
                continue
            north = (_SOUTH + (r + 0.5) * _CELL - city.lat) * 111
            for c in range(column - wide, column + wide + 1):
                east = (-180 + (c + 0.5) * _CELL - city.lon) * 111 * shrink
                if north * north + east * east <= reach * reach:
                    near[r][c % _WIDE] = 1
    sea = _ocean(near)
    for lat, lon, reach in _SEAS:
        _flood(sea, near, [_cell(lat, lon)], box=int(reach / _CELL))
    return [bytearray(not cell for cell in row) for row in sea]


def _ocean(near: list[bytearray]) -> list[bytearray]:
    """Return the wide sea: what a ship that needs `_PASSAGE` cells on each side can see."""
    wide = _grown(near)
    reached = [bytearray(_WIDE) for _ in range(_HIGH)]
    _flood(reached, wide, [_cell(lat, lon) for lat, lon in _OCEANS])
    seen = _grown(reached)
    return [
        bytearray(s and not n for s, n in zip(seen_row, near_row, strict=True))
        for seen_row, near_row in zip(seen, near, strict=True)
    ]


def _grown(cells: list[bytearray]) -> list[bytearray]:
    """Return what is set, and all around it."""
    bits = 8 * _WIDE
    whole = (1 << bits) - 1
    wide = []
    for row in cells:  # a row as one number, a byte per cell: shifts move all cells at once
        number = spread = int.from_bytes(row, "little")
        for cell in range(1, _PASSAGE + 1):
            shift = 8 * cell
            spread |= (number << shift | number >> (bits - shift)) & whole
            spread |= (number >> shift | number << (bits - shift)) & whole
        wide.append(spread)
    grown = []
    for r in range(_HIGH):
        number = 0
        for near in wide[max(0, r - _PASSAGE) : r + _PASSAGE + 1]:
            number |= near
        grown.append(bytearray(number.to_bytes(_WIDE, "little")))
    return grown


def _flood(
    sea: list[bytearray],
    walls: list[bytearray],
    starts: Sequence[tuple[int, int]],
    box: int = 2 * _WIDE,
) -> None:
    """Let the sea in, from some cells to all within a box that no wall keeps from them."""
    row, column = starts[0]
    low, high = max(0, row - box), min(_HIGH - 1, row + box)
    visited = [bytearray(_WIDE) for _ in range(_HIGH)]
    waiting = deque(starts)
    while waiting:
        r, c = waiting.popleft()
        if not low <= r <= high or abs(c - column) > box:
            continue
        x = c % _WIDE
        if visited[r][x] or walls[r][x]:
            continue
        visited[r][x] = sea[r][x] = 1
        waiting.extend([(r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)])


def _reach_km(city: City, crowds: Counter[tuple[int, int]]) -> float:
    row, column = int(city.lat // 2), int(city.lon // 2)
    crowd = 0
    for r in (row - 1, row, row + 1):
        for c in (column - 1, column, column + 1):
            crowd += crowds[r, c]
    return next(reach for limit, reach in _REACHES_KM if crowd <= limit)


def _cell(lat: float, lon: float) -> tuple[int, int]:
    row = min(_HIGH - 1, max(0, int((lat - _SOUTH) / _CELL)))
    return row, int((lon + 180) / _CELL) % _WIDE


def _rings(land: list[bytearray]) -> Iterator[list[Point]]:
    """Yield closed outlines of land and of what lies in it, land on the left."""
    leaving: dict[tuple[int, int], list[tuple[int, int]]] = {}

    def is_land(r: int, c: int) -> bool:
        return 0 <= r < _HIGH and 0 <= c < _WIDE and bool(land[r][c])

    for r in range(_HIGH):
        for c in range(_WIDE):
            if not land[r][c]:
                continue
            for beside, start, end in (
                ((r - 1, c), (r, c), (r, c + 1)), ((r, c + 1), (r, c + 1), (r + 1, c + 1)),
                ((r + 1, c), (r + 1, c + 1), (r + 1, c)), ((r, c - 1), (r + 1, c), (r, c)),
            ):  # fmt: skip
                if not is_land(*beside):
                    leaving.setdefault(start, []).append(end)
    while leaving:
        start = next(iter(leaving))
        ring, here = [], start
        while here in leaving:
            ring.append((_SOUTH + here[0] * _CELL, -180 + here[1] * _CELL))
            ends = leaving[here]
            following = ends.pop()
            if not ends:
                del leaving[here]
            here = following
        yield ring


def _smooth(ring: list[Point]) -> list[Point]:
    """Cut the corners of a closed line (Chaikin)."""
    points: list[Point] = []
    for (a, b), (c, d) in zip(ring, [*ring[1:], ring[0]], strict=True):
        points += [(0.75 * a + 0.25 * c, 0.75 * b + 0.25 * d)]
        points += [(0.25 * a + 0.75 * c, 0.25 * b + 0.75 * d)]
    return points
