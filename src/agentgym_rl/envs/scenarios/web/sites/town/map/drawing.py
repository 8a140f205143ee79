"""The picture of a piece of the world, as SVG: `draw`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from agentgym_rl.envs.scenarios.web.sites.town.map.routing import graph
from agentgym_rl.envs.scenarios.web.sites.town.reference import rows

WIDTH, HEIGHT = 880, 664
_TILE = 256
MIN_ZOOM, MAX_ZOOM = 3, 16
_MAX_LABELS = 26
_STROKES = {"motorway": ("#e7a13d", 3.0), "road": ("#f4e2ad", 2.0), "street": ("#ffffff", 7.0)}
_STYLE = "font: 12px system-ui, 'DejaVu Sans', sans-serif"

Pin = tuple[float, float, str]


class _View:
    """A rectangle of the map at one scale (Mercator)."""

    def __init__(self, lat: float, lon: float, zoom: int) -> None:
        self._scale = _TILE * 2**zoom
        x, y = self._world(lat, lon)
        self._left, self._top = x - WIDTH / 2, y - HEIGHT / 2
        self.north, self.west = self._place(self._left, self._top)
        self.south, self.east = self._place(self._left + WIDTH, self._top + HEIGHT)

    def _world(self, lat: float, lon: float) -> tuple[float, float]:
        sine = math.sin(math.radians(max(-84.0, min(84.0, lat))))
        y = 0.5 - math.log((1 + sine) / (1 - sine)) / (4 * math.pi)
        return (lon + 180) / 360 * self._scale, y * self._scale

    def _place(self, x: float, y: float) -> tuple[float, float]:
        n = math.pi * (1 - 2 * y / self._scale)
        return math.degrees(math.atan(math.sinh(n))), x / self._scale * 360 - 180

    def at(self, lat: float, lon: float) -> tuple[float, float]:
        x, y = self._world(lat, lon)
        return round(x - self._left, 1), round(y - self._top, 1)


def zoom_for(points: Sequence[tuple[float, float]]) -> tuple[float, float, int]:
    """Return the middle of some points and the zoom that shows all of them."""
    south, north = min(lat for lat, _ in points), max(lat for lat, _ in points)
    west, east = min(lon for _, lon in points), max(lon for _, lon in points)
    lat, lon = (south + north) / 2, (west + east) / 2
    zoom = MAX_ZOOM
    while zoom > MIN_ZOOM:
        view = _View(lat, lon, zoom)
        is_wide = view.east - view.west >= 1.2 * (east - west)
        if is_wide and view.north - view.south >= 1.2 * (north - south):
            break
        zoom -= 1
    return lat, lon, min(zoom, 15)


def draw(
    lat: float,
    lon: float,
    zoom: int,
    *,
    label: str,
    pins: Sequence[Pin] = (),
    route: Sequence[tuple[float, float]] = (),
) -> SafeString:
    """Return the picture around a point, with pins and a way."""
    view = _View(lat, lon, zoom)
    parts = [
        f'<svg class="canvas" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(label)}" preserveAspectRatio="xMidYMid slice">'
        '<rect width="100%" height="100%" fill="#a9d3e6"/>',
        _ground(round(lat, 5), round(lon, 5), zoom),
    ]
    if route:
        line = " ".join("{},{}".format(*view.at(*point)) for point in route)
        shape = (
            f'<polyline points="{line}" fill="none" stroke-linejoin="round" stroke-linecap="round"'
        )
        parts.append(f'{shape} stroke="#1d4fb8" stroke-width="8"/>')
        parts.append(f'{shape} stroke="#5b9bff" stroke-width="5"/>')
    for place, (pin_lat, pin_lon, text) in enumerate(pins, start=1):
        x, y = view.at(pin_lat, pin_lon)
        parts.append(
            f'<path d="M{x} {y}c-9 -13 -11 -17 -11 -22a11 11 0 0122 0c0 5 -2 9 -11 22z" '
            'fill="#d93025" stroke="#8e1a12"/>'
            f'<text x="{x}" y="{y - 18}" text-anchor="middle" fill="#fff" font-weight="700" '
            f'style="{_STYLE}">{escape(text or str(place))}</text>'
        )
    parts.append("</svg>")
    return mark_safe("".join(parts))


@lru_cache(maxsize=200)
def _ground(lat: float, lon: float, zoom: int) -> str:
    """Return land, roads and names, which no episode changes."""
    view = _View(lat, lon, zoom)
    parts = []
    if zoom >= 11:
        parts.append('<rect width="100%" height="100%" fill="#eef0ea"/>')
    else:
        parts.append(_coasts(view))
    parts += _roads(view, zoom)
    parts += _names(view, zoom)
    return "".join(parts)


def _coasts(view: _View) -> str:
    found = rows(
        "SELECT points FROM coast WHERE north > ? AND south < ? AND east > ? AND west < ?",
        [view.south, view.north, view.west, view.east],
    )
    shapes = []
    for one in found:
        points = [view.at(lat, lon) for lat, lon in json.loads(one["points"])]
        kept = [points[0]]
        for point in points[1:]:
            if abs(point[0] - kept[-1][0]) + abs(point[1] - kept[-1][1]) >= 3:
                kept.append(point)
        shapes.append("M" + "L".join(f"{x} {y}" for x, y in kept) + "Z")
    return (
        f'<path d="{"".join(shapes)}" fill="#eef0e6" fill-rule="evenodd" stroke="#c3cdbb" '
        'stroke-width="1"/>'
    )


def _roads(view: _View, zoom: int) -> list[str]:
    if zoom < 6:
        return []
    whole = graph()
    near = rows(
        "SELECT id FROM node WHERE lat BETWEEN ? AND ? AND lon BETWEEN ? AND ?",
        [view.south, view.north, view.west, view.east],
    )
    kinds = ("street",) if zoom >= 13 else ("road", "motorway") if zoom >= 8 else ("motorway",)
    lines: dict[str, list[str]] = {kind: [] for kind in (*kinds, "motorway")}
    for one in near:
        start = whole.positions[one["id"]]
        for edge in whole.edges[one["id"]]:
            if edge.kind in lines and not edge.road.startswith("B "):
                x, y = view.at(*start)
                u, v = view.at(*whole.positions[edge.to])
                lines[edge.kind].append(f"M{x} {y}L{u} {v}")
    parts = []
    for kind, found in lines.items():
        color, width = _STROKES[kind]
        shape = "".join(found)
        parts.append(f'<path d="{shape}" stroke="#cfc8b4" stroke-width="{width + 1.5}"/>')
        parts.append(f'<path d="{shape}" stroke="{color}" stroke-width="{width}"/>')
    return parts


def _names(view: _View, zoom: int) -> list[str]:
    kinds = "population = 0" if zoom >= 14 else "population > 0"
    found = rows(
        f"SELECT name, kind, lat, lon, population FROM place WHERE {kinds}"
        " AND lat BETWEEN ? AND ? AND lon BETWEEN ? AND ? ORDER BY population DESC, id LIMIT 300",
        [view.south, view.north, view.west, view.east],
    )
    parts: list[str] = []
    taken: list[tuple[float, float, float, float]] = []
    for one in found:
        x, y = view.at(one["lat"], one["lon"])
        box = (x - 4, y - 9, x + 12 + 7 * len(one["name"]), y + 9)
        hits = any(box[0] < c and box[2] > a and box[1] < d and box[3] > b for a, b, c, d in taken)
        if hits:
            continue
        taken.append(box)
        size = 13 if one["population"] > 1_000_000 else 11
        color = "#2f3b2f" if one["population"] else "#7a4b8a"
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="3" fill="#fff" stroke="{color}" stroke-width="1.5"/>'
            f'<text x="{x + 7}" y="{y + 4}" fill="{color}" stroke="#fff" stroke-width="3" '
            f'paint-order="stroke" style="{_STYLE}; font-size: {size}px">'
            f"{escape(one['name'])}</text>"
        )
        if len(parts) >= _MAX_LABELS:
            break
    return parts
