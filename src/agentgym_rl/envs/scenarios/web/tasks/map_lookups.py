"""Questions on the map that need several places or several pages to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.site_process import Row
from agentgym_rl.envs.scenarios.web.tasks.map_tasks import (
    CITIES,
    PLACES,
    find_place,
    found_namesakes,
    found_nearby,
    nearest,
    unique_places,
)
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, fact, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import users
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Reading,
    Seeded,
    Template,
    Wrong,
)

_PHARMACIES = """
SELECT city, name, hours FROM reference.place WHERE kind = 'Pharmacy' ORDER BY id
"""
_NAMESAKES = """
SELECT name, country, population, kind, lat, lon FROM reference.place
WHERE population > 0 AND name IN (SELECT name FROM reference.place
WHERE population > 0 GROUP BY name HAVING count(*) BETWEEN 3 AND 9)
ORDER BY name, population DESC
"""
_SIDES = {"north": (3, 1), "south": (3, -1), "east": (4, 1), "west": (4, -1)}
"""Side -> which column of a place says it, and whether the largest or the smallest is meant."""
_NORTH_EAST = ("China", "India", "Turkey", "Germany", "Poland", "Japan", "Italy", "South Korea")
"""Countries whose cities all lie north and east of zero."""


def namesakes(seeded: Seeded) -> dict[str, list[Row]]:
    """Return (name, country, population, kind, latitude, longitude) by name, the largest first.

    Only names are taken under which the map knows no two of the same size.
    """
    found: dict[str, list[Row]] = {}
    for row in seeded.rows("map", _NAMESAKES):
        found.setdefault(str(row[0]), []).append(row)
    return {
        name: rows
        for name, rows in found.items()
        if name.isascii() and len({row[2] for row in rows}) == len(rows)
    }


def _position(lat: float, lon: float) -> str:
    """Return coordinates as the map writes them."""
    north, east = "N" if lat >= 0 else "S", "E" if lon >= 0 else "W"
    return f"{abs(lat):.4f}° {north}, {abs(lon):.4f}° {east}"


class ClosedOnSundays(Reading):
    """Which pharmacy of a city is closed on Sundays? One after another."""

    name = "map-closed-on-sundays"
    number = 9
    sites = ("map",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        cities: dict[str, dict[str, str]] = {}
        for city, name, hours in seeded.rows("map", _PHARMACIES):
            cities.setdefault(str(city), {})[str(name)] = str(hours)
        one_closed = [
            city for city, found in cities.items()
            if len(found) == 3 and sum("Sundays" in hours for hours in found.values()) == 1
        ]  # fmt: skip
        for city in seeded.some(self, one_closed):
            (closed,) = (name for name, hours in cities[city].items() if "Sundays" in hours)
            yield Case(
                f"The map shows three pharmacies in {city}. Which of them is closed on Sundays?",
                closed,
                users=users("map"),
                values={"city": city, "names": "; ".join(cities[city])},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search places", f"pharmacy, {case.values['city']}")
        names = str(case.values["names"]).split("; ")
        seen = list[str]()
        for name in sorted(names, key=lambda name: page.find("link", name) or 0):
            before = f"It is not {' or '.join(seen)}. " if seen else ""
            thought = f"{before}The page of {name} says when it is open."
            yield from because(page, thought, page.click("link", name))
            if "closed on Sundays" in page.text:
                break
            seen.append(name)
            hours = fact(page, "Hours")
            page.thought = f"The hours of {name} are {hours}, on Sundays too, so I go back."
            yield "go_back"
        thought = f"The hours of {case.answer} are {fact(page, 'Hours')}: that is the answer."
        yield from because(page, thought, page.answer(case.answer, shown="closed on Sundays"))

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        names = str(case.values["names"]).split("; ")
        open_one = next(name for name in names if name != case.answer)
        return (*super().wrong(case, other), Wrong("one that is open", open_one))


class SmallestNamesake(Reading):
    """Where exactly is the smallest of the cities and towns that have one name?"""

    name = "map-smallest-namesake"
    number = 10
    sites = ("map",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[list[Row]]()
        for rows in namesakes(seeded).values():
            if len({row[1] for row in rows}) > 1:
                found.append(rows)
        for place, rows in enumerate(seeded.some(self, found)):
            name, country, population, kind, lat, lon = rows[-1]
            asked = (
                f"{len(rows)} cities and towns on the map are called {name}. Which coordinates has"
                " the one with the fewest inhabitants? Answer as the map writes them.",
                f"What are the coordinates of the smallest of the {len(rows)} cities and towns that"
                f" the map knows under the name {name}, going by their inhabitants? Answer as its"
                " page writes them.",
            )
            yield Case(
                asked[place % 2],
                _position(float(str(lat)), float(str(lon))),
                users=users("map"),
                values={"name": name, "nth": len(rows) - 1,
                        "shown": f"{kind}, {country}, {population:,} inhabitants"},
            )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        name, shown = str(case.values["name"]), str(case.values["shown"])
        yield from page.type("textbox", "Search places", name)
        yield from page.read(shown)
        found = told(found_namesakes(page, name), lambda row: int(row[1].replace(",", "")))
        thought = f"Inhabitants of {name}: {found}. This one has the fewest: {shown}."
        smallest = page.click("link", name, nth=int(str(case.values["nth"])))
        yield from because(page, thought, smallest)
        yield from page.answer(case.answer)


class FurthestSide(Reading):
    """Which of three cities lies furthest north, or south, east, west? By their coordinates."""

    name = "map-furthest-side"
    number = 11
    sites = ("map",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        by_country: dict[object, list[Row]] = {}
        for row in seeded.rows("map", CITIES):
            # As the other rows of places: id, name, -, latitude, longitude.
            by_country.setdefault(row[2], []).append((row[0], row[1], "", row[4], row[5], row[2]))
        for place, side in enumerate(list(_SIDES) * 5):
            column, sign = _SIDES[side]
            rows = by_country[_NORTH_EAST[place % len(_NORTH_EAST)]]
            three = seeded.some(self, rows[3 * place :], 3)  # others for every place
            values = sorted(sign * float(str(row[column])) for row in three)
            if len(values) == 3 and values[2] - values[1] > 0.3:
                best = max(three, key=lambda row: sign * float(str(row[column])))
                names = [str(row[1]) for row in three]
                yield Case(
                    f"Which of these cities in {three[0][5]} lies furthest to the {side},"
                    f" according to its coordinates on the map: {names[0]}, {names[1]} or"
                    f" {names[2]}?",
                    str(best[1]),
                    users=users("map"),
                    values={"names": "; ".join(names), "country": three[0][5], "side": side},
                )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        side, country = str(case.values["side"]), str(case.values["country"])
        found = list[tuple[str, str]]()
        for name in str(case.values["names"]).split("; "):
            search = page.type("textbox", "Search places", f"{name}, {country}")
            thought = f"I know: {told(found)}. Now I look for {name}."
            yield from because(page, thought, search) if found else search
            yield from page.click("link", name)
            found.append((name, fact(page, "Coordinates").split(", ")[side in ("east", "west")]))
        thought = f"By their coordinates: {told(found)}. So {case.answer} is furthest {side}."
        yield from because(page, thought, page.answer(case.answer, shown="Coordinates"))

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        names = str(case.values["names"]).split("; ")
        another = next(name for name in names if name != case.answer)
        return (*super().wrong(case, other), Wrong("another of the three", another))


class BestHotel(Reading):
    """What is the phone number of the best hotel around a place?"""

    name = "map-best-hotel"
    number = 12
    sites = ("map",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        every = seeded.rows("map", PLACES)
        about = {
            number: (int(str(stars)), str(phone))
            for number, stars, phone in seeded.rows(
                "map", "SELECT id, stars, phone FROM reference.place WHERE stars > 0 ORDER BY id"
            )
        }
        rows = [row for row in unique_places(seeded) if row[2] not in ("Hotel", "Hospital")]
        for row in seeded.some(self, rows, 300):
            hotels = [(about[hotel[0]], hotel[1], km) for km, hotel in nearest(row, "Hotel", every)]
            near = sorted(hotel for hotel in hotels if hotel[2] <= 1)
            is_clear = all(abs(km - 1) > 0.02 for _, _, km in hotels)
            if is_clear and len(near) > 2 and near[-1][0][0] > near[-2][0][0]:
                (stars, phone), name, _ = near[-1]
                yield Case(
                    f"Of the hotels within 1 km of {row[1]} in {row[5]}, which one has the most"
                    " stars? Answer with its phone number.",
                    phone,
                    users=users("map"),
                    values={"name": row[1], "city": row[5], "hotel": name, "stars": stars},
                )

    def expert(self, case: Case, page: Page) -> Script:
        hotel = str(case.values["hotel"])
        yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
        yield from page.select("Nearby", "Hotel")
        yield from page.click("button", "Find nearby")
        yield from page.reach("link", hotel)
        stars = told((name, stars) for name, _, stars in found_nearby(page))
        thought = f"By their stars: {stars}. So {hotel} has the most."
        yield from because(page, thought, page.click("link", hotel))
        yield from page.answer(case.answer)


TEMPLATES: list[Template] = [
    ClosedOnSundays(),
    SmallestNamesake(),
    FurthestSide(),
    BestHotel(),
]
