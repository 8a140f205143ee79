"""Agents that look for a shortcut: they answer without a search, or out of the first one.

Each is a fixed rule that knows nothing of the question but its text, and of the training questions
what is usual there. None is clever; the best of them is what a question must not yield to.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from shortcuts import (
    asked_words,
    first_searches,
    names_in,
)

from agentgym_rl.envs.scenarios.searchqa.questions import Question
from agentgym_rl.envs.scenarios.searchqa.reading import plain_title
from agentgym_rl.envs.scenarios.searchqa.scoring import normalize
from agentgym_rl.retrieval.passages import Passage

Guess = Callable[[Question], str]
"""An answer without a search."""
Query = Callable[[Question], str]
"""The one search."""
Reader = Callable[[str, Sequence[Passage]], str]
"""An answer out of the passages of one search, given the question's text."""

_WORD = r"[^\W\d_a-z][\w'\u2019.-]*"
_NAME = re.compile(rf"{_WORD}(?: (?:(?:of|the|de|da|la|le|and|von|van) )*{_WORD})*")
_YEAR = re.compile(r"\b(?:19|20)\d{2}\b")
_NAMED_YEAR = re.compile(r'the \d{4} film "|" \(\d{4}\)|the \d{4} film directed by')
_ASKS_NUMBER = re.compile("minutes|median age")
_ASKS_FILM = re.compile(
    r"Which (?:\d{4} )?film|title of the \d{4} film|film released in|What is it called|Which one\?$"
)
_BEFORE_TITLE = re.compile(
    r"^.*?(?:\bdirected|\bare|\bcast of|\bseen in|\bscreenplay of|\bwriter are) (?=\S)"
)


# Without a search


def blind_guesses(training: Sequence[Question], asked: Sequence[Question]) -> Mapping[str, Guess]:
    """Return the rules that do not search, by name.

    "best constant" is told the commonest answer of the very questions that it is asked: no single
    answer is right more often.
    """
    usual = _commonest(training, lambda one: _template(one.text))
    usual_of_cell = _commonest(training, _cell)
    constant = _commonest(asked, _cell)
    return {
        "first name": lambda one: next(iter(names_in(one.text)), ""),
        "last name": lambda one: next(iter(names_in(one.text)[::-1]), ""),
        "first year": lambda one: next(iter(_YEAR.findall(one.text)), ""),
        "yes": lambda one: "yes",
        "usual answer to the wording": lambda one: usual.get(_template(one.text), ""),
        "usual answer of the kind": lambda one: usual_of_cell.get(_cell(one), ""),
        "best constant": lambda one: constant[_cell(one)],
    }


def _commonest(
    questions: Sequence[Question], group: Callable[[Question], str]
) -> Mapping[str, str]:
    answers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for question in questions:
        answers[group(question)][question.answers[0]] += 1
    return {name: counts.most_common(1)[0][0] for name, counts in answers.items()}


def _cell(question: Question) -> str:
    return f"{question.category} {question.hops}"


def _template(text: str) -> str:
    """Return the wording of a question without its names and numbers."""
    for name in names_in(text):
        text = text.replace(name, "NAME")
    return re.sub(r"\d+", "0", text)


# The one search


QUERIES: Mapping[str, Query] = {
    "the question": lambda one: one.text,
    "its weighty words": lambda one: first_searches(one.text)[1],
    "all names": lambda one: " ".join(names_in(one.text)) or one.text,
    "names and words": lambda one: " ".join((*names_in(one.text), *asked_words(one.text))),
    "first name": lambda one: next(iter(names_in(one.text)), one.text),
    "last name": lambda one: next(iter(names_in(one.text)[::-1]), one.text),
    "an expert's first": lambda one: first_searches(one.text, one.path[:1])[-1],
}


# What is read out of it


def _pick(candidates: Sequence[str], place: int) -> str:
    return candidates[place] if candidates else ""


def _most(candidates: Sequence[str]) -> str:
    return Counter(candidates).most_common(1)[0][0] if candidates else ""


def _shared(text: str, found: Sequence[Passage]) -> str:
    """Return the first candidate that stands in two passages."""
    places = Counter(one for passage in found for one in set(candidates(text, [passage])))
    return next((one for one in candidates(text, found) if places[one] > 1), "")


def _difference(text: str, found: Sequence[Passage]) -> str:
    """Return by how much the first numbers of two passages differ, where a number is asked for."""
    if not _ASKS_NUMBER.search(text):
        return ""
    numbers = [candidates(text, [passage]) for passage in found]
    firsts = [float(some[0].split()[0]) for some in numbers if some]
    if len(firsts) < 2:
        return ""
    return f"{round(abs(firsts[0] - firsts[1]), 1):g}"


def candidates(text: str, found: Sequence[Passage]) -> list[str]:
    """Return what the passages have of the kind that is asked for, in order."""
    whole = " ".join(passage.text for passage in found)
    if "minutes" in text:
        return [f"{number} minutes" for number in re.findall(r"(\d+) minutes", whole)]
    if _ASKS_NUMBER.search(text):
        return [f"{number} years" for number in re.findall(r"(\d+(?:\.\d+)?) years", whole)]
    if _ASKS_FILM.search(text):
        return _unasked(text, _films(text, found))
    stated = [
        part
        for word in asked_words(text)
        for part in re.findall(rf"{word}[^.]*? (?:is|are) ([^.]+)\.", whole)
    ]
    return _unasked(text, [*stated, *(name.rstrip(".") for name in _NAME.findall(whole))])


def _films(text: str, found: Sequence[Passage]) -> list[str]:
    """Return the films that passages list, only of the year that is asked for, if there is one."""
    films = _dated_films(found)
    asked = set(_YEAR.findall(_NAMED_YEAR.sub(" ", text)))
    return [name for name, year in films if year in asked] or [name for name, _ in films]


def _nearest(text: str, found: Sequence[Passage]) -> str:
    """Return the film whose year is nearest to the first one of the question."""
    years = [int(year) for year in _YEAR.findall(text)]
    if not _ASKS_FILM.search(text) or not years:
        return ""
    films = _dated_films(found)
    new = set(_unasked(text, [name for name, _ in films]))
    by_distance = [(abs(int(year) - years[0]), name) for name, year in films if name in new]
    return min(by_distance, default=(0, ""))[1]


def _dated_films(found: Sequence[Passage]) -> list[tuple[str, str]]:
    """Return the films that passages are about or list, each with its year."""
    films: list[tuple[str, str]] = []
    for passage in found:
        if about := re.fullmatch(r"(.+) \((\d{4}) film\)", passage.title):
            films.append((about[1], about[2]))
        parts = re.split(r" \((\d{4})\)", passage.text)
        for before, year in zip(parts[::2], parts[1::2], strict=False):
            name = re.sub(r"^(?:, | and )", "", before.rpartition(". ")[2])
            films.append((_BEFORE_TITLE.sub("", name), year))
    return films


def _titles(found: Sequence[Passage]) -> list[str]:
    return [plain_title(passage.title) for passage in found]


def _unasked(text: str, names: Sequence[str]) -> list[str]:
    """Return the names that the question does not mention itself."""
    asked = normalize(text)
    return [name for name in names if normalize(name) and normalize(name) not in asked]


READERS: Mapping[str, Reader] = {
    "first": lambda text, found: _pick(candidates(text, found), 0),
    "last": lambda text, found: _pick(candidates(text, found), -1),
    "commonest": lambda text, found: _most(candidates(text, found)),
    "first shared": _shared,
    "difference": _difference,
    "nearest in time": _nearest,
    "title": lambda text, found: _pick(_unasked(text, _titles(found)), 0),
}
