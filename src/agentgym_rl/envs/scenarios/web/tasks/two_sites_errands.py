"""Tasks that need two sites: what one of them says decides what is done on the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.site_process import Row, Value
from agentgym_rl.envs.scenarios.web.tasks.code_reading import LOG
from agentgym_rl.envs.scenarios.web.tasks.map_lookups import namesakes
from agentgym_rl.envs.scenarios.web.tasks.map_tasks import LISTS, SAVED, find_place, found_namesakes
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import compare_prices, money, products
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import (
    AGENT_ID,
    CONTRIBUTORS,
    PROJECTS,
    SUBMISSIONS,
    Counting,
    open_project,
    open_submission,
    users,
)
from agentgym_rl.envs.scenarios.web.tasks.wiki_tasks import (
    WATCHED,
    articles,
    open_article,
    plain,
    target,
)
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Seeded,
    Template,
    Wrong,
)

_AUTHORS = f"""
SELECT x.id, x.title, x.author, a.location FROM
(SELECT id, title, username AS author FROM ({SUBMISSIONS})) x
JOIN auth_user u ON u.username = x.author JOIN accounts_profile a ON a.user_id = u.id ORDER BY x.id
"""
_PEOPLE = """
SELECT u.username, u.first_name || ' ' || u.last_name, a.location
FROM auth_user u JOIN accounts_profile a ON a.user_id = u.id ORDER BY u.id
"""
_CATEGORIES = """
SELECT product_id, min(category_id) FROM catalogue_productcategory GROUP BY product_id
ORDER BY product_id
"""
_OPEN_SUBMISSIONS = f"""
SELECT id, title FROM ({SUBMISSIONS}) WHERE id NOT IN
(SELECT id FROM forum_submission WHERE is_locked)
"""
_NEW_COMMENTS = """
SELECT submission_id, parent_id, trim(body) FROM forum_comment
WHERE author_id = ? AND created >= '2024-06-14 10:30:00'
"""


class SaveCapital(Changing):
    """Save the capital of a country on the map, with a fact from the encyclopedia as the note."""

    name = "wiki-map-save-capital"
    number = 42
    sites = ("wiki", "map")
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[tuple[str, str, str, Value]]()
        for title, facts in articles(seeded, "country"):
            if "[[" in facts.get("Capital", "") and "Internet code" in facts:
                rows = seeded.rows(
                    "map",
                    """SELECT id, article FROM reference.place WHERE population > 0 AND name = ?
                    AND country = ? ORDER BY id""",
                    plain(facts["Capital"]),
                    title,
                )
                if len(rows) == 1 and rows[0][1] == target(facts["Capital"]):
                    code, capital = facts["Internet code"], plain(facts["Capital"])
                    found.append((title, capital, code, rows[0][0]))
        for place, (title, capital, code, number) in enumerate(seeded.some(self, found)):
            yield Case(
                f"Lexica (wiki.test) knows the capital of {title} and the internet code of this"
                " country. Save the capital on Wayfarer (map.test) to your list"
                f' "{LISTS[place % 3]}", with the internet code, such as .xy, as the note.',
                users=users("wiki", "map"),
                values={"title": title, "capital": capital, "code": code, "id": number,
                        "list": LISTS[place % 3]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        return outcome.query("map", SAVED, ()) == [(values["list"], values["id"], values["code"])]

    def expert(self, case: Case, page: Page) -> Script:
        capital, code = str(case.values["capital"]), str(case.values["code"])
        title = str(case.values["title"])
        yield from open_article(page, title)
        yield from page.read(f"Internet code | {code}")
        thought = f"The capital is {capital} and the internet code {code}. Now I need the map."
        yield from because(page, thought, page.goto("http://map.test/"))
        yield from find_place(page, capital, title)
        yield from page.select("List", str(case.values["list"]))
        thought = f"The internet code of {title} was {code}, and it belongs into the note."
        yield from because(page, thought, page.type("textbox", "Note", code, enter=False))
        yield from page.click("button", "Save")
        yield from page.done()


class WatchSecondNamesake(Changing):
    """Watch the article about the second largest of the cities on the map that have one name."""

    name = "map-wiki-watch-namesake"
    number = 41
    sites = ("map", "wiki")
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[tuple[str, int, str, str]]()
        for name, rows in namesakes(seeded).items():
            (article,) = (
                article
                for article, population in seeded.rows(
                    "map",
                    """SELECT article, population FROM reference.place WHERE name = ?
                    AND population > 0 ORDER BY id""",
                    name,
                )
                if population == rows[1][2]
            )
            largest = f"{rows[1][3]}, {rows[1][1]}, {rows[1][2]:,} inhabitants"
            if article:
                found.append((name, len(rows), str(article), largest))
        for name, number, article, shown in seeded.some(self, found):
            yield Case(
                f"On Wayfarer (map.test) there are {number} cities and towns called {name}. Add the"
                " article about the one with the second most inhabitants to your watchlist in"
                " Lexica (wiki.test).",
                users=users("map", "wiki"),
                values={"name": name, "article": article, "shown": shown},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return outcome.query("wiki", WATCHED, ()) == [(case.values["article"],)]

    def expert(self, case: Case, page: Page) -> Script:
        name, shown = str(case.values["name"]), str(case.values["shown"])
        yield from page.type("textbox", "Search places", name)
        yield from page.read(shown)
        found = told(found_namesakes(page, name), lambda row: -int(row[1].replace(",", "")))
        thought = f"Inhabitants of {name}: {found}. So the second is this one: {shown}."
        yield from because(page, thought, page.click("link", name, nth=1))
        thought = "The page of the city leads to the right article."
        yield from because(page, thought, page.click("link", "Article in Lexica"))
        yield from page.click("button", "Watch")
        yield from page.done()


class HometownPopulation(Counting):
    """How many people live where the author of a submission lives?"""

    name = "forum-wiki-hometown"
    number = 41
    sites = ("forum", "wiki")
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        cities = dict(articles(seeded, "city"))
        rows = [row for row in seeded.rows("forum", _AUTHORS) if row[3] in cities]
        for place, (_, title, author, city) in enumerate(seeded.some(self, rows)):
            asked = (
                f"Somebody submitted “{title}” on Agora (forum.test). How many inhabitants does the"
                " city in this person's profile have, according to Lexica (wiki.test)?",
                f"The profile of the person who submitted “{title}” on Agora (forum.test) names a"
                " city as the place where they are. What is the population of this city in Lexica"
                " (wiki.test)?",
            )
            yield Case(
                asked[place % 2],
                cities[str(city)]["Population"],
                users=users("forum", "wiki"),
                values={"title": title, "author": author, "city": city},
            )

    def expert(self, case: Case, page: Page) -> Script:
        city, author = str(case.values["city"]), str(case.values["author"])
        yield from open_submission(page, str(case.values["title"]))
        thought = f"{author} submitted it, and the profile should say where {author} lives."
        yield from because(page, thought, page.click("link", author))
        yield from page.read(city)
        thought = f"{author} is in {city}. Now I need Lexica."
        yield from because(page, thought, page.goto("http://wiki.test/"))
        thought = f"The profile said {city}, so I look for its article."
        yield from because(page, thought, open_article(page, city))
        yield from page.answer(case.answer)


class SaveHometown(Changing):
    """Save the city of the person on the map who made the most commits to a project."""

    name = "code-map-hometown"
    number = 41
    sites = ("code", "map")
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        cities = {
            str(name): number
            for number, name in seeded.rows(
                "map",
                """SELECT id, name FROM reference.place WHERE population > 0 AND name IN (SELECT
                name FROM reference.place WHERE population > 0 GROUP BY name HAVING count(*) = 1)
                ORDER BY id""",
            )
        }
        about = {row[0]: row[1:] for row in seeded.rows("code", _PEOPLE)}
        found = list[tuple[str, str, str]]()
        for project, path, _ in seeded.rows("code", PROJECTS):
            log = seeded.rows("code", LOG, int(str(project)))
            counts = [*Counter(row[2] for row in log).most_common(2), ("", 0)]
            person, city = about[counts[0][0]]
            if counts[0][1] > counts[1][1] and city in cities:
                found.append((str(path), str(person), str(city)))
        for place, (path, person, city) in enumerate(seeded.some(self, found)):
            yield Case(
                "Find out on Codeyard (code.test) who has made the most commits to the main branch"
                f" of {path}, and which city this person's profile names. Then save this city on"
                f' Wayfarer (map.test) to your list "{LISTS[place % 3]}".',
                users=users("code", "map"),
                values={"path": path, "person": person, "city": city, "id": cities[city],
                        "list": LISTS[place % 3]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        return outcome.query("map", SAVED, ()) == [(case.values["list"], case.values["id"], "")]

    def expert(self, case: Case, page: Page) -> Script:
        city, person = str(case.values["city"]), str(case.values["person"])
        yield from open_project(page, str(case.values["path"]))
        yield from page.click("link", "Contributors")
        yield from page.reach("link", person)
        commits = told(page.listed(CONTRIBUTORS))
        thought = f"Commits: {commits}. So {person} made the most, and I open this profile."
        yield from because(page, thought, page.click("link", person))
        yield from page.read(city)
        thought = f"{person} is in {city}. Now I need the map."
        yield from because(page, thought, page.goto("http://map.test/"))
        yield from page.type("textbox", "Search places", city)
        thought = f"The profile said {city}, and here it is."
        yield from because(page, thought, page.click("link", city))
        yield from page.select("List", str(case.values["list"]))
        yield from page.click("button", "Save")
        yield from page.done()


class RecommendCheaper(Changing):
    """Find the cheaper of two products, and recommend it in the forum."""

    name = "shop-forum-cheaper"
    number = 90
    sites = ("shop", "forum")
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        kinds = {row[0]: row[1] for row in seeded.rows("shop", _CATEGORIES)}
        by_kind: dict[int, list[Row]] = {}
        for row in products(seeded):
            if re.fullmatch(r"[\w ,-]+", str(row[2])):
                by_kind.setdefault(int(str(kinds[row[0]])), []).append(row)
        pairs = [seeded.some(self, rows, 2) for _, rows in sorted(by_kind.items()) if rows[1:]]
        places = seeded.some(self, seeded.rows("forum", _OPEN_SUBMISSIONS), len(pairs))
        for two, (number, title) in seeded.some(self, list(zip(pairs, places, strict=True)), 30):
            by_price = sorted(two, key=lambda row: float(str(row[4])))
            cheap, dear = (str(row[2]) for row in by_price)
            price, more = (money(row[4]) for row in by_price)
            first, second = (str(row[2]) for row in two)
            if price != more:
                yield Case(
                    f"Which one is cheaper in the shop (shop.test), the {first} or the {second}?"
                    f" Recommend it below “{title}” on Agora (forum.test), with the comment"
                    ' "Take the NAME", where NAME is its full name in the shop.',
                    users=users("forum"),
                    values={"id": number, "title": title, "cheap": cheap, "dear": dear,
                            "price": price, "more": more, "first": first, "second": second},
                )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("forum", _NEW_COMMENTS, (AGENT_ID,))
        said = [(row[0], row[1], str(row[2]).rstrip(".")) for row in rows]
        return said == [(case.values["id"], None, f"Take the {case.values['cheap']}")]

    def expert(self, case: Case, page: Page) -> Script:
        values = {name: str(value) for name, value in case.values.items()}
        cheap, two = values["cheap"], (values["first"], values["second"])
        prices = {one: values["price" if one == cheap else "more"] for one in two}
        found = yield from compare_prices(page, prices)
        thought = f"{found}. So {cheap} is cheaper. Now I need the forum."
        yield from because(page, thought, page.goto("http://forum.test/"))
        yield from open_submission(page, values["title"])
        thought = f"{cheap} was the cheaper one, for {values['price']}."
        text = f"Take the {cheap}"
        comment = page.type("textbox", "Comment", text, enter=False)
        yield from because(page, thought, comment)
        yield from page.click("button", "Post")
        yield from page.done()

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        swapped = replace(case, values={**case.values, "cheap": case.values["dear"]})
        return (*super().wrong(case, other), Wrong("the dearer one", "done", of_other=swapped))


TEMPLATES: list[Template] = [
    SaveCapital(),
    WatchSecondNamesake(),
    HometownPopulation(),
    SaveHometown(),
    RecommendCheaper(),
]
