"""Questions and errands in the encyclopedia."""

from __future__ import annotations

import json
from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import because
from agentgym_rl.envs.scenarios.web.tasks.town_common import Counting, users
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Reading,
    Seeded,
    Template,
)

WATCHED = "SELECT title FROM wiki_watchedarticle WHERE user_id = 1 ORDER BY title"


def articles(seeded: Seeded, kind: str) -> list[tuple[str, dict[str, str]]]:
    """Return (title, facts) of the articles of a kind; facts have links marked."""
    rows = seeded.rows(
        "wiki", "SELECT title, facts FROM reference.article WHERE kind = ? ORDER BY id", kind
    )
    return [(str(title), dict(json.loads(str(facts)))) for title, facts in rows]


def plain(text: str) -> str:
    """Return what a link shows: "[[Paris (France)|Paris]]" -> "Paris"."""
    return text.removeprefix("[[").removesuffix("]]").rpartition("|")[2]


def target(text: str) -> str:
    """Return where a link leads: "[[Paris (France)|Paris]]" -> "Paris (France)"."""
    return text.removeprefix("[[").removesuffix("]]").partition("|")[0]


def open_article(page: Page, title: str) -> Script:
    """Search for a title, which opens the article."""
    yield from page.type("textbox", "Search Lexica", title)


def address(title: str) -> str:
    """Return the path of an article."""
    return f"/wiki/{title.replace(' ', '_')}"


class RunningTime(Counting):
    """How long is a film? On its page."""

    name = "wiki-running-time"
    number = 1
    sites = ("wiki",)
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [row for row in articles(seeded, "film") if "Running time" in row[1]]
        rows = [row for row in rows if row[0].isascii() and "?" not in row[0] and "%" not in row[0]]
        for title, facts in seeded.some(self, rows):
            yield Case(
                f"How many minutes does {title} run?",
                facts["Running time"].partition(" ")[0],
                address(title),
                users("wiki"),
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer, shown=f"{case.answer} minutes")


class Capital(Reading):
    """What is the capital of a country? A search away."""

    name = "wiki-capital"
    number = 2
    sites = ("wiki",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [row for row in articles(seeded, "country") if "[[" in row[1].get("Capital", "")]
        for title, facts in seeded.some(self, rows):
            yield Case(
                f"What is the capital of {title}, according to Lexica?",
                plain(facts["Capital"]),
                users=users("wiki"),
                values={"title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.answer(case.answer, shown=f"link {case.answer}")


class TimeZone(Reading):
    """Which time zone does a city keep? A search away."""

    name = "wiki-time-zone"
    number = 3
    sites = ("wiki",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for title, facts in seeded.some(self, articles(seeded, "city")):
            yield Case(
                f"Which time zone does {title} keep, according to Lexica?",
                facts["Time zone"],
                users=users("wiki"),
                values={"title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.answer(case.answer)


class InCategory(Counting):
    """How many articles does a category have?"""

    name = "wiki-in-category"
    number = 4
    sites = ("wiki",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "wiki",
            """SELECT category, count(*), min(title) FROM reference.article_category
            WHERE category LIKE 'Cities in %' GROUP BY category HAVING count(*) BETWEEN 5 AND 400
            ORDER BY category""",
        )
        for category, count, title in seeded.some(self, rows):
            yield Case(
                f'How many articles are in the category "{category}" of Lexica?',
                str(count),
                users=users("wiki"),
                values={"category": category, "title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        category = str(case.values["category"])
        yield from page.click("link", "Categories")
        yield from page.type("textbox", "Filter categories", category)
        yield from page.click("link", category)
        yield from page.answer(case.answer, shown=f"{case.answer} articles")


class WhoCreated(Reading):
    """Who created an article? In its history."""

    name = "wiki-who-created"
    number = 5
    sites = ("wiki",)
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "wiki",
            """SELECT a.title, r.editor FROM reference.revision r
            JOIN reference.article a ON a.id = r.article_id
            WHERE r.comment = 'Created the article' AND a.kind = 'person' ORDER BY r.id""",
        )
        for title, editor in seeded.some(self, rows):
            yield Case(
                f"Which editor created the article about {title} in Lexica?",
                str(editor),
                users=users("wiki"),
                values={"title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.click("link", "History")
        yield from page.answer(case.answer, shown=f"{case.answer} | Created the article")


class LinksHere(Counting):
    """How many articles link to another one?"""

    name = "wiki-links-here"
    number = 6
    sites = ("wiki",)
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "wiki",
            """SELECT l.target, count(*) FROM reference.article_link l
            JOIN reference.article a ON a.title = l.target AND a.kind = 'person'
            GROUP BY l.target HAVING count(*) > 5 ORDER BY l.target""",
        )
        for title, count in seeded.some(self, rows):
            yield Case(
                f"How many articles of Lexica link to the article about {title}?",
                str(count),
                users=users("wiki"),
                values={"title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.click("link", "What links here")
        yield from page.answer(case.answer, shown=f"{case.answer} articles")


class CapitalPopulation(Counting):
    """How many people live in a country's capital? Two articles."""

    name = "wiki-capital-population"
    number = 7
    sites = ("wiki",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        cities = dict(articles(seeded, "city"))
        rows = [row for row in articles(seeded, "country") if "[[" in row[1].get("Capital", "")]
        for title, facts in seeded.some(self, rows):
            yield Case(
                f"How many inhabitants does the capital of {title} have, according to the article"
                " about that city?",
                cities[target(facts["Capital"])]["Population"],
                users=users("wiki"),
                values={"title": title, "capital": plain(facts["Capital"])},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        capital = str(case.values["capital"])
        thought = f"The capital of {case.values['title']} is {capital}, so I open its article."
        yield from because(page, thought, page.click("link", capital))
        yield from page.answer(case.answer)


class Watch(Changing):
    """Put an article on the watchlist."""

    name = "wiki-watch"
    number = 20
    sites = ("wiki",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for title, _ in seeded.some(self, articles(seeded, "film")):
            yield Case(
                f"Add the article “{title}” to your watchlist.",
                users=users("wiki"),
                values={"title": title},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return outcome.query("wiki", WATCHED, ()) == [(case.values["title"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.click("button", "Watch")
        yield from page.done()


class Discuss(Changing):
    """Begin a discussion about an article."""

    name = "wiki-discuss"
    number = 21
    sites = ("wiki",)
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        topics = (
            ("Missing source", "Where does the population come from?"),
            ("Picture wanted", "A picture would help here."),
            ("Wrong coordinates", "The position seems to be off."),
            ("Older names", "Can we explain where the names come from?"),
        )
        for place, (title, _) in enumerate(seeded.some(self, articles(seeded, "city"))):
            heading, text = topics[place % len(topics)]
            yield Case(
                f"On the discussion page of the article “{title}”, add a topic with the heading"
                f' "{heading}" and the text "{text}"',
                users=users("wiki"),
                values={"title": title, "heading": heading, "text": text},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "wiki",
            """SELECT t.title, t.heading, trim(p.body) FROM wiki_post p
            JOIN wiki_topic t ON t.id = p.topic_id WHERE p.author_id = 1""",
            (),
        )
        values = case.values
        return rows == [(values["title"], values["heading"], values["text"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.click("link", "Discussion")
        yield from page.type("textbox", "Heading", str(case.values["heading"]), enter=False)
        yield from page.type("textbox", "Text", str(case.values["text"]), enter=False)
        yield from page.click("button", "Add topic")
        yield from page.done()


class WatchDirector(Changing):
    """Watch a film and the article about its director."""

    name = "wiki-watch-director"
    number = 22
    sites = ("wiki",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [
            (title, facts["Directed by"])
            for title, facts in articles(seeded, "film")
            if facts.get("Directed by", "").count("[[") == 1
            and facts["Directed by"].startswith("[[")
            and facts["Directed by"].endswith("]]")
        ]
        for title, director in seeded.some(self, rows):
            yield Case(
                f"Add the article “{title}” and the article about the director of the film to your"
                " watchlist.",
                users=users("wiki"),
                values={"title": title, "director": target(director)},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = sorted([(case.values["title"],), (case.values["director"],)])
        return sorted(outcome.query("wiki", WATCHED, ())) == wanted

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        yield from page.click("button", "Watch")
        director = str(case.values["director"])
        thought = f"I watch the film now. It was directed by {director}, so I open that article."
        yield from because(page, thought, page.click("link", director))
        yield from page.click("button", "Watch")
        yield from page.done()


class WatchCapitals(Changing):
    """Watch the capitals of two countries."""

    name = "wiki-watch-capitals"
    number = 23
    sites = ("wiki",)
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [row for row in articles(seeded, "country") if "[[" in row[1].get("Capital", "")]
        chosen = seeded.some(self, rows, 40)
        for (one, facts), (other, more) in zip(chosen[::2], chosen[1::2], strict=True):
            yield Case(
                f"Add the articles about the capitals of {one} and {other} to your watchlist.",
                users=users("wiki"),
                values={"one": one, "other": other, "one_capital": facts["Capital"],
                        "other_capital": more["Capital"]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = sorted((target(str(case.values[f"{key}_capital"])),) for key in ("one", "other"))
        return sorted(outcome.query("wiki", WATCHED, ())) == wanted

    def expert(self, case: Case, page: Page) -> Script:
        for key in ("one", "other"):
            yield from open_article(page, str(case.values[key]))
            yield from page.click("link", plain(str(case.values[f"{key}_capital"])))
            yield from page.click("button", "Watch")
        yield from page.done()


TEMPLATES: list[Template] = [
    RunningTime(),
    Capital(),
    TimeZone(),
    InCategory(),
    WhoCreated(),
    LinksHere(),
    CapitalPopulation(),
    Watch(),
    Discuss(),
    WatchDirector(),
    WatchCapitals(),
]
