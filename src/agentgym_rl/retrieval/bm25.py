"""BM25 over English text with tantivy, which also keeps the passages for every other back end.

An index has one document a passage: its row in the corpus, its id, its contents (stored only) and
the words to search, the title's counted `TITLE_WEIGHT` times.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import tantivy

from agentgym_rl.errors import EnvError
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.passages import Passage, passage_from_row

TITLE_WEIGHT = 3
_MAX_QUERY_CHARS = 4096
"""What is read of a query; the rest of a longer one does not count."""
_MAX_WORD_BYTES = 64
_MAX_POSTINGS = 3_000_000
"""Occurrences of words that a search reads, at most: some 20 ms. It leaves out the commonest words
of a query where they are more, which happens in corpora of millions of passages only."""
_MIN_THREAD_QUERIES = 8
_MAX_THREADS = 8
"""tantivy works outside Python's lock, so the queries of a batch can share the processors."""
_MAX_TIED = 10_000
"""Hits looked at, at most, to order equal scores at the border of `topk` by row."""


class Bm25Retriever(Retriever):
    """Searches the index in `folder`. Equal scores are ordered by row.

    Raises EnvError for a folder that has no readable index.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self._searcher, self._schema = _open_to_read(folder)
        except (ValueError, OSError) as error:
            raise EnvError(f"cannot open the index in {folder}: {error}") from error
        self._analyzer = english_analyzer()

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        num_threads = min(len(queries) // _MIN_THREAD_QUERIES, os.cpu_count() or 1, _MAX_THREADS)
        try:
            if num_threads < 2:
                return [self._search(query, topk) for query in queries]
            # Threads of this call alone: none is left behind when a process forks.
            with ThreadPoolExecutor(num_threads) as pool:
                return list(pool.map(partial(self._search, topk=topk), queries))
        except (ValueError, OSError) as error:
            raise EnvError(f"the index failed: {error}") from error

    def get(self, passage_id: str) -> Passage | None:
        query = tantivy.Query.term_query(self._schema, "id", clean(passage_id), "basic")
        return self._first(query)

    def at_row(self, row: int) -> Passage:
        """Return the passage at a row of the corpus. Raises EnvError where there is none."""
        passage = self._first(tantivy.Query.term_query(self._schema, "row", row, "basic"))
        if passage is None:
            raise EnvError(
                f"the index has no row {row}; it has {len(self)}: it is of another corpus"
            )
        return passage

    def __len__(self) -> int:
        return self._searcher.num_docs

    def _search(self, query: str, topk: int) -> list[Hit]:
        words = self._words(query)
        if not words or topk < 1:
            return []
        terms = [
            (
                tantivy.Occur.Should,
                tantivy.Query.term_query(self._schema, "words", word, "freq"),
            )
            for word in words
        ]
        found = self._best(tantivy.Query.boolean_query(terms), min(topk, len(self)))
        rows = self._searcher.fast_field_values("row", [address for _, address in found])
        ordered = sorted(
            ((-score, row, address) for (score, address), row in zip(found, rows, strict=True)),
            key=lambda hit: hit[:2],
        )
        return [Hit(self._passage(address), -score) for score, _, address in ordered[:topk]]

    def _words(self, query: str) -> list[str]:
        """Return the words of the query that are in the index, within `_MAX_POSTINGS`.

        A word that stands twice counts once.
        """
        words = dict.fromkeys(self._analyzer.analyze(clean(query[:_MAX_QUERY_CHARS])))
        numbers = {word: self._searcher.doc_freq("words", word) for word in words}
        chosen: list[str] = []
        num_postings = 0
        for word in sorted((word for word in words if numbers[word]), key=lambda w: numbers[w]):
            num_postings += numbers[word]
            if chosen and num_postings > _MAX_POSTINGS:
                break
            chosen.append(word)
        return chosen

    def _best(self, query: tantivy.Query, topk: int) -> list[tuple[float, tantivy.DocAddress]]:
        """Return the best hits and all that tie with the last of them.

        A segment is sorted by row, so only ties between segments need a look beyond `topk`.
        """
        is_sorted = self._searcher.num_segments == 1
        limit = topk if is_sorted else topk + 16
        while True:
            hits = self._searcher.search(query, limit=limit, count=False).hits
            is_tied = len(hits) == limit and hits[-1][0] == hits[topk - 1][0]
            if is_sorted or not is_tied or limit >= _MAX_TIED:
                return hits
            limit *= 8

    def _first(self, query: tantivy.Query) -> Passage | None:
        try:
            found = self._searcher.search(query, limit=1, count=False).hits
            return self._passage(found[0][1]) if found else None
        except (ValueError, OSError) as error:
            raise EnvError(f"the index failed: {error}") from error

    def _passage(self, address: tantivy.DocAddress) -> Passage:
        document = self._searcher.doc(address)
        contents = b"".join(document.get_all("contents")).decode()
        return passage_from_row({"id": document.get_first("id"), "contents": contents})


def _open_to_read(folder: Path) -> tuple[tantivy.Searcher, tantivy.Schema]:
    """Open a finished index without writing into its folder, which may be read-only.

    tantivy makes a lock file where it opens, so it gets a folder of links; that one can go at once,
    because all files are mapped from then on.
    """
    links = Path(tempfile.mkdtemp(prefix="agentgym-index-"))
    try:
        for file in folder.resolve().iterdir():
            if file.suffix != ".lock":
                (links / file.name).symlink_to(file)
        index = tantivy.Index.open(str(links))
        return index.searcher(), index.schema
    finally:
        # A thread of tantivy looks at a new index once, which may put the lock file back meanwhile.
        while links.exists():
            shutil.rmtree(links, ignore_errors=True)


def open_tantivy(folder: Path) -> tantivy.Index:
    """Open the tantivy index of a folder to add to it; make an empty one where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    if not tantivy.Index.exists(str(folder)):
        index = tantivy.Index(_schema(), path=str(folder), sort_by_field="row")
    else:
        index = tantivy.Index.open(str(folder))
    index.register_tokenizer("english_words", english_analyzer())
    return index


def to_document(passage: Passage, row: int) -> tantivy.Document:
    """Return what tantivy indexes of a passage."""
    document = tantivy.Document()
    document.add_unsigned("row", row)
    document.add_text("id", clean(passage.id))
    document.add_bytes("contents", passage.contents.encode(errors="replace"))
    title = clean(passage.title)
    document.add_text("words", "\n".join([title] * TITLE_WEIGHT + [clean(passage.text)]))
    return document


def english_analyzer() -> tantivy.TextAnalyzer:
    """Return what splits texts and queries into words: lower case, no accents, English stems."""
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for step in (
        tantivy.Filter.remove_long(_MAX_WORD_BYTES),
        tantivy.Filter.lowercase(),
        tantivy.Filter.ascii_fold(),
        tantivy.Filter.stemmer("english"),
    ):
        builder = builder.filter(step)
    return builder.build()


def clean(text: str) -> str:
    """Return the text with what UTF-8 cannot hold (lone surrogates) as question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", indexed=True, fast=True)
    builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field("contents", stored=True)
    builder.add_text_field("words", tokenizer_name="english_words", index_option="freq")
    return builder.build()
