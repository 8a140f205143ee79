"""BM25 over English text with tantivy, which also stores the passages for every other back end.

An index has one document per passage: its row in the corpus, its id, its contents (stored only) and
the words to search. Words of the title count `TITLE_WEIGHT` times.
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
"""The rest of a longer query is ignored."""
_MAX_WORD_BYTES = 64
_MAX_POSTINGS = 3_000_000
"""The most word occurrences that a search reads, about 20 ms. Beyond it the commonest words of the
query are left out, which happens only in corpora of millions of passages."""
_MIN_THREAD_QUERIES = 8
_MAX_THREADS = 8
"""tantivy releases Python's lock, so the queries of a batch can use several processors."""
_MAX_TIED = 10_000
"""The most hits examined to order equal scores at the border of `topk` by row."""


class Bm25Retriever(Retriever):
    """Searches the index in `folder`. Equal scores are ordered by row.

    Raises EnvError if the folder has no readable index.
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
            # A pool per call: a process that forks later leaves no thread behind.
            with ThreadPoolExecutor(num_threads) as pool:
                return list(pool.map(partial(self._search, topk=topk), queries))
        except (ValueError, OSError) as error:
            raise EnvError(f"the index failed: {error}") from error

    def get(self, passage_id: str) -> Passage | None:
        return self._find("id", clean(passage_id))

    def at_row(self, row: int) -> Passage:
        """Return the passage at a row of the corpus. Raises EnvError if there is none."""
        passage = self._find("row", row)
        if passage is None:
            raise EnvError(
                f"the index has no row {row}, only {len(self)}: it belongs to another corpus"
            )
        return passage

    def __len__(self) -> int:
        return self._searcher.num_docs

    def _search(self, query: str, topk: int) -> list[Hit]:
        words = self._words(query)
        if not words or topk < 1:
            return []
        queries = [tantivy.Query.term_query(self._schema, "words", word, "freq") for word in words]
        any_word = tantivy.Query.boolean_query([(tantivy.Occur.Should, one) for one in queries])
        found = self._best(any_word, min(topk, len(self)))
        rows = self._searcher.fast_field_values("row", [address for _, address in found])
        ordered = sorted(zip(found, rows, strict=True), key=lambda hit: (-hit[0][0], hit[1]))
        return [Hit(self._passage(address), score) for (score, address), _ in ordered[:topk]]

    def _words(self, query: str) -> list[str]:
        """Return the distinct words of the query that are in the index, within `_MAX_POSTINGS`."""
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

        A segment is sorted by row, so only ties between segments need more than `topk` hits.
        """
        is_sorted = self._searcher.num_segments == 1
        limit = topk if is_sorted else topk + 16
        while True:
            hits = self._searcher.search(query, limit=limit, count=False).hits
            is_tied = len(hits) == limit and hits[-1][0] == hits[topk - 1][0]
            if is_sorted or not is_tied or limit >= _MAX_TIED:
                return hits
            limit *= 8

    def _find(self, field: str, value: str | int) -> Passage | None:
        query = tantivy.Query.term_query(self._schema, field, value, "basic")
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

    tantivy creates a lock file where it opens, so it gets a folder of links. That folder can go at
    once, because all files are mapped by then.
    """
    links = Path(tempfile.mkdtemp(prefix="agentgym-index-"))
    try:
        for file in folder.resolve().iterdir():
            if file.suffix != ".lock":
                (links / file.name).symlink_to(file)
        index = tantivy.Index.open(str(links))
        return index.searcher(), index.schema
    finally:
        # A thread of tantivy looks at a new index once, and may put the lock file back meanwhile.
        while links.exists():
            shutil.rmtree(links, ignore_errors=True)


def open_tantivy(folder: Path) -> tantivy.Index:
    """Open the tantivy index of a folder to add to it; create it if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    if not tantivy.Index.exists(str(folder)):
        index = tantivy.Index(_schema(), path=str(folder), sort_by_field="row")
    else:
        index = tantivy.Index.open(str(folder))
    index.register_tokenizer("english_words", english_analyzer())
    return index


def to_document(passage: Passage, row: int) -> tantivy.Document:
    """Return the passage as tantivy indexes it."""
    document = tantivy.Document()
    document.add_unsigned("row", row)
    document.add_text("id", clean(passage.id))
    document.add_bytes("contents", passage.contents.encode(errors="replace"))
    title = clean(passage.title)
    document.add_text("words", "\n".join([title] * TITLE_WEIGHT + [clean(passage.text)]))
    return document


def english_analyzer() -> tantivy.TextAnalyzer:
    """Return the splitter of texts and queries: lower case, no accents, English stems."""
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
    """Replace what UTF-8 cannot encode (lone surrogates) with question marks."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("row", indexed=True, fast=True)
    builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_bytes_field("contents", stored=True)
    builder.add_text_field("words", tokenizer_name="english_words", index_option="freq")
    return builder.build()
