"""Errands with the watchlist of the encyclopedia: what to watch has to be found out first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.site_process import Value
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, fact, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import users
from agentgym_rl.envs.scenarios.web.tasks.wiki_lookups import short
from agentgym_rl.envs.scenarios.web.tasks.wiki_tasks import WATCHED, articles, open_article
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Seeded,
    Template,
    Wrong,
)

_CREDIT = re.compile(r"\[\[([^\]|]+)\|([^\]]+ \((\d{4})\))\]\]")
"""A film of a filmography that has an article: title, what is shown, and year."""
_SMALL = """
SELECT category, group_concat(title, '; ') FROM
(SELECT category, title FROM reference.article_category
 WHERE category LIKE 'Cities in %' OR category LIKE 'Films from %' ORDER BY category, title)
GROUP BY category HAVING count(*) BETWEEN 2 AND 3 ORDER BY category
"""
_AGES = (("older", "newer"), ("oldest", "most recent"))
"""What the first and the last one of two films are called, and of three."""
_ORDERS = ("WLWL", "LWLW", "LLWW", "WWLW", "LWLL")
"""Which of four films have won an award."""


class _Watching(Changing):
    """What is to be watched is in the values, as "titles"."""

    sites = ("wiki",)
    split = "train"

    def check(self, case: Case, outcome: Outcome) -> bool:
        titles = str(case.values["titles"]).split("; ")
        return outcome.query("wiki", WATCHED, ()) == sorted((title,) for title in titles)


def _with(case: Case, values: Mapping[str, Value]) -> Case:
    return replace(case, values={**case.values, **values})


class WatchNamesake(_Watching):
    """Watch the older, or the newer, of films that have one name."""

    name = "wiki-watch-namesake"
    number = 24
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        titles = [title for title, _ in articles(seeded, "film")]
        by_name: dict[str, list[str]] = {}
        for title in titles:
            by_name.setdefault(short(title), []).append(title)
        others = seeded.rows("wiki", "SELECT title FROM reference.article WHERE kind <> 'film'")
        taken = {str(title).lower() for (title,) in others}
        names = [
            name for name, found in sorted(by_name.items())
            if len(found) > 1 and name.lower() not in taken
        ]  # fmt: skip
        for place, name in enumerate(seeded.some(self, names)):
            found = sorted(by_name[name], key=lambda title: title[-10:])
            asked = _AGES[len(found) - 2][place % 2]
            title, another = (found[0], found[-1]) if place % 2 == 0 else (found[-1], found[0])
            yield Case(
                f"Lexica has articles about {('two', 'three')[len(found) - 2]} films with the name"
                f" “{name}”. Put the one about the {asked} of them on your watchlist.",
                users=users("wiki"),
                values={"name": name, "asked": asked, "titles": title, "another": another},
            )

    def expert(self, case: Case, page: Page) -> Script:
        name, title = str(case.values["name"]), str(case.values["titles"])
        yield from page.type("textbox", "Search Lexica", name)
        yield from page.reach("link", title)
        films = told(page.listed(rf"link ({re.escape(name)}) \((\d{{4}}) film\)$"))
        thought = f"The films with this name: {films}. So the {case.values['asked']} is {title}."
        yield from because(page, thought, page.click("link", title))
        yield from page.click("button", "Watch")
        yield from page.done()

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        namesake = _with(case, {"titles": case.values["another"]})
        return (*super().wrong(case, other), Wrong("the other film", "done", of_other=namesake))


class WatchLatestFilm(_Watching):
    """Watch the first, or the latest, film of a person."""

    name = "wiki-watch-latest-film"
    number = 25
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "wiki",
            "SELECT title, sections FROM reference.article WHERE kind = 'person' ORDER BY id",
        )
        for place, (person, sections) in enumerate(seeded.some(self, rows, 60)):
            text = " ".join(part[2] for part in json.loads(str(sections)))
            films = sorted({(year, title, shown) for title, shown, year in _CREDIT.findall(text)})
            if place % 2 == 0:
                films.reverse()
            asked = ("most recent", "earliest")[place % 2]
            if 3 <= len(films) <= 12 and films[0][0] != films[1][0]:
                yield Case(
                    f"Look at the films of {person} that have an article of their own in Lexica,"
                    f" and add the article about the {asked} of them to your watchlist.",
                    users=users("wiki"),
                    values={"person": person, "asked": asked, "titles": films[0][1],
                            "shown": films[0][2]},
                )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        shown = str(case.values["shown"])
        yield from open_article(page, str(case.values["person"]))
        yield from page.reach("link", shown)
        films = told(page.listed(r"link (.+) \((\d{4})\)$"))
        thought = f"The films with a link: {films}. So {shown} is the {case.values['asked']}."
        yield from because(page, thought, page.click("link", shown))
        yield from page.click("button", "Watch")
        yield from page.done()


class WatchLargerCountry(_Watching):
    """Watch the larger, or the smaller, of two countries."""

    name = "wiki-watch-larger-country"
    number = 26
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        areas = {
            title: float(facts["Area"].partition(" ")[0].replace(",", ""))
            for title, facts in articles(seeded, "country")
            if re.match(r"[\d,.]+ square kilometres$", facts.get("Area", ""))
        }
        chosen = seeded.some(self, sorted(areas), 40)
        for place, (one, other) in enumerate(zip(chosen[::2], chosen[1::2], strict=True)):
            small, large = sorted((one, other), key=areas.__getitem__)
            right, wrong = (large, small) if place % 3 else (small, large)
            asked = "larger" if place % 3 else "smaller"
            if areas[large] > 1.02 * areas[small]:
                yield Case(
                    f"Which country has the {asked} area, {one} or {other}? Put the article about"
                    " that one on your watchlist in Lexica, and not the other.",
                    users=users("wiki"),
                    values={"one": one, "other": other, "asked": asked, "titles": right,
                            "another": wrong},
                )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        right, last = str(case.values["titles"]), str(case.values["other"])
        found = list[tuple[str, str]]()
        for title in (str(case.values["one"]), last):
            article = open_article(page, title)
            thought = f"Area: {told(found)}. Now I look at {title}."
            yield from because(page, thought, article) if found else article
            yield from page.read("Area |")
            found.append((title, fact(page, "Area")))
        compared = f"Area: {told(found)}. So {right} has the {case.values['asked']} area"
        if right != last:
            thought = f"{compared}, and I go back to its article."
            yield from because(page, thought, open_article(page, right))
        thought = f"{compared}, and this is its article."
        yield from because(page, thought, page.click("button", "Watch"))
        yield from page.done()

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        swapped = _with(case, {"titles": case.values["another"]})
        return (*super().wrong(case, other), Wrong("the other country", "done", of_other=swapped))


class WatchWinners(_Watching):
    """Watch those of four films that have won an award."""

    name = "wiki-watch-winners"
    number = 27
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = dict[str, list[str]](W=[], L=[])
        for title, facts in articles(seeded, "film"):
            if "Academy Awards" in facts:
                found["L" if facts["Academy Awards"].startswith("0 ") else "W"].append(title)
        left = {kind: iter(seeded.some(self, films, 80)) for kind, films in found.items()}
        for place in range(20):
            order = _ORDERS[place % len(_ORDERS)]
            films = [next(left[kind]) for kind in order]
            won = [title for title, kind in zip(films, order, strict=True) if kind == "W"]
            yield Case(
                "Some of these four films have won an Academy Award according to Lexica, the"
                f" others were only nominated: “{films[0]}”, “{films[1]}”, “{films[2]}” and"
                f" “{films[3]}”. Put those that have won one on your watchlist.",
                users=users("wiki"),
                values={"films": "; ".join(films), "titles": "; ".join(won),
                        "last": order[::-1].index("W")},
            )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        won = str(case.values["titles"]).split("; ")
        before = ""
        for title in str(case.values["films"]).split("; "):
            article = open_article(page, title)
            thought = f"{before} Now I look at {title}."
            yield from because(page, thought, article) if before else article
            yield from page.read("Academy Awards |")
            awards = f"{title} has {fact(page, 'Academy Awards')}"
            before = f"{awards}, so I leave it."
            if title in won:
                thought, before = f"{awards}, so I watch it.", f"I watch {title}."
                yield from because(page, thought, page.click("button", "Watch"))
        yield from because(page, f"{before} That was the last one: all is done.", page.done())

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        every = _with(case, {"titles": case.values["films"]})
        return (
            Wrong("no action", "done"),
            Wrong("half done", "done", leaves_out=1 + int(str(case.values["last"]))),
            Wrong("another change", "done", of_other=other),
            Wrong("all four", "done", of_other=every),
        )


class WatchCategory(_Watching):
    """Watch all articles of a small category."""

    name = "wiki-watch-category"
    number = 28
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("wiki", _SMALL))
        for place, (category, titles) in enumerate(rows):
            asked = (
                f'Add every article of the category "{category}" to your watchlist in Lexica.',
                f'Watch all the articles that Lexica has in its category "{category}".',
            )
            yield Case(
                asked[place % 2],
                users=users("wiki"),
                values={"category": category, "titles": titles},
            )

    def expert(self, case: Case, page: Page) -> Script:
        category = str(case.values["category"])
        yield from page.click("link", "Categories")
        yield from page.type("textbox", "Filter categories", category)
        titles = str(case.values["titles"]).split("; ")
        for place, title in enumerate(titles):
            thought = f"I have not watched all of {category} yet."
            to_list = page.click("link", category)
            yield from because(page, thought, to_list) if place else to_list
            found = told((one,) for one in titles)
            watched = f"I have watched {place} of them" if place else "None is watched yet"
            thought = f"In {category}: {found}. {watched}, so the next is {title}."
            yield from because(page, thought, page.click("link", title))
            yield from page.click("button", "Watch")
        yield from page.done()


TEMPLATES: list[Template] = [
    WatchNamesake(),
    WatchLatestFilm(),
    WatchLargerCountry(),
    WatchWinners(),
    WatchCategory(),
]
