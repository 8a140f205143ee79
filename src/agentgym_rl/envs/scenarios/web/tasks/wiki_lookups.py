"""Questions in the encyclopedia about several articles, long ones, lists and changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, fact, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import Counting, users
from agentgym_rl.envs.scenarios.web.tasks.wiki_tasks import articles, open_article
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Outcome,
    Reading,
    Seeded,
    Template,
    Wrong,
)

_PAIRS = """
SELECT l.source, min(l.target), max(l.target) FROM reference.article_link l
JOIN reference.article f ON f.title = l.source AND f.kind = 'film'
JOIN reference.article p ON p.title = l.target AND p.kind = 'person'
GROUP BY l.source HAVING count(*) > 3 ORDER BY l.source
"""
"""Films with two of their people."""
_FILMS_OF_BOTH = """
SELECT count(*) FROM reference.article_search WHERE article_search MATCH ?
"""
_CHANGES = """
SELECT a.title, r.editor, r.comment FROM reference.revision r
JOIN reference.article a ON a.id = r.article_id
WHERE r.comment <> 'Created the article' AND a.kind IN ('country', 'person')
AND (SELECT count(*) FROM reference.revision o
WHERE o.article_id = a.id AND o.editor = r.editor) = 1
ORDER BY r.id
"""
"""Changes by editors who did not change the article otherwise."""
_FROM = """
SELECT category, title FROM reference.article_category WHERE category LIKE 'Films from %'
AND category IN (SELECT category FROM reference.article_category GROUP BY category
HAVING count(*) BETWEEN 5 AND 35) ORDER BY category, title
"""
_FIGURES = (
    # what is asked, the chapter that tells it, what the article says
    ("How many airports does {} have", "Transportation", "Airports of {}: ([\\d,]+)"),
    ("How many years is the life expectancy at birth of the total population in {}",
     "People and society", "Life expectancy at birth of {}: total population: ([\\d.]+)"),
    ("How many kilometres long is the coastline of {}", "Geography",
     "The coastline of {} measures ([\\d,.]*[\\d])"),
    ("What percentage of the population of {} uses the internet", "Communications",
     "Internet users of {}: percent of population: ([\\d.]+)"),
)  # fmt: skip
_SHOWN = 240
"""Characters of a paragraph that are surely shown to the agent."""
_YEAR = re.compile(r" \((\d{4}) film\)$")


def short(title: str) -> str:
    """Return the title of a film without its year: "Gandhi (1982 film)" -> "Gandhi"."""
    return _YEAR.sub("", title)


class _WhichFilm(Reading):
    """A question whose answer is the title of a film, with or without its year."""

    sites = ("wiki",)
    level = 3
    split = "train"

    def check(self, case: Case, outcome: Outcome) -> bool:
        is_short = super().check(_answered(case), outcome)
        return is_short or super().check(case, outcome)

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        another = str(case.values["another"])
        return (*super().wrong(case, other), Wrong("another one of these films", another))


def _answered(case: Case) -> Case:
    return Case(case.objective, short(case.answer))


class FilmOfTwo(Counting):
    """How long is the only film that names two people? By a search for both."""

    name = "wiki-film-of-two"
    number = 8
    sites = ("wiki",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        films = dict(articles(seeded, "film"))
        for title, one, other in seeded.some(self, seeded.rows("wiki", _PAIRS), 80):
            words = " ".join(f'"{word}"' for word in re.findall(r"\w+", f"{one} {other}"))
            ((count,),) = seeded.rows("wiki", _FILMS_OF_BOTH, words)
            time = films[str(title)].get("Running time", "")
            if count == 1 and time:
                yield Case(
                    f"There is one article about a film in Lexica that names both {one} and"
                    f" {other}. How many minutes does this film run?",
                    time.partition(" ")[0],
                    users=users("wiki"),
                    values={"one": one, "other": other, "title": title},
                )

    def expert(self, case: Case, page: Page) -> Script:
        one, other = case.values["one"], case.values["other"]
        search = page.type("textbox", "Search Lexica", f"{one} {other}")
        yield from because(page, "A search for both names finds what names both.", search)
        title = str(case.values["title"])
        thought = f"{title} is what the search for both names found."
        yield from because(page, thought, page.click("link", title))
        yield from page.answer(case.answer, shown=f"{case.answer} minutes")


class LongestFilm(_WhichFilm):
    """Which of three films is the longest, or the shortest?"""

    name = "wiki-longest-film"
    number = 9

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [row for row in articles(seeded, "film") if "Running time" in row[1]]
        chosen = seeded.some(self, rows, 60)
        for place, three in enumerate(zip(chosen[::3], chosen[1::3], chosen[2::3], strict=True)):
            minutes = {title: int(facts["Running time"].split()[0]) for title, facts in three}
            asked, choose = (("shortest", min), ("longest", max))[place % 2]
            best = choose(minutes, key=minutes.__getitem__)
            if list(minutes.values()).count(minutes[best]) == 1:
                one, other, third = minutes
                yield Case(
                    f"Which of these three films is the {asked}, by the running times in Lexica:"
                    f" “{one}”, “{other}” or “{third}”?",
                    best,
                    users=users("wiki"),
                    values={"titles": "; ".join(minutes), "asked": asked,
                            "another": next(title for title in minutes if title != best)},
                )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        found = list[tuple[str, str]]()
        for title in str(case.values["titles"]).split("; "):
            thought = f"Running times: {told(found)}. Now I look at {title}."
            article = open_article(page, title)
            yield from because(page, thought, article) if found else article
            yield from page.read("Running time")
            found.append((title, fact(page, "Running time")))
        asked = case.values["asked"]
        thought = f"Running times: {told(found)}. So {case.answer} is the {asked}."
        yield from because(page, thought, page.answer(case.answer, shown="Running time"))


class CountryFigure(Reading):
    """Which figure does the long article about a country give? By its contents."""

    name = "wiki-country-figure"
    number = 10
    sites = ("wiki",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "wiki",
            "SELECT title, sections FROM reference.article WHERE kind = 'country' ORDER BY id",
        )
        for place, (title, sections) in enumerate(seeded.some(self, rows, 120)):
            asked, chapter, pattern = _FIGURES[place % len(_FIGURES)]
            figure = re.compile(pattern.format(re.escape(str(title))))
            parts = _paragraphs(json.loads(str(sections)))
            found = [match[1] for _, text in parts for match in figure.finditer(text)]
            is_shown = any(at == chapter and figure.search(text[:_SHOWN]) for at, text in parts)
            if is_shown and len(found) == 1 and found[0] != "0":
                yield Case(
                    f"{asked.format(title)}, according to the article about it in Lexica?",
                    found[0],
                    users=users("wiki"),
                    values={"title": title, "chapter": chapter,
                            "shown": _plain(pattern).format(title) + found[0]},
                )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        chapter = str(case.values["chapter"])
        thought = f"The article is long; what is asked for should be in the chapter {chapter}."
        yield from because(page, thought, page.click("link", chapter))
        yield from page.answer(case.answer, shown=str(case.values["shown"]))


def _paragraphs(sections: list[tuple[int, str, str]]) -> list[tuple[str, str]]:
    """Return (chapter, text) of the paragraphs of an article."""
    found = list[tuple[str, str]]()
    chapter = ""
    for level, heading, text in sections:
        chapter = heading if level == 2 else chapter
        found += [(chapter, paragraph) for paragraph in text.split("\n")]
    return found


def _plain(pattern: str) -> str:
    """Return what stands before the figure in a pattern."""
    return pattern.partition("(")[0]


class EditComment(Reading):
    """How did an editor describe a change? In the history of an article."""

    name = "wiki-edit-comment"
    number = 11
    sites = ("wiki",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("wiki", _CHANGES))
        for place, (title, editor, comment) in enumerate(rows):
            asked = (
                f"{editor} once changed the article “{title}” in Lexica. Which comment did this"
                " editor leave about the change?",
                f"What did the user {editor} change about the article “{title}” in Lexica,"
                " according to the comment in its history?",
            )
            yield Case(
                asked[place % 2],
                str(comment),
                users=users("wiki"),
                values={"title": title, "editor": editor},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_article(page, str(case.values["title"]))
        thought = "The history of the article has who changed it, and their comments."
        yield from because(page, thought, page.click("link", "History"))
        yield from page.answer(case.answer, shown=f"{case.values['editor']} | {case.answer}")


class OldestFrom(_WhichFilm):
    """Which film of a country is the oldest, or the newest? In a category."""

    name = "wiki-oldest-from"
    number = 12

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        films: dict[str, list[str]] = {}
        for category, title in seeded.rows("wiki", _FROM):
            films.setdefault(str(category), []).append(str(title))
        for place, category in enumerate(seeded.some(self, sorted(films), 40)):
            by_year = sorted(films[category], key=_year)
            if place % 2:
                by_year.reverse()
            asked = ("oldest", "most recent")[place % 2]
            if _year(by_year[0]) != _year(by_year[1]):
                yield Case(
                    f'Which is the {asked} film in the category "{category}" of Lexica, by the'
                    " years in the titles?",
                    by_year[0],
                    users=users("wiki"),
                    values={"category": category, "asked": asked, "another": by_year[1]},
                )

    def expert(self, case: Case, page: Page) -> Script:
        category = str(case.values["category"])
        yield from page.click("link", "Categories")
        yield from page.type("textbox", "Filter categories", category)
        yield from page.click("link", category)
        yield from page.read_to_end()
        asked = str(case.values["asked"])
        sign = 1 if asked == "oldest" else -1
        films = page.listed(r"link (.+) \((\d{4}) film\)$")
        years = told(films, lambda film: sign * int(film[1]))
        thought = f"By their years: {years}. So {case.answer} is the {asked}."
        yield from because(page, thought, page.answer(case.answer))


def _year(title: str) -> int:
    found = _YEAR.search(title)
    return int(found[1]) if found else 0


TEMPLATES: list[Template] = [
    FilmOfTwo(),
    LongestFilm(),
    CountryFigure(),
    EditComment(),
    OldestFrom(),
]
