"""What the map shows: places, what is near, and the way."""

from __future__ import annotations

import math
import sqlite3

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from agentgym_rl.envs.scenarios.web.sites.town.full_text import match_query
from agentgym_rl.envs.scenarios.web.sites.town.map.drawing import MAX_ZOOM, MIN_ZOOM, draw, zoom_for
from agentgym_rl.envs.scenarios.web.sites.town.map.models import PlaceList, SavedPlace
from agentgym_rl.envs.scenarios.web.sites.town.map.routing import (
    MODES,
    distance_km,
    find_way,
    told_distance,
    told_time,
)
from agentgym_rl.envs.scenarios.web.sites.town.paging import page_of
from agentgym_rl.envs.scenarios.web.sites.town.reference import row, rows

KINDS = ("Cafe", "Cinema", "Hospital", "Hotel", "Library", "Museum", "Park", "Pharmacy",
         "Restaurant", "Station", "Supermarket", "University")  # fmt: skip
_RADII = (0.5, 1.0, 2.0, 5.0)
_MAX_ID = 2**31
"""SQLite refuses numbers beyond 64 bits."""
_FIND = """
SELECT place.* FROM place_search JOIN place ON place.id = place_search.rowid
WHERE place_search MATCH ? ORDER BY
    CASE WHEN lower(place.name) = lower(?) THEN 0 ELSE 1 END,
    place.population DESC, bm25(place_search, 10.0, 1.0, 3.0, 2.0, 2.0), place.id LIMIT 60
"""


def start(request: HttpRequest) -> HttpResponse:
    """Show the empty panel and a map of Europe."""
    return show(request, "map/start.html", {"kinds": KINDS}, (49.5, 9.0), 5)


def search(request: HttpRequest) -> HttpResponse:
    """Show places that fit a query."""
    words = request.GET.get("q", "").strip()
    found = find_places(words)
    page = page_of(request, found, 10)
    pins = [(one["lat"], one["lon"], "") for one in page]
    middle, zoom = ((49.5, 9.0), 5)
    if pins:
        lat, lon, zoom = zoom_for([(lat, lon) for lat, lon, _ in pins])
        middle = (lat, lon)
    context = {"q": words, "page": page, "pins": pins}
    return show(request, "map/search.html", context, middle, min(zoom, 15))


def place(request: HttpRequest, number: int) -> HttpResponse:
    """Show a place."""
    found = require_place(number)
    zoom = 15 if not found["population"] else 9
    lists = []
    if request.user.is_authenticated:
        lists = PlaceList.objects.filter(user=request.user).order_by("name")
    context = {
        "place": found, "kinds": KINDS, "pins": [(found["lat"], found["lon"], "•")],
        "has_streets": bool(rows("SELECT 1 FROM place WHERE city = ? AND country = ? AND"
                                 " population = 0 LIMIT 1", [found["city"], found["country"]])),
        "lists": lists,
        "saved_in": [one.place_list.name for one in SavedPlace.objects.filter(
            place=number, place_list__in=lists).select_related("place_list")] if lists else [],
        "article": found["article"].replace(" ", "_"), "position": _position(found),
    }  # fmt: skip
    return show(request, "map/place.html", context, (found["lat"], found["lon"]), zoom)


def nearby(request: HttpRequest, number: int) -> HttpResponse:
    """Show places of a kind around another place, the nearest first."""
    centre = require_place(number)
    kind = request.GET.get("kind", "Cafe")
    radius = _radius(request)
    here = (centre["lat"], centre["lon"])
    high = radius / 111
    wide = high / max(0.1, math.cos(math.radians(here[0])))
    found = rows(
        "SELECT * FROM place WHERE kind = ? AND lat BETWEEN ? AND ? AND lon BETWEEN ? AND ?"
        " AND id <> ?",
        [kind, here[0] - high, here[0] + high, here[1] - wide, here[1] + wide, number],
    )
    near = [(distance_km(here, (one["lat"], one["lon"])), one) for one in found]
    near = sorted((pair for pair in near if pair[0] <= radius), key=lambda pair: pair[0])
    entries = [(told_distance(km), one) for km, one in near]
    page = page_of(request, entries, 10)
    pins = [(one["lat"], one["lon"], "") for _, one in page] + [(*here, "•")]
    context = {
        "place": centre, "kind": kind, "kinds": KINDS, "radius": radius, "radii": _RADII,
        "page": page, "pins": pins,
    }  # fmt: skip
    return show(request, "map/nearby.html", context, here, 14 if radius <= 2 else 12)


def directions(request: HttpRequest) -> HttpResponse:
    """Show the way between two places."""
    texts = {key: request.GET.get(key, "").strip() for key in ("from", "to")}
    mode = request.GET.get("mode", "car")
    mode = mode if mode in MODES else "car"
    ends = {key: _end(text) for key, text in texts.items()}
    context: dict[str, object] = {
        "start": texts["from"], "end": texts["to"], "mode": mode, "modes": MODES, "ends": ends,
        "missing": [text for key, text in texts.items() if text and ends[key] is None],
    }  # fmt: skip
    if ends["from"] is None or ends["to"] is None:
        return show(request, "map/directions.html", context, (49.5, 9.0), 5)
    way = find_way(ends["from"]["node"], ends["to"]["node"], mode)
    ends_at = [(one["lat"], one["lon"]) for one in ends.values() if one is not None]
    points = list(ends_at)
    if way is not None:
        points += way.points
        context |= {
            "way": way, "distance": told_distance(way.km), "time": told_time(way.hours),
            "route": (ends_at[0], *way.points, ends_at[1]),
            "steps": [(step.text, told_distance(step.km) if step.km else "") for step in way.steps],
        }  # fmt: skip
    lat, lon, zoom = zoom_for(points)
    context["pins"] = [(points[0][0], points[0][1], "A"), (points[1][0], points[1][1], "B")]
    return show(request, "map/directions.html", context, (lat, lon), zoom)


def show(
    request: HttpRequest,
    template: str,
    context: dict[str, object],
    middle: tuple[float, float],
    zoom: int,
) -> HttpResponse:
    """Render a panel beside a map, moved and scaled as the request asks."""
    try:
        lat = float(request.GET.get("lat", middle[0]))
        lon = float(request.GET.get("lon", middle[1]))
        zoom = int(request.GET.get("z", zoom))
    except ValueError as error:
        raise Http404 from error
    lat, lon = max(-80.0, min(80.0, lat)), max(-180.0, min(180.0, lon))
    zoom = max(MIN_ZOOM, min(MAX_ZOOM, zoom))
    step = 120 / 2**zoom
    picture = draw(
        lat, lon, zoom, label=f"Map around {lat:.2f}, {lon:.2f}",
        pins=context.get("pins", ()), route=context.get("route", ()),
    )  # fmt: skip
    moved = {
        "north": (lat + step, lon), "south": (lat - step, lon),
        "west": (lat, lon - step * 1.5), "east": (lat, lon + step * 1.5),
    }  # fmt: skip
    around = {key: (f"{a:.4f}", f"{b:.4f}") for key, (a, b) in moved.items()}
    return render(request, template, context | {
        "picture": picture, "zoom_in": min(MAX_ZOOM, zoom + 1), "zoom_out": max(MIN_ZOOM, zoom - 1),
        "here": (f"{lat:.4f}", f"{lon:.4f}"), "around": around, "z": zoom,
    })  # fmt: skip


def find_places(words: str) -> list[sqlite3.Row]:
    """Return places that fit a text, the best first."""
    query = match_query(words)
    if not query:
        return []
    name = words.partition(",")[0].strip()
    return rows(_FIND, [query, name]) or rows(_FIND, [match_query(words, prefix=True), name])


def require_place(number: int) -> sqlite3.Row:
    """Return a place, or 404."""
    found = row("SELECT * FROM place WHERE id = ?", [min(number, _MAX_ID)])
    if found is None:
        raise Http404
    return found


def _end(text: str) -> sqlite3.Row | None:
    found = find_places(text)
    return found[0] if found else None


def _radius(request: HttpRequest) -> float:
    try:
        asked = float(request.GET.get("radius", "1"))
    except ValueError:
        return 1.0
    return asked if asked in _RADII else 1.0


def _position(found: sqlite3.Row) -> str:
    north = "N" if found["lat"] >= 0 else "S"
    east = "E" if found["lon"] >= 0 else "W"
    return f"{abs(found['lat']):.4f}° {north}, {abs(found['lon']):.4f}° {east}"
