"""Builds the index of a corpus: streaming, resumable at any point.

Rows are added in order and committed every `commit_every`. The number of documents in the last
commit is the row to resume from, so no other record of progress can disagree with it. Memory holds
tantivy's buffer and 8 bytes per passage.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from agentgym_rl.errors import EnvError
from agentgym_rl.retrieval.bm25 import open_tantivy, to_document
from agentgym_rl.retrieval.corpus import Corpus
from agentgym_rl.retrieval.folder import IndexFolder, IndexMeta

Report = Callable[[int, int | None], None]
"""Receives the number of passages done and, if known, the rough total."""

_HEAP_BYTES = 256 * 1024 * 1024
_COMMIT_EVERY = 250_000
_REPORT_EVERY = 1000


def build_index(
    corpus: Corpus,
    folder: Path,
    *,
    wait_s: float = 0.0,
    commit_every: int = _COMMIT_EVERY,
    report: Report = lambda done, expected: None,
) -> IndexMeta:
    """Build the index of the corpus in `folder`, or the rest of it.

    Waits `wait_s` for another process that is building it. Raises ValueError if the folder holds
    something else, a row cannot be read, or ids repeat; EnvError if writing fails.
    """
    place = IndexFolder(folder)
    if (meta := place.read_meta()) is not None:
        return _same_corpus(meta, corpus, folder)
    place.check_for_building()
    with place.locked(wait_s):
        if (meta := place.read_meta()) is not None:  # built during the wait
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
        if num_done := open_tantivy(place.words).searcher().num_docs:
            raise ValueError(
                f"{place.root} holds {num_done} passages of an interrupted build over "
                f"{unfinished.corpus}, which is not {corpus.name} as it is now: delete the folder "
                "and build again, or name another one"
            )
        place.begin_again(meta)
    hashes = _add_rows(corpus, place.words, commit_every, report)
    if not hashes:
        raise ValueError(f"the corpus {corpus.name} has no passages")
    if (repeated := _find_repeated(hashes, corpus)) is not None:
        raise ValueError(
            f"the id {repeated!r} occurs more than once in {corpus.name}: make ids unique, then "
            f"delete {place.root} and build again"
        )
    meta = IndexMeta(corpus.fingerprint, len(hashes), corpus.name)
    place.finish(meta)
    return meta


def _add_rows(corpus: Corpus, folder: Path, commit_every: int, report: Report) -> array[int]:
    """Add the rows that the index lacks; return the hashes of all ids."""
    index = open_tantivy(folder)
    num_committed = index.searcher().num_docs
    writer = index.writer(_HEAP_BYTES, num_threads=1)
    hashes = array("Q")
    for row, passage in enumerate(corpus.read()):
        hashes.append(_hash(passage.id))
        if row < num_committed:
            continue
        document = to_document(passage, row)
        try:
            writer.add_document(document)
            if len(hashes) % commit_every == 0:
                writer.commit()
        except ValueError as error:  # tantivy's
            raise _cannot_write(folder, error) from error
        if len(hashes) % _REPORT_EVERY == 0:
            report(len(hashes), corpus.num_expected)
    try:
        writer.commit()
        writer.wait_merging_threads()
    except ValueError as error:
        raise _cannot_write(folder, error) from error
    report(len(hashes), len(hashes))
    return hashes


def _find_repeated(hashes: array[int], corpus: Corpus) -> str | None:
    """Return an id that the corpus has more than once, or None."""
    import numpy as np  # late: opening a finished index does not need it

    hashes_N = np.sort(np.frombuffer(hashes, dtype=np.uint64))
    repeated_N = hashes_N[1:][hashes_N[1:] == hashes_N[:-1]]
    if not len(repeated_N):
        return None
    return next(passage.id for passage in corpus.read() if _hash(passage.id) == repeated_N[0])


def _hash(passage_id: str) -> int:
    """Return 64 bits, since all ids of a large corpus would not fit in memory."""
    digest = hashlib.blake2b(passage_id.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _cannot_write(folder: Path, error: Exception) -> EnvError:
    return EnvError(
        f"cannot write to {folder}, perhaps the disk is full ({error}): free some space and run "
        "the same command again; it resumes"
    )


def _same_corpus(meta: IndexMeta, corpus: Corpus, folder: Path) -> IndexMeta:
    if meta.fingerprint != corpus.fingerprint:
        raise ValueError(
            f"{folder} holds the index of another corpus ({meta.corpus}, {meta.num_passages} "
            f"passages), not of {corpus.name}: name another folder, or delete this one"
        )
    return meta


@contextmanager
def progress_bar(what: str) -> Iterator[Report]:
    """Show a bar on standard error; give the function that moves it."""
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, expected: progress.update(
            task, completed=done, total=None if expected is None else max(done, expected)
        )
