"""Builds the index of a corpus: streaming, within a bounded memory, resumable at any point.

Rows are added in order and committed every `commit_every`, so the number of documents in the last
commit is the row to resume from: there is no other record of progress to get out of step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from agentgym_rl.errors import EnvError
from agentgym_rl.retrieval.bm25 import open_tantivy, to_document
from agentgym_rl.retrieval.corpus import Corpus
from agentgym_rl.retrieval.folder import IndexFolder, IndexMeta

Report = Callable[[int, int | None], None]
"""Gets the passages done and, where known, how many there are (roughly)."""

_HEAP_BYTES = 256 * 1024 * 1024
_COMMIT_EVERY = 250_000
_REPORT_EVERY = 1000
_HASH_BYTES = 8


def build_index(
    corpus: Corpus,
    folder: Path,
    *,
    wait_s: float = 0.0,
    commit_every: int = _COMMIT_EVERY,
    report: Report = lambda done, expected: None,
) -> IndexMeta:
    """Return the index of the corpus in `folder`, building what of it is missing.

    Waits `wait_s` for another process that builds it. Raises ValueError when the folder holds
    something else, when a row cannot be read, or when ids repeat; EnvError when writing fails.
    """
    place = IndexFolder(folder)
    if (meta := place.read_meta()) is not None:
        return _same_corpus(meta, corpus, folder)
    place.check_for_building()
    with place.locked(wait_s):
        if (meta := place.read_meta()) is not None:  # built while this process waited
            return _same_corpus(meta, corpus, folder)
        try:
            return _build(corpus, place, commit_every, report)
        except OSError as error:
            raise _cannot_write(folder, error) from error


def _build(corpus: Corpus, place: IndexFolder, commit_every: int, report: Report) -> IndexMeta:
    meta = IndexMeta(corpus.fingerprint, num_passages=0, corpus=corpus.name)
    unfinished = place.read_unfinished()
    if unfinished is None:
        place.begin(meta)
    elif unfinished.fingerprint != corpus.fingerprint:
        _check_nothing_committed(unfinished, corpus, place)
        place.begin_again(meta)
    ids = _IdHashes(place.root / "ids.u64")
    num_passages = _add_rows(corpus, place.words, ids, commit_every, report)
    if num_passages == 0:
        raise ValueError(f"the corpus {corpus.name} has no passages")
    if (repeated := ids.find_repeated(corpus)) is not None:
        raise ValueError(
            f"the id {repeated!r} is there more than once in {corpus.name}: ids must be unique "
            f"(then delete {place.root} and build again)"
        )
    meta = IndexMeta(corpus.fingerprint, num_passages, corpus.name)
    place.finish(meta)
    ids.path.unlink()
    return meta


def _add_rows(
    corpus: Corpus, folder: Path, ids: _IdHashes, commit_every: int, report: Report
) -> int:
    """Add the rows that the index does not have yet; return how many it has now."""
    index = open_tantivy(folder)
    num_done = index.searcher().num_docs
    ids.cut(num_done)
    writer = index.writer(_HEAP_BYTES, num_threads=1)
    for row, passage in enumerate(corpus.read(num_done), num_done):
        document = to_document(passage, row)
        ids.add(passage.id)
        num_done = row + 1
        try:
            writer.add_document(document)
            if num_done % commit_every == 0:
                ids.flush()
                writer.commit()
        except ValueError as error:  # tantivy's
            raise _cannot_write(folder, error) from error
        if num_done % _REPORT_EVERY == 0:
            report(num_done, corpus.num_expected)
    ids.flush()
    try:
        writer.commit()
        writer.wait_merging_threads()
    except ValueError as error:
        raise _cannot_write(folder, error) from error
    report(num_done, num_done)
    return num_done


class _IdHashes:
    """Finds ids that repeat without holding them: 8 bytes of a digest each, in a file.

    Flushed before every commit, so the file never has fewer than the index.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting = bytearray()

    def cut(self, num_ids: int) -> None:
        """Forget what was noted after the last commit."""
        with self.path.open("ab") as file:
            if file.tell() < num_ids * _HASH_BYTES:
                raise ValueError(
                    f"the unfinished index in {self.path.parent} is damaged: delete the folder"
                )
            file.truncate(num_ids * _HASH_BYTES)

    def add(self, passage_id: str) -> None:
        self._waiting += _hash(passage_id)

    def flush(self) -> None:
        with self.path.open("ab") as file:
            file.write(self._waiting)
        self._waiting.clear()

    def find_repeated(self, corpus: Corpus) -> str | None:
        """Return an id that the corpus has more than once; None where there is none."""
        import numpy as np  # late: opening a finished index need not wait for it

        hashes_N = np.fromfile(self.path, dtype=np.uint64)
        hashes_N.sort()
        repeated_N = hashes_N[1:][hashes_N[1:] == hashes_N[:-1]]
        if not len(repeated_N):
            return None
        wanted = repeated_N[0].tobytes()
        return next(passage.id for passage in corpus.read() if _hash(passage.id) == wanted)


def _hash(passage_id: str) -> bytes:
    data = passage_id.encode(errors="replace")
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).digest()


def _check_nothing_committed(unfinished: IndexMeta, corpus: Corpus, place: IndexFolder) -> None:
    num_done = open_tantivy(place.words).searcher().num_docs
    if num_done:
        raise ValueError(
            f"{place.root} holds {num_done} passages of an interrupted build over "
            f"{unfinished.corpus}, which was not {corpus.name} as it is now: delete the folder and "
            "build again, or name another one"
        )


def _cannot_write(folder: Path, error: Exception) -> EnvError:
    return EnvError(
        f"cannot write to {folder}, maybe no space is left ({error}): make room, then the same "
        "command resumes"
    )


def _same_corpus(meta: IndexMeta, corpus: Corpus, folder: Path) -> IndexMeta:
    if meta.fingerprint != corpus.fingerprint:
        raise ValueError(
            f"{folder} holds the index of another corpus ({meta.corpus}, {meta.num_passages} "
            f"passages), not of {corpus.name}: name another folder, or delete this one"
        )
    return meta
