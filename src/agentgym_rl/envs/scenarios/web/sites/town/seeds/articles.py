"""The encyclopedia's articles out of deep search's corpus: `write_articles`.

Taken are all countries (one article from the passages of each), cities of 100,000 inhabitants or
more, films with a nomination for an Academy Award, and people of at least three of these films.
Links are written [[Title]] or [[Title|text]].
"""

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from agentgym_rl.envs.scenarios.web.sites.town.seeds.corpus import (
    SEPARATORS,
    City,
    Film,
    names_in,
    read_films,
)
from agentgym_rl.envs.scenarios.web.sites.town.seeds.people import Person

MIN_POPULATION = 100_000
_CHAPTERS = (
    ("Background", "Introduction"),
    ("Location", "Geography"),
    ("Population,", "People and society"),
    ("Environmental issues", "Environment"),
    ("Country name", "Government"),
    ("Economic overview", "Economy"),
    ("Electricity", "Energy"),
    ("Broadcast media", "Communications"),
    ("Civil aircraft", "Transportation"),
    ("Military and security forces", "Military and security"),
    ("Space agency", "Space"),
    ("Terrorist", "Terrorism"),
    ("Refugees", "Transnational issues"),
)
_COMMENTS = (
    "Corrected a figure", "Added a source", "Copy edit", "Fixed a link", "New paragraph",
    "Updated the infobox", "Removed a duplicate sentence", "Better wording of the lead",
    "Added a category", "Spelling",
)  # fmt: skip

_LINK = re.compile(r"\[\[([^\]|]+)")


@dataclass
class Article:
    """A page of the encyclopedia before it is written down."""

    title: str
    kind: str
    sections: list[tuple[int, str, str]]
    """(level, heading, text); the lead has level 1 and no heading."""
    facts: list[tuple[str, str]] = field(default_factory=list)
    """The box beside the text."""
    categories: list[str] = field(default_factory=list)


def make_articles(passages: Mapping[str, tuple[str, str]], cities: Sequence[City]) -> list[Article]:
    """Return all articles, linked to each other."""
    countries = {article.title: article for article in _countries(passages)}
    articles = list(countries.values())
    capitals = {_fact(article, "Capital"): article.title for article in articles}
    for city in cities:
        if city.population >= MIN_POPULATION or city.name in capitals:
            articles.append(_city(city, countries.keys(), capitals))
            if capitals.get(city.name) == city.country:
                _link_capital(countries[city.country], city)
    films = read_films(passages)
    articles += _films_and_people(films, passages)
    by_title = dict[str, Article]()
    for article in articles:
        by_title.setdefault(article.title, article)
    return list(by_title.values())


def _link_capital(country: Article, city: City) -> None:
    """Let a country's box lead to its capital: the largest city of the name."""
    linked = f"[[{city.title}|{city.name}]]"
    country.facts = [
        (key, linked if key == "Capital" and value == city.name else value)
        for key, value in country.facts
    ]


def write_articles(
    database: sqlite3.Connection, articles: list[Article], people: list[Person], now: datetime
) -> None:
    """Write articles, categories, revisions and the index of search."""
    database.executescript("""
        CREATE TABLE article (id INTEGER PRIMARY KEY, title TEXT UNIQUE, kind TEXT, sections TEXT,
            facts TEXT, lead TEXT, length INTEGER);
        CREATE TABLE article_category (category TEXT, title TEXT, PRIMARY KEY (category, title))
            WITHOUT ROWID;
        CREATE INDEX article_category_title ON article_category (title);
        CREATE TABLE article_link (target TEXT, source TEXT, PRIMARY KEY (target, source))
            WITHOUT ROWID;
        CREATE TABLE revision (id INTEGER PRIMARY KEY, article_id INTEGER, editor TEXT,
            created TEXT, comment TEXT, size INTEGER);
        CREATE INDEX revision_article ON revision (article_id);
        CREATE VIRTUAL TABLE article_search USING fts5(title, text, content='',
            tokenize='porter unicode61');
    """)
    rng = random.Random("revisions")
    for number, article in enumerate(articles, start=1):
        text = " ".join(part[2] for part in article.sections)
        plain = unlinked(text)
        lead = unlinked(article.sections[0][2])[:300]
        database.execute(
            "INSERT INTO article VALUES (?,?,?,?,?,?,?)",
            (number, article.title, article.kind, json.dumps(article.sections),
             json.dumps(article.facts), lead, len(plain)),
        )  # fmt: skip
        database.execute(
            "INSERT INTO article_search (rowid, title, text) VALUES (?,?,?)",
            (number, article.title, plain[:2500]),
        )
        database.executemany(
            "INSERT OR IGNORE INTO article_category VALUES (?,?)",
            [(category, article.title) for category in article.categories],
        )
        marked = f"{text} {' '.join(value for _, value in article.facts)}"
        database.executemany(
            "INSERT OR IGNORE INTO article_link VALUES (?,?)",
            [(target, article.title) for target in _LINK.findall(marked)],
        )
        database.executemany(
            "INSERT INTO revision (article_id, editor, created, comment, size) VALUES (?,?,?,?,?)",
            list(_revisions(number, len(plain), rng, people, now)),
        )


def unlinked(text: str) -> str:
    """Return a text without the marks of links."""
    return re.sub(r"\[\[(?:[^\]|]*\|)?([^\]|]*)\]\]", r"\1", text)


def _revisions(
    article_id: int, size: int, rng: random.Random, people: list[Person], now: datetime
) -> Iterator[tuple[int, str, str, str, int]]:
    count = rng.randrange(2, 5)
    moments = sorted(now - timedelta(days=rng.random() * 900, hours=2) for _ in range(count))
    sizes = [*sorted(rng.randrange(max(1, size // 2), size + 1) for _ in moments[1:]), size]
    for place, (moment, length) in enumerate(zip(moments, sizes, strict=True)):
        comment = "Created the article" if place == 0 else rng.choice(_COMMENTS)
        editor = rng.choice(people[1:]).username
        yield article_id, editor, moment.isoformat(" ", "seconds")[:19], comment, length


def _fact(article: Article, name: str) -> str:
    return next((value for key, value in article.facts if key == name), "")


def _countries(passages: Mapping[str, tuple[str, str]]) -> Iterator[Article]:
    by_country: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for key, (title, text) in passages.items():
        if key.startswith("country-"):
            name, _, heading = title.partition(": ")
            by_country[name].append((heading, text))
    for name, parts in by_country.items():
        sections: list[tuple[int, str, str]] = []
        chapter = 0
        for heading, text in parts:
            heading = re.sub(r" \(part \d+\)$", "", heading)
            for place, (start, title) in enumerate(_CHAPTERS):
                if place >= chapter and heading.startswith(start):
                    chapter = place + 1
                    if place:
                        sections.append((2, title, ""))
                    break
            if sections and sections[-1][1] == heading:
                sections[-1] = (3, heading, f"{sections[-1][2]}\n{text}")
            else:
                sections.append((3, heading, text))
        lead = sections[0][2] if sections and sections[0][1] == "Background" else f"{name}."
        rest = sections[1:] if sections and sections[0][1] == "Background" else sections
        article = Article(name, "country", [(1, "", lead), *rest], categories=["Countries"])
        article.facts = list(_country_facts(parts))
        yield article


def _country_facts(parts: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    whole = "\n".join(text for _, text in parts)
    for name, pattern in (
        ("Capital", r"The capital of .+? is (.+?)\. "),
        ("Population", r"Population of .+?: total: ([\d,]+)"),
        ("Area", r"has a total area of ([\d,.]+ square kilometres)"),
        ("Median age", r"the median age is ([\d.]+ years)"),
        ("Government", r"The form of government of .+? is: (.+?)[.;]"),
        ("Highest point", r"highest point: (.+?)(?: m)?[;.]"),
        ("Internet code", r"top-level domain\) of .+? is (\.\w\w)\b"),
        ("National holiday", r"National holiday of .+?: (.+?)[;.(]"),
    ):
        found = re.search(pattern, whole)
        if found and len(found[1]) < 60:
            yield name, found[1].strip()


def _city(city: City, countries: object, capitals: Mapping[str, str]) -> Article:
    text = city.text
    sentences = re.split(r"(?<=\.) (?=[A-Z])", text)
    names = next((one for one in sentences if one.startswith("Other names")), "")
    near = next((one for one in sentences if one.startswith("The nearest")), "")
    lead = " ".join(one for one in sentences if one not in (names, near))
    if city.country in countries:  # type: ignore[operator]  # keys of a mapping
        lead = lead.replace(city.country, f"[[{city.country}]]", 1)
    sections = [(1, "", lead), (2, "Surroundings", near)]
    if names:
        sections.append((2, "Names", names))
    side = "N" if city.lat >= 0 else "S"
    half = "E" if city.lon >= 0 else "W"
    position = f"{abs(city.lat):.2f}° {side}, {abs(city.lon):.2f}° {half}"
    facts = [
        ("Country", f"[[{city.country}]]" if city.country in countries else city.country),  # type: ignore[operator]
        ("Population", f"{city.population:,}"), ("Coordinates", position), ("Time zone", city.zone),
    ]  # fmt: skip
    categories = [f"Cities in {city.country}"]
    if capitals.get(city.name) == city.country:
        categories.append("Capitals")
    if city.population >= 1_000_000:
        categories.append("Cities with over a million inhabitants")
    return Article(city.title, "city", sections, facts, categories)


def _films_and_people(
    films: list[Film], passages: Mapping[str, tuple[str, str]]
) -> Iterator[Article]:
    texts = {title: text for key, (title, text) in passages.items() if key.startswith("person-")}
    of_film = {film.id: names_in(film) & texts.keys() for film in films}
    films_of: dict[str, list[Film]] = defaultdict(list)
    for film in films:
        for name in of_film[film.id]:
            if name in texts:
                films_of[name].append(film)
    chosen = {name for name, found in films_of.items() if len(found) >= 3}
    for film in films:
        yield _film(film, of_film[film.id] & chosen)
    for name in sorted(chosen):
        yield _person(name, texts[name], films_of[name])


def _film(film: Film, names: set[str]) -> Article:
    def link(text: str) -> str:
        pieces = SEPARATORS.split(text)
        return "".join(f"[[{piece}]]" if piece in names else piece for piece in pieces)

    sections = [(1, "", link(film.text))]
    if film.cast_text:
        sections.append((2, "Further cast", link(film.cast_text)))
    facts = [("Year", str(film.year))]
    if film.countries:
        facts.append(("From", ", ".join(film.countries)))
    facts += [(name, value) for name, value in (
        ("Genre", film.genres), ("Running time", f"{film.minutes} minutes" if film.minutes else ""),
        ("Academy Awards", f"{film.num_won} won, {film.num_nominated} nominated"),
    ) if value]  # fmt: skip
    directed = re.search(
        r"directed by (.+?)(?: from a| and written|; |(?<=\w\w)\.)"
        r"|(?:(?<=\w\w\. )|^)([A-ZÀ-Þ](?:[^.]|(?<= \w)\.)*?) directed it",
        film.text,
    )
    if directed:
        facts.insert(0, ("Directed by", link((directed[1] or directed[2]).strip())))
    categories = [f"{film.year} films", *(f"Films from {one}" for one in film.countries)]
    if film.num_won:
        categories.append("Academy Award winners")
    return Article(film.title, "film", sections, facts, categories)


def _person(name: str, text: str, films: list[Film]) -> Article:
    for film in films:
        short = re.sub(r" \(\d{4} film\)$", "", film.title)
        shown = f"{short} ({film.year})"
        text = text.replace(shown, f"[[{film.title}|{shown}]]")
    lead, _, rest = text.partition(". ")
    sections = [(1, "", lead + ".")]
    if rest:
        sections.append((2, "Filmography", rest))
    kinds = [
        plural for word, plural in (
            ("director", "Film directors"), ("screenwriter", "Screenwriters"), ("actor", "Actors"))
        if word in lead
    ]  # fmt: skip
    active = re.search(r"(?:from (\d{4}) to (\d{4})|of (\d{4}))", lead)
    facts = [("Known for", ", ".join(one.lower() for one in kinds))] if kinds else []
    if active:
        facts.append(("Active", f"{active[1]}-{active[2]}" if active[1] else active[3]))
    facts.append(("Films in Lexica", str(len(films))))
    return Article(name, "person", sections, facts, kinds or ["People in film"])
