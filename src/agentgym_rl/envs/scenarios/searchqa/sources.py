"""Where questions and search engines come from, each read or opened once per process."""

from __future__ import annotations

import logging
import threading
from functools import cache

from agentgym_rl.envs.scenarios.searchqa.datasets.catalog import ITEM_RANGES, ItemRange
from agentgym_rl.envs.scenarios.searchqa.datasets.load import load_dataset
from agentgym_rl.envs.scenarios.searchqa.embedded import (
    embedded_corpus_file,
    embedded_questions,
)
from agentgym_rl.envs.scenarios.searchqa.options import EMBEDDED, SearchOptions
from agentgym_rl.envs.scenarios.searchqa.questions import Catalog, Question, number_from, number_on
from agentgym_rl.errors import ConfigError
from agentgym_rl.retrieval.base import Retriever
from agentgym_rl.retrieval.open import RetrieverOptions, open_retriever

logger = logging.getLogger(__name__)

_NUMBERED = ("test", "dev", "train")
"""The order of the embedded splits in numbers, so that more training questions change no others."""
_opening = threading.Lock()


@cache
def read_catalog(data: str) -> Catalog:
    """Return the questions of "embedded", or of the data sets that a folder has.

    Raises ConfigError that says where to get them where it has none.
    """
    if data == EMBEDDED:
        return number_on({split: embedded_questions(split) for split in _NUMBERED}, _NUMBERED)
    splits: dict[str, list[Question]] = {}
    missing: list[ConfigError] = []
    for items in ITEM_RANGES:
        try:
            splits.setdefault(items.split, []).extend(_read_items(data, items))
        except ConfigError as error:
            missing.append(error)
    if len(missing) == len(ITEM_RANGES):
        raise missing[0]
    return Catalog({split: tuple(questions) for split, questions in splits.items() if questions})


def _read_items(data: str, items: ItemRange) -> list[Question]:
    """Return the questions of one data set under AgentGym's ids, as many as it has of them."""
    questions = load_dataset(data, items.name, items.split)
    if len(questions) != items.count:
        logger.warning(
            "%s %s in %s has %d questions, AgentGym's has %d: ids may name other questions",
            items.name, items.split, data, len(questions), items.count,
        )  # fmt: skip
    return number_from(items.first, questions[: items.count])


def open_engine(options: SearchOptions) -> Retriever:
    """Return the search engine; all episodes of the process with the same options share it."""
    chosen = RetrieverOptions(
        backend=options.retriever,  # type: ignore[arg-type]  # checked by itself
        index=options.index or None,
        corpus=options.corpus or None,
        url=options.url or None,
        timeout_s=options.retriever_timeout_s,
        nprobe=options.nprobe,
        ef_search=options.ef_search,
        faiss_gpu=options.faiss_gpu,
    )
    with _opening:
        return _open(chosen)


@cache
def _open(options: RetrieverOptions) -> Retriever:
    return open_retriever(options, own_corpus=embedded_corpus_file)
