"""First searches that a reader of a question might make, and whether one gives the answer away.

A question is worth several searches only if none of these is enough. The generator of the embedded
questions drops what one of them gives away, and `agentgym bench one-search` measures what is left.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache

from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from agentgym_rl.retrieval.base import Hit

TOPK = 3
"""Passages of one search that a reader looks at."""

_QUOTED = re.compile(r'"([^"]+)"')
_DATED = (
    re.compile(r'the (?P<year>\d{4}) film "(?P<title>[^"]+)"'),
    re.compile(r'"(?P<title>[^"]+)" \((?P<year>\d{4})\)'),
)
_CAPITAL = r"[^\W\d_a-z][\w'\u2019.-]*"
_NAME = re.compile(rf"{_CAPITAL}(?: (?:(?:of|the|de|da|la|le|von|van|der|du|del|di) )*{_CAPITAL})*")
_OPENING = re.compile(r"^(?:What|Which|Who|By|How|In|The|One|Of)\b")
_PLAIN_WORDS = frozenset(
    ("a", "also", "an", "and", "another", "are", "as", "at", "both", "by", "called", "did", "do",
     "does", "for", "from", "has", "have", "how", "in", "is", "it", "its", "lie", "lies", "made",
     "many", "much", "of", "on", "one", "or", "other", "run", "runs", "than", "that", "the",
     "their", "these", "this", "to", "together", "two", "was", "were", "what", "which", "who",
     "whose", "with")
)  # fmt: skip

# Letters that Unicode does not take apart into a base letter and an accent.
_LETTERS = str.maketrans(
    {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ß": "ss", "æ": "ae", "Æ": "Ae"}
    | {"œ": "oe", "Œ": "Oe", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "\u0131": "i"}
    | dict.fromkeys("\u02bb\u02bc\u2018\u2019`", "'")
    | dict.fromkeys("\u2013\u2014", "-")
)


def names_in(text: str) -> list[str]:
    """Return what a question names: quoted titles, then other runs of capitalised words."""
    titles = _QUOTED.findall(text)
    rest = _QUOTED.sub(" ; ", text)
    sentences = [_OPENING.sub("", sentence.strip()) for sentence in re.split(r"(?<=[.?!]) ", rest)]
    names = [name for sentence in sentences for name in _NAME.findall(sentence)]
    return list(dict.fromkeys((*titles, *(name.rstrip(".,") for name in names))))


def asked_words(text: str) -> list[str]:
    """Return the weighty words of a question outside its names, such as "director"."""
    rest = _QUOTED.sub(" ", text)
    for name in names_in(text):
        rest = rest.replace(name, " ")
    words = re.findall(r"[a-z]{3,}", rest)
    return list(dict.fromkeys(word for word in words if word not in _PLAIN_WORDS))


def first_searches(text: str, path: Sequence[Hop] = ()) -> list[str]:
    """Return queries made of the question: whole, its weighty words, and each name in several ways.

    Those of an expert's path that hold nothing but the question's own words come as well.
    """
    names, asked = names_in(text), asked_words(text)
    weighty = [word for word in re.findall(r"[\w'.-]+", text) if fold(word) not in _PLAIN_WORDS]
    queries = [text, " ".join(weighty), " ".join(names), " ".join((*names, *asked))]
    for name in names:
        queries += [name, f"{name} {' '.join(asked)}"]
    for pattern in _DATED:
        queries += [f"{found['title']} {found['year']} film" for found in pattern.finditer(text)]
    known = set(fold(text).split())
    for hop in path:
        words = [word for word in hop.query.split() if not word.islower()]
        if known.issuperset(fold(" ".join(words)).split()):
            queries.append(hop.query)
    return list(dict.fromkeys(query for query in queries if query.strip()))


def gives_away(question: Question, hits: Sequence[Hit]) -> bool:
    """Return whether the passages of one search answer the question, or as good as.

    - They are all its gold passages, or hold all the numbers that it compares.
    - One of them has the answer. For what two things have in common, the long list of one of them
      may have it, if it is not in a second passage.
    """
    found = {hit.passage.id for hit in hits}
    if found.issuperset(question.gold) or found.issuperset(_compared(question)):
        return True
    if question.category == "comparison":
        return False
    texts = [f" {fold(hit.passage.contents)} " for hit in hits]
    holding = [hit for hit, text in zip(hits, texts, strict=True) if _has_answer(question, text)]
    if question.category == "bridge" or len(holding) > 1:
        return bool(holding)
    names = [fold(name) for name in names_in(question.text)]
    return any(
        not any(fold(hit.passage.title).startswith(name) for name in names)
        or all(f" {name} " in f" {fold(hit.passage.contents)} " for name in names)
        or question.path[-1].passage_id == hit.passage.id
        for hit in holding
    )


def _compared(question: Question) -> frozenset[str]:
    """Return the ids of the passages with the numbers that a comparison is about, else all."""
    if question.category != "comparison":
        return frozenset(question.gold)
    return frozenset(hop.passage_id for hop in question.path if hop.finding[:1].isdigit())


def _has_answer(question: Question, text: str) -> bool:
    """Return whether a folded text has the answer as words; a bare number is none."""
    forms = [form for form in map(fold, question.answers) if form and not form.isdigit()]
    return any(f" {form} " in text for form in forms)


@cache
def plain(name: str) -> str:
    """Return the name without accents, e.g. "Lodz" for "Łódź"."""
    if name.isascii():
        return name.replace("`", "'")
    decomposed = unicodedata.normalize("NFKD", name.translate(_LETTERS))
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


@cache
def fold(name: str) -> str:
    """Return what two spellings of one name have in common: lower-case letters and digits."""
    return " ".join(re.findall(r"\w+", plain(name).casefold().replace("'", "")))
