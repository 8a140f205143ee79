"""Passages on films and on the people who made them.

The wording varies from film to film, always in the same way for the same film.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from agentgym_rl.retrieval.passages import Passage
from tools.embedded_corpus.films import Film, Person
from tools.embedded_corpus.names import listed, pick, with_article

MAX_LEADS = 12
"""Names of the cast in a film's main passage; the others stand in a second one."""
MAX_CREDITS = 30
"""Credits in one passage of a person; who has more has several passages."""

_GENRES = {
    "Sci-Fi": "science fiction",
    "Sport": "sports",
    "Biography": "biographical",
    "History": "historical",
    "Romance": "romantic",
    "Music": "music",
    "Family": "family",
    "Animation": "animated",
}


def film_passages(film: Film, title: str, leads: Sequence[str]) -> Iterator[Passage]:
    """Yield the film's main passage and, where the cast is long, one with the rest of the cast."""
    sentences = (
        _opening(film),
        _makers(film),
        _cast(film, leads),
        _making(film),
        _reception(film),
    )
    yield Passage(film.id, title, " ".join(sentence for sentence in sentences if sentence))
    others = [name for name in film.cast if name not in leads]
    if others:
        wording = pick(
            (
                "The cast of {film} ({year}) also includes {names}.",
                "Further members of the cast of {film} ({year}) are {names}.",
                "{film} ({year}) also features {names}.",
            ),
            film.id,
        )
        text = wording.format(film=film.name, year=film.year, names=listed(others))
        heading = f"Further cast of {title}"
        yield Passage(cast_id(film), heading, text)


def cast_id(film: Film) -> str:
    """Return the id of the passage with the cast that the main passage leaves out."""
    return f"{film.id}-cast"


def leading_cast(film: Film, num_films: Mapping[str, int]) -> tuple[str, ...]:
    """Return whom the main passage names: those with the most films, in alphabetical order."""
    best = sorted(film.cast, key=lambda name: (-num_films[name], name))[:MAX_LEADS]
    return tuple(name for name in film.cast if name in best)


def person_passages(person: Person, title: str) -> Iterator[Passage]:
    """Yield the passages on a person, each with at most `MAX_CREDITS` credits."""
    for number, credits in enumerate(_parts(person)):
        films = [film for _, film in credits]
        first, last = min(film.year for film in films), max(film.year for film in films)
        text = " ".join(_credit_sentences(person, credits))
        if number == 0:
            yield Passage(person.id, title, f"{_introduction(person)} {text}")
        else:
            time = f"{first} to {last}" if first < last else f"{first}"
            heading = f"{title}: more films, {time} (part {number + 1})"
            yield Passage(part_id(person, number), heading, text)


def part_id(person: Person, number: int) -> str:
    """Return the id of the person's passage of this number; the first is number 0."""
    return person.id if number == 0 else f"{person.id}-part-{number + 1}"


def credit_id(person: Person, role: str, film: Film) -> str:
    """Return the id of the passage with this credit; `role` is directed, wrote or acted."""
    for number, credits in enumerate(_parts(person)):
        if (role, film) in credits:
            return part_id(person, number)
    raise ValueError(f"{person.name} has no credit of having {role} {film.name}")


def _parts(person: Person) -> list[list[tuple[str, Film]]]:
    roles = (("directed", person.directed), ("wrote", person.wrote), ("acted", person.acted))
    credits = [(role, film) for role, films in roles for film in films]
    return [credits[start : start + MAX_CREDITS] for start in range(0, len(credits), MAX_CREDITS)]


def _introduction(person: Person) -> str:
    roles = [
        role
        for role, films in (
            ("director", person.directed),
            ("screenwriter", person.wrote),
            ("actor", person.acted),
        )
        if films
    ]
    trade = f"{'an' if roles[0] == 'actor' else 'a'} {listed(roles)}"
    first, last = person.years[0], person.years[-1]
    time = f"from {first} to {last}" if first < last else f"of {first}"
    return pick(
        (
            f"{person.name} is {trade} with film credits {time}.",
            f"{person.name} has film credits as {trade} {time}.",
            f"Known in film as {trade}, {person.name} has credits {time}.",
        ),
        person.name,
    )


def _credit_sentences(person: Person, credits: Sequence[tuple[str, Film]]) -> Iterator[str]:
    name = person.name
    wordings = {
        "directed": (f"{name} directed {{}}.", f"Films directed by {name} are {{}}."),
        "wrote": (
            f"{name} wrote the screenplay of {{}}.",
            f"{name}'s credits as a writer are {{}}.",
        ),
        "acted": (f"{name} appears in the cast of {{}}.", f"As an actor, {name} was seen in {{}}."),
    }
    for role, options in wordings.items():
        films = [f"{film.name} ({film.year})" for kind, film in credits if kind == role]
        if films:
            yield pick(options, name + role).format(listed(films))


def _opening(film: Film) -> str:
    genres = [_GENRES.get(genre, genre.lower()) for genre in film.genres[:3]]
    kind = " ".join(genres)
    kind = kind if kind.endswith(("documentary", "musical", "western")) else f"{kind} film".strip()
    article = "an" if kind[0] in "aeiou" else "a"
    countries = (
        f" from {listed([with_article(name) for name in film.countries])}" if film.countries else ""
    )
    return pick(
        (
            f"{film.name} is a {film.year} {kind}{countries}.",
            f"{film.name} is {article} {kind}{countries}, released in {film.year}.",
            f"Released in {film.year}, {film.name} is {article} {kind}{countries}.",
        ),
        f"opening {film.id}",
    )


def _makers(film: Film) -> str:
    directors, writers = listed(film.directors), listed(film.writers)
    if film.directors and film.directors == film.writers:
        return f"It was written and directed by {directors}."
    if directors and writers:
        return pick(
            (
                f"It was directed by {directors} from a screenplay by {writers}.",
                f"{directors} directed it; the screenplay is by {writers}.",
                f"The film was directed by {directors} and written by {writers}.",
            ),
            f"makers {film.id}",
        )
    if directors:
        return f"It was directed by {directors}."
    return f"It was written by {writers}." if writers else ""


def _cast(film: Film, leads: Sequence[str]) -> str:
    if not leads:
        return ""
    names = listed(leads)
    return pick(
        (f"The cast includes {names}.", f"It stars {names}.", f"{names} are in the cast.")
        if len(leads) > 1
        else (f"The cast includes {names}.", f"It stars {names}."),
        f"cast {film.id}",
    )


def _making(film: Film) -> str:
    facts: list[str] = []
    if film.minutes:
        facts.append(f"runs {film.minutes} minutes")
    if film.languages:
        facts.append(f"is in {listed(film.languages)}")
    if film.companies:
        facts.append(f"was produced by {listed(film.companies[:3])}")
    released = date.fromisoformat(film.released) if film.released else None
    day = ""
    # 1 January stands for an unknown day.
    if released and (released.month, released.day) != (1, 1):
        day = f" It was first released on {released.day} {released:%B} {released.year}."
    return (f"The film {listed(facts)}." if facts else "") + day


def _reception(film: Film) -> str:
    sentences: list[str] = []
    if film.box_office:
        sentences.append(f"Its reported box office was ${film.box_office:,}.")
    if film.metacritic is not None:
        sentences.append(f"Metacritic gives it {film.metacritic} out of 100.")
    if film.awards:
        sentences.append(_awards(film.awards))
    return " ".join(sentences)


def _awards(text: str) -> str:
    """Return a sentence of "Won 1 Oscar. Nominated for 2 Oscars."."""
    parts = [part[0].lower() + part[1:] for part in text.rstrip(".").split(". ")]
    words = [part if part.startswith("won") else f"was {part}" for part in parts]
    return f"It {listed(words)}.".replace("Oscar", "Academy Award")
