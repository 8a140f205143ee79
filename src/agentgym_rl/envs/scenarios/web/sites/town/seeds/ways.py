"""Ways that tasks ask for: `write_ways` notes what the map says about them."""

from __future__ import annotations

import random
import sqlite3

from agentgym_rl.envs.scenarios.web.sites.town.map.routing import (
    distance_km,
    find_way,
    told_distance,
    told_time,
)
from agentgym_rl.envs.scenarios.web.sites.town.map.views import find_places
from agentgym_rl.envs.scenarios.web.sites.town.reference import rows

_NUM_WAYS = 40
_MAX_KM = 900.0


def write_ways(database: sqlite3.Connection) -> None:
    """Write ways by car between cities, and on foot and by bike within cities."""
    rng = random.Random("ways")
    cities = rows(
        "SELECT * FROM place WHERE population > 400000 AND country IN ('France', 'Germany',"
        " 'Italy', 'Spain', 'Poland', 'Austria', 'Netherlands', 'Belgium', 'Czechia', 'Hungary',"
        " 'United States', 'Portugal') ORDER BY id"
    )
    pairs = []
    while len(pairs) < _NUM_WAYS:
        pair = tuple(rng.sample(cities, 2))
        if distance_km(_at(pair[0]), _at(pair[1])) < _MAX_KM:
            pairs.append((pair, "car"))
    places = rows("SELECT * FROM place WHERE population = 0 ORDER BY id")
    while len(pairs) < 3 * _NUM_WAYS:
        start = rng.choice(places)
        same_city = [one for one in places if one["city"] == start["city"] and one != start]
        mode = "foot" if len(pairs) < 2 * _NUM_WAYS else "bike"
        pairs.append(((start, rng.choice(same_city)), mode))
    for (start, end), mode in pairs:
        _write_way(database, start, end, mode)


def _write_way(
    database: sqlite3.Connection, start: sqlite3.Row, end: sqlite3.Row, mode: str
) -> None:
    """Write a way unless the map finds none, or other places by these texts."""
    texts = [_text(one) for one in (start, end)]
    is_found = all(
        (found := find_places(text)) and found[0]["id"] == one["id"]
        for text, one in zip(texts, (start, end), strict=True)
    )
    way = find_way(start["node"], end["node"], mode)
    if is_found and way is not None and way.km > 0:
        database.execute(
            'INSERT INTO map_knownway (start, "end", mode, distance, time, num_steps)'
            " VALUES (?,?,?,?,?,?)",
            (*texts, mode, told_distance(way.km), told_time(way.hours), len(way.steps)),
        )


def _text(place: sqlite3.Row) -> str:
    where = place["country"] if place["population"] else place["city"]
    return f"{place['name']}, {where}"


def _at(place: sqlite3.Row) -> tuple[float, float]:
    return place["lat"], place["lon"]
