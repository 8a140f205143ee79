"""Questions and errands on the map."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.site_process import Row
from agentgym_rl.envs.scenarios.web.tasks.thinking import told
from agentgym_rl.envs.scenarios.web.tasks.town_common import Counting, users
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Reading,
    Seeded,
    Template,
)

PLACES = """
SELECT id, name, kind, lat, lon, city FROM reference.place WHERE population = 0 ORDER BY id
"""
CITIES = """
SELECT id, name, country, population, lat, lon FROM reference.place WHERE population > 200000
AND name IN (SELECT name FROM reference.place GROUP BY name HAVING count(*) = 1) ORDER BY id
"""
SAVED = """
SELECT l.name, s.place, s.note FROM map_savedplace s JOIN map_placelist l ON l.id = s.place_list_id
WHERE l.user_id = 1 ORDER BY s.id
"""
LISTS = ("Favourites", "Want to go", "Work trips")
_EARTH_KM = 6371.0


def find_place(page: Page, name: str, city: str) -> Script:
    """Find a place of a city and open it."""
    yield from page.type("textbox", "Search places", f"{name}, {city}")
    yield from page.click("link", name)


def found_nearby(page: Page) -> list[tuple[str, ...]]:
    """Return (name, distance, stars) of the places around another one that have been on screen;
    only hotels have stars."""
    return page.listed(r"link (.+)\n([\d.,]+ k?m), .+?(?:, (\d stars?))?$")


def found_namesakes(page: Page, name: str) -> list[tuple[str, ...]]:
    """Return (country, inhabitants) of the cities and towns that a search found under a name."""
    return page.listed(rf"link {re.escape(name)}\n(?:City|Town), (.+), ([\d,]+) inhabitants$")


def unique_places(seeded: Seeded) -> list[Row]:
    """Return places whose name and city find only them."""
    rows = seeded.rows("map", PLACES)
    names = [f"{row[1]} {row[5]}".lower().split() for row in rows]
    by_city: dict[object, list[set[str]]] = {}
    for row, words in zip(rows, names, strict=True):
        by_city.setdefault(row[5], []).append(set(words))
    return [
        row
        for row, words in zip(rows, names, strict=True)
        if sum(set(words) <= other for other in by_city[row[5]]) == 1
    ]


def distance_km(a: Row, b: Row) -> float:
    """Return the distance of two places, whose positions are at 3 and 4, as the map does."""
    p, q = math.radians(float(str(a[3]))), math.radians(float(str(b[3])))
    wide = math.radians(float(str(b[4])) - float(str(a[4])))
    half = math.sin((q - p) / 2) ** 2 + math.cos(p) * math.cos(q) * math.sin(wide / 2) ** 2
    return 2 * _EARTH_KM * math.asin(math.sqrt(half))


def nearest(place: Row, kind: str, rows: list[Row]) -> list[tuple[float, Row]]:
    """Return the places of a kind in the same city, the nearest first."""
    found = [row for row in rows if row[2] == kind and row[5] == place[5] and row[0] != place[0]]
    return sorted((distance_km(place, row), row) for row in found)


class Phone(Reading):
    """What is the phone number of a place? On its page."""

    name = "map-phone"
    number = 1
    sites = ("map",)
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "map", "SELECT id, phone, name, city FROM reference.place WHERE phone <> '' ORDER BY id"
        )
        for number, phone, name, city in seeded.some(self, rows):
            yield Case(
                f"What is the phone number of {name} in {city}?",
                str(phone),
                f"/place/{number}",
                users("map"),
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer)


class Population(Counting):
    """How many people live in a city? A search away."""

    name = "map-population"
    number = 2
    sites = ("map",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, name, country, population, _, _ in seeded.some(self, seeded.rows("map", CITIES)):
            yield Case(
                f"How many inhabitants does {name} in {country} have, according to the map?",
                f"{population:,}",
                users=users("map"),
                values={"name": name},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search places", str(case.values["name"]))
        yield from page.answer(case.answer)


class Hours(Reading):
    """When is a place open? A search and a click away."""

    name = "map-hours"
    number = 3
    sites = ("map",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [row for row in unique_places(seeded) if row[2] in ("Museum", "Library", "Cafe")]
        for number, name, _, _, _, city in seeded.some(self, rows):
            ((hours,),) = seeded.rows(
                "map", "SELECT hours FROM reference.place WHERE id = ?", number
            )
            yield Case(
                f"What are the opening hours of {name} in {city}? Answer as the map writes them.",
                str(hours),
                users=users("map"),
                values={"name": name, "city": city},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
        yield from page.answer(case.answer)


class Nearest(Reading):
    """Which place of a kind is nearest? By the search around a place."""

    name = "map-nearest"
    number = 4
    sites = ("map",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = unique_places(seeded)
        every = seeded.rows("map", PLACES)
        kinds = ("Cafe", "Restaurant", "Supermarket", "Hotel", "Museum")
        for place, row in enumerate(seeded.some(self, rows, 40)):
            kind = kinds[place % len(kinds)]
            near = nearest(row, kind, every)
            if row[2] != kind and len(near) > 1 and near[0][0] < 0.9:
                yield Case(
                    f"Which {kind.lower()} is the nearest to {row[1]} in {row[5]}?",
                    str(near[0][1][1]),
                    users=users("map"),
                    values={"name": row[1], "city": row[5], "kind": kind},
                )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
        yield from page.select("Nearby", str(case.values["kind"]))
        yield from page.click("button", "Find nearby")
        yield from page.read(case.answer)
        shown = told((name, distance) for name, distance, _ in found_nearby(page))
        page.thought = f"The nearest comes first: {shown}. So {case.answer} is the nearest."
        yield f"stop [{case.answer}]"


class CountNear(Counting):
    """How many places of a kind are within some distance?"""

    name = "map-count-near"
    number = 5
    sites = ("map",)
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = unique_places(seeded)
        every = seeded.rows("map", PLACES)
        kinds = ("Cafe", "Restaurant", "Supermarket", "Hotel")
        for place, row in enumerate(seeded.some(self, rows, 60)):
            kind = kinds[place % len(kinds)]
            distances = [km for km, _ in nearest(row, kind, every)]
            count = sum(km <= 2 for km in distances)
            is_clear = all(abs(km - 2) > 0.02 for km in distances)
            if row[2] != kind and is_clear and count >= 1:
                yield Case(
                    f"How many places of the kind {kind} are within 2 km of {row[1]} in {row[5]}?",
                    str(count),
                    users=users("map"),
                    values={"name": row[1], "city": row[5], "kind": kind},
                )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
        yield from page.select("Nearby", str(case.values["kind"]))
        yield from page.click("button", "Find nearby")
        yield from page.select("Within", "2.0 km")
        yield from page.answer(case.answer, shown=f"{case.answer} place")


class _Way(Reading):
    sites = ("map",)
    level = 3
    mode = ""
    asked = ""
    column = ""

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "map",
            f'SELECT start, "end", {self.column} FROM map_knownway WHERE mode = ? ORDER BY id',
            self.mode,
        )
        for start, end, answer in seeded.some(self, rows):
            yield Case(
                self.asked.format(start=start, end=end),
                str(answer),
                users=users("map"),
                values={"start": start, "end": end},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Directions")
        yield from page.type("textbox", "From", str(case.values["start"]), enter=False)
        yield from page.type("textbox", "To", str(case.values["end"]), enter=False)
        yield from page.select("By", self.mode.capitalize())
        yield from page.click("button", "Go")
        yield from page.answer(case.answer)


class DriveTime(_Way):
    """How long does a drive take?"""

    name = "map-drive-time"
    number = 6
    split = "test"
    mode, column = "car", "time"
    asked = (
        "How long does it take to drive by car from {start} to {end}? Answer as the map writes it,"
        " such as 3 h 05 min."
    )


class WalkDistance(_Way):
    """How far is a walk?"""

    name = "map-walk-distance"
    number = 7
    split = "train"
    mode, column = "foot", "distance"
    asked = (
        "How far is it on foot from {start} to {end}? Answer as the map writes it, such as 1.4 km"
        " or 350 m."
    )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return "".join(outcome.answer.split()).lower() == "".join(case.answer.split())


class BikeTime(_Way):
    """How long does a ride take?"""

    name = "map-bike-time"
    number = 8
    split = "train"
    mode, column = "bike", "time"
    asked = (
        "How many minutes does it take to ride by bike from {start} to {end}? Answer as the map"
        " writes it, such as 12 min."
    )


class SavePlace(Changing):
    """Put a place on a list, with a note."""

    name = "map-save"
    number = 20
    sites = ("map",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        notes = ("ask for a table", "closed in August", "with Anna", "near the hotel", "try again")
        for place, row in enumerate(seeded.some(self, unique_places(seeded))):
            chosen, note = LISTS[place % 3], notes[place % 5]
            yield Case(
                f'Save {row[1]} in {row[5]} to your list "{chosen}", with the note "{note}".',
                users=users("map"),
                values={"id": row[0], "name": row[1], "city": row[5], "list": chosen, "note": note},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        return outcome.query("map", SAVED, ()) == [(values["list"], values["id"], values["note"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
        yield from page.select("List", str(case.values["list"]))
        yield from page.type("textbox", "Note", str(case.values["note"]), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class NewList(Changing):
    """Make a list."""

    name = "map-new-list"
    number = 21
    sites = ("map",)
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, name, _, _, _, _ in seeded.some(self, seeded.rows("map", CITIES)):
            yield Case(
                f'Create a list of places with the name "Trip to {name}".',
                users=users("map"),
                values={"list": f"Trip to {name}"},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("map", "SELECT name FROM map_placelist WHERE user_id = 1", ())
        return sorted(rows) == sorted([*((one,) for one in LISTS), (case.values["list"],)])

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Saved")
        yield from page.type("textbox", "New list", str(case.values["list"]), enter=False)
        yield from page.click("button", "Create list")
        yield from page.done()


class NewListWithPlace(Changing):
    """Make a list, and put a place on it."""

    name = "map-list-and-save"
    number = 22
    sites = ("map",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for row in seeded.some(self, unique_places(seeded)):
            title = f"Weekend in {row[5]}"
            yield Case(
                f'Create a list of places with the name "{title}" and save {row[1]} in {row[5]} to'
                " it.",
                users=users("map"),
                values={"id": row[0], "name": row[1], "city": row[5], "list": title},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return outcome.query("map", SAVED, ()) == [(case.values["list"], case.values["id"], "")]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Saved")
        yield from page.type("textbox", "New list", str(case.values["list"]), enter=False)
        yield from page.click("button", "Create list")
        yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
        yield from page.select("List", str(case.values["list"]))
        yield from page.click("button", "Save")
        yield from page.done()


class SaveNearest(Changing):
    """Find the nearest place of two kinds, and save both."""

    name = "map-save-nearest"
    number = 23
    sites = ("map",)
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        every = seeded.rows("map", PLACES)
        rows = [row for row in unique_places(seeded) if row[2] in ("Hotel", "Station", "Park")]
        for row in seeded.some(self, rows, 60):
            cafe, museum = nearest(row, "Cafe", every)[0], nearest(row, "Museum", every)[0]
            if cafe[0] < 0.95 and museum[0] < 0.95:
                yield Case(
                    f'Save the cafe and the museum that are nearest to {row[1]} in {row[5]} to your'
                    ' list "Want to go".',
                    users=users("map"),
                    values={"name": row[1], "city": row[5], "cafe": cafe[1][0],
                            "cafe_name": cafe[1][1], "museum": museum[1][0],
                            "museum_name": museum[1][1]},
                )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = {row[:2] for row in outcome.query("map", SAVED, ())}
        wanted = {("Want to go", case.values["cafe"]), ("Want to go", case.values["museum"])}
        return rows == wanted

    def expert(self, case: Case, page: Page) -> Script:
        for kind in ("Cafe", "Museum"):
            yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
            yield from page.select("Nearby", kind)
            yield from page.click("button", "Find nearby")
            yield from page.click("link", str(case.values[f"{kind.lower()}_name"]))
            yield from page.select("List", "Want to go")
            yield from page.click("button", "Save")
        yield from page.done()


TEMPLATES: list[Template] = [
    Phone(),
    Population(),
    Hours(),
    Nearest(),
    CountNear(),
    DriveTime(),
    WalkDistance(),
    BikeTime(),
    SavePlace(),
    NewList(),
    NewListWithPlace(),
    SaveNearest(),
]
