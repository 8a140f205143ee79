"""Errands with lists of places on the map: what is saved has to be found out first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.site_process import Row
from agentgym_rl.envs.scenarios.web.tasks.map_tasks import (
    LISTS,
    PLACES,
    SAVED,
    find_place,
    unique_places,
)
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, fact, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import users
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Seeded,
    Template,
    Wrong,
)

_DETAILS = "SELECT id, phone, hours, address FROM reference.place WHERE population = 0 ORDER BY id"
_DAYS = {"Sundays": ("Cafe", "coffee"), "Mondays": ("Restaurant", "dinner")}
"""Day on which some are closed -> kind of place, and what one goes there for."""


def _details(seeded: Seeded) -> dict[object, Row]:
    """Return id -> (phone, hours, address)."""
    return {row[0]: row[1:] for row in seeded.rows("map", _DETAILS)}


def _save(page: Page, chosen: object) -> Script:
    """Save the place whose page is open to a list."""
    yield from page.select("List", str(chosen))
    yield from page.click("button", "Save")


class SaveWithPhone(Changing):
    """Put a place on a list, with its phone number as the note."""

    name = "map-save-with-phone"
    number = 24
    sites = ("map",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        details = _details(seeded)
        for place, row in enumerate(seeded.some(self, unique_places(seeded))):
            chosen, phone = LISTS[place % 3], details[row[0]][0]
            asked = (
                f'Put {row[1]} in {row[5]} on your list "{chosen}". The note should be its phone'
                " number, as its page has it.",
                f'I want to call {row[1]} in {row[5]} later: save it to my list "{chosen}" and'
                " write its phone number, as the map has it and nothing else, into the note.",
            )
            yield Case(
                asked[place % 2],
                users=users("map"),
                values={"id": row[0], "name": row[1], "city": row[5], "list": chosen,
                        "phone": phone},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        return outcome.query("map", SAVED, ()) == [(values["list"], values["id"], values["phone"])]

    def expert(self, case: Case, page: Page) -> Script:
        phone = str(case.values["phone"])
        yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
        yield from page.read(phone)
        yield from page.select("List", str(case.values["list"]))
        thought = f"The phone number on this page is {phone}, and it belongs into the note."
        yield from because(page, thought, page.type("textbox", "Note", phone, enter=False))
        yield from page.click("button", "Save")
        yield from page.done()


class SaveOpenOne(Changing):
    """Save the one of two places that is open on a day."""

    name = "map-save-open-one"
    number = 25
    sites = ("map",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        details = _details(seeded)
        by_city: dict[tuple[object, str], list[Row]] = {}
        for row in unique_places(seeded):
            by_city.setdefault((row[5], str(row[2])), []).append(row)
        found = list[tuple[str, Row, Row]]()
        for day, (kind, _) in _DAYS.items():
            for rows in (rows for (_, of_kind), rows in by_city.items() if of_kind == kind):
                closed = [row for row in rows if day in str(details[row[0]][1])]
                others = [row for row in rows if row not in closed]
                found += [(day, *pair) for pair in zip(others, closed, strict=False)][:1]
        for place, (day, right, closed) in enumerate(seeded.some(self, found)):
            kind, purpose = _DAYS[day]
            first, second = (right, closed) if place % 2 else (closed, right)
            yield Case(
                f"I am going out for {purpose} in {right[5]} on a {day.removesuffix('s')}, either"
                f" to {first[1]} or to {second[1]}, but one of these two {kind.lower()}s is closed"
                f' on {day}. Save the other one to my list "{LISTS[place % 3]}".',
                users=users("map"),
                values={"city": right[5], "day": day, "list": LISTS[place % 3], "id": right[0],
                        "right": right[1], "first": first[1], "second": second[1]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        return outcome.query("map", SAVED, ()) == [(case.values["list"], case.values["id"], "")]

    def expert(self, case: Case, page: Page) -> Script:
        city, day = str(case.values["city"]), case.values["day"]
        seen = list[tuple[str, str]]()
        for name in (str(case.values["first"]), str(case.values["second"])):
            search = page.type("textbox", "Search places", f"{name}, {city}")
            thought = f"Hours: {told(seen)}. Now I look at {name}."
            yield from because(page, thought, search) if seen else search
            yield from page.click("link", name)
            seen.append((name, fact(page, "Hours")))
            if name == case.values["right"]:
                break
        right = case.values["right"]
        thought = f"Hours: {told(seen)}. {right} is not closed on {day}, so I choose its list."
        chosen = page.select("List", str(case.values["list"]))
        yield from because(page, thought, chosen)
        yield from page.click("button", "Save")
        yield from page.done()

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        values = case.values
        closed = values["second"] if values["right"] == values["first"] else values["first"]
        swapped = replace(case, values={**values, "right": closed})
        return (*super().wrong(case, other), Wrong("the closed one", "done", of_other=swapped))


class SaveOnStreet(Changing):
    """Save the only place of a kind in a street."""

    name = "map-save-on-street"
    number = 26
    sites = ("map",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        details = _details(seeded)
        kinds = ("Restaurant", "Cafe", "Supermarket", "Hotel")
        found = list[tuple[str, Row]]()
        for row in seeded.rows("map", PLACES):
            street = str(details[row[0]][2]).partition(",")[0].partition(" ")[2]
            found.append((street, row))
        counts = Counter((street, row[2], row[5]) for street, row in found)
        found = [
            (street, row) for street, row in found
            if row[2] in kinds and counts[street, row[2], row[5]] == 1
        ]  # fmt: skip
        for place, (street, row) in enumerate(seeded.some(self, found)):
            kind, chosen = str(row[2]).lower(), LISTS[place % 3]
            asked = (
                f"There is just one {kind} on {street} in {row[5]}. Save it to your list"
                f' "{chosen}".',
                f"I forgot the name of the {kind} on {street} in {row[5]}. Find it on the map and"
                f' put it on my list "{chosen}".',
            )
            yield Case(
                asked[place % 2],
                users=users("map"),
                values={"id": row[0], "name": row[1], "query": f"{kind} {street}, {row[5]}",
                        "street": street, "list": chosen},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        return outcome.query("map", SAVED, ()) == [(case.values["list"], case.values["id"], "")]

    def expert(self, case: Case, page: Page) -> Script:
        name = str(case.values["name"])
        yield from page.type("textbox", "Search places", str(case.values["query"]))
        places = told(page.listed(r"link (.+)\n\w+, (\d+ [^,\n]+), "))
        thought = f"By their addresses: {places}. So {name} is on {case.values['street']}."
        yield from because(page, thought, page.click("link", name))
        yield from _save(page, case.values["list"])
        yield from page.done()


class SaveAll(Changing):
    """Save every place of a kind in a city."""

    name = "map-save-all"
    number = 27
    sites = ("map",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        by_city: dict[tuple[object, object], list[Row]] = {}
        for row in unique_places(seeded):
            if row[2] in ("Library", "Cinema", "Park"):
                by_city.setdefault((row[2], row[5]), []).append(row)
        told = {"Library": (2, "both libraries"), "Cinema": (2, "both cinemas"),
                "Park": (3, "all three parks")}  # fmt: skip
        whole = [rows for (kind, _), rows in by_city.items() if len(rows) == told[str(kind)][0]]
        for place, rows in enumerate(seeded.some(self, whole)):
            kind, city, chosen = str(rows[0][2]), rows[0][5], LISTS[place % 3]
            yield Case(
                f'Save {told[kind][1]} of {city} to your list "{chosen}".',
                users=users("map"),
                values={"kind": kind, "city": city, "list": chosen,
                        "names": "; ".join(str(row[1]) for row in rows),
                        "ids": "; ".join(str(row[0]) for row in rows)},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = sorted((row[0], str(row[1])) for row in outcome.query("map", SAVED, ()))
        ids = str(case.values["ids"]).split("; ")
        return rows == sorted((case.values["list"], number) for number in ids)

    def expert(self, case: Case, page: Page) -> Script:
        kind, city = str(case.values["kind"]), case.values["city"]
        names = str(case.values["names"]).split("; ")
        for place, name in enumerate(names):
            search = page.type("textbox", "Search places", f"{kind.lower()}, {city}")
            thought = f"{'Next' if place else 'First'} I look for a {kind.lower()} in {city}."
            yield from because(page, thought, search)
            found = told(page.listed(rf"link (.+)\n{kind}, .+$"))
            saved = f"Saved: {' and '.join(names[:place])}" if place else "None is saved yet"
            thought = f"Found: {found}. {saved}. So I take {name}."
            yield from because(page, thought, page.click("link", name))
            yield from _save(page, case.values["list"])
        yield from page.done()


class ReplaceList(Changing):
    """Delete a list, and put a place on another one."""

    name = "map-delete-list-and-save"
    number = 28
    sites = ("map",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, unique_places(seeded))):
            gone, chosen = LISTS[place % 3], LISTS[(place + 1 + place // 3 % 2) % 3]
            asked = (
                f'I do not need my list of places "{gone}" any more, so delete it. Then save'
                f' {row[1]} in {row[5]} to the list "{chosen}".',
                f'Put {row[1]} in {row[5]} on my list "{chosen}", and delete the list "{gone}".',
            )
            yield Case(
                asked[place % 2],
                users=users("map"),
                values={"id": row[0], "name": row[1], "city": row[5], "list": chosen,
                        "gone": gone},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("map", "SELECT name FROM map_placelist WHERE user_id = 1", ())
        kept = sorted((name,) for name in LISTS if name != case.values["gone"])
        saved = outcome.query("map", SAVED, ())
        return sorted(rows) == kept and saved == [(case.values["list"], case.values["id"], "")]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Saved")
        yield from page.click("link", str(case.values["gone"]))
        yield from page.click("button", "Delete list")
        yield from find_place(page, str(case.values["name"]), str(case.values["city"]))
        yield from _save(page, case.values["list"])
        yield from page.done()


TEMPLATES: list[Template] = [
    SaveWithPhone(),
    SaveOpenOne(),
    SaveOnStreet(),
    SaveAll(),
    ReplaceList(),
]
