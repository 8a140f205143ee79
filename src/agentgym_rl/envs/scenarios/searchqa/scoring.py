"""How an answer is compared with the accepted ones: exact match and F1, as SQuAD defines them.

Both compare normalised texts (arXiv:1606.05250): lower case, without punctuation, without the words
"a", "an" and "the", blanks collapsed. Of several accepted answers the one that fits best counts.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Return the text as answers are compared: "The Beatles!" becomes "beatles"."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """Return 1 where the answer equals an accepted one after normalisation, else 0."""
    given = normalize(answer)
    return float(any(given == normalize(one) for one in accepted))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Return the best F1 of the words of the answer against those of an accepted one."""
    given = normalize(answer).split()
    return max((_f1(given, normalize(one).split()) for one in accepted), default=0.0)


def _f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    if not given or not wanted:
        return float(given == wanted)
    num_common = (Counter(given) & Counter(wanted)).total()
    if not num_common:
        return 0.0
    precision, recall = num_common / len(given), num_common / len(wanted)
    return 2 * precision * recall / (precision + recall)
