"""First searches that a reader of a question might make, knowing nothing but the question.

A question is worth several searches only if none of these is enough. `screen.py` drops what one of
them gives away, and `agentgym bench one-search` measures what is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentgym_rl.envs.scenarios.searchqa.embedded.names import fold
from agentgym_rl.envs.scenarios.searchqa.questions import Hop

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
