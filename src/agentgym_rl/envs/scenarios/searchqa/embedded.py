"""The embedded corpus and its questions: data of the package, made by `tools/embedded_corpus`.

The index over the corpus is built at first use, in the cache folder. Where the facts come from, and
under which licences, is in data/ATTRIBUTION.md.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import orjson

from agentgym_rl.envs.scenarios.searchqa.questions import Hop, Question
from agentgym_rl.errors import ConfigError, did_you_mean
from agentgym_rl.retrieval.corpus import open_corpus
from agentgym_rl.retrieval.open import has_index_in_cache

Split: TypeAlias = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)

_DATA = Path(__file__).with_name("data")


def embedded_corpus_file() -> Path:
    """Return the corpus, a file in Search-R1's format (`id`, `contents`)."""
    return _DATA / "corpus.jsonl.xz"


def embedded_questions_file(split: Split) -> Path:
    """Return the questions of a split: one JSON object with the fields of `Question` per line."""
    return _DATA / f"{split}.jsonl.xz"


def is_embedded_indexed() -> bool:
    """Return whether the cache folder has the index of the corpus, or the first use builds it."""
    return has_index_in_cache(open_corpus(embedded_corpus_file()))


@cache
def embedded_questions(split: Split) -> tuple[Question, ...]:
    """Return the questions of a split; question `i` stands at place `i`."""
    if split not in SPLITS:
        hint = did_you_mean(split, SPLITS)
        raise ConfigError(f"no split {split!r}{hint}; available: {', '.join(SPLITS)}")
    with lzma.open(embedded_questions_file(split)) as lines:
        return tuple(map(_question, lines))


def _question(line: bytes) -> Question:
    row = orjson.loads(line)
    return Question(
        index=row["index"],
        text=row["text"],
        answers=tuple(row["answers"]),
        category=row["category"],
        hops=row["hops"],
        gold=tuple(row["gold"]),
        path=tuple(Hop(**hop) for hop in row["path"]),
    )
