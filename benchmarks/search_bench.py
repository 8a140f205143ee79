"""`agentgym bench search`: the search engine of deep search, in process and over HTTP.

Measures how long an index takes to build and a server to start, the time of one search and of each
search in a batch of 64, and how often the gold passage is among the first three for the searches of
the experts of the embedded questions. No search is asked twice, so the cache helps none.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench_arguments import whole_from
from rich.console import Console

from agentgym_rl.envs.scenarios.searchqa.embedded import (
    embedded_corpus_file,
    embedded_questions,
)
from agentgym_rl.errors import ConfigError
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.bm25 import Bm25Retriever
from agentgym_rl.retrieval.build import build_index
from agentgym_rl.retrieval.corpus import Corpus, open_corpus
from agentgym_rl.retrieval.folder import IndexFolder
from agentgym_rl.retrieval.remote import RemoteRetriever

TOPK = 3
BATCH = 64
_PROGRAM = "from agentgym_rl.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class GoldSearch:
    """A search of an expert and the passage that it is for."""

    query: str
    passage_id: str
    category: str


def expert_searches(split: str) -> list[GoldSearch]:
    """Return the searches of the experts of a split's questions, each once."""
    searches = {
        (hop.query, hop.passage_id): GoldSearch(hop.query, hop.passage_id, question.category)
        for question in embedded_questions(split)
        for hop in question.path
    }
    return list(searches.values())


def corpus_searches(corpus: Corpus, number: int) -> list[str]:
    """Return searches for a corpus without questions: a few words out of one passage each."""
    chooser = random.Random(0)
    found: dict[str, None] = {}
    for passage in islice(corpus.read(), 4 * number):
        words = passage.text.split()
        if len(words) > 8:
            start = chooser.randrange(len(words) - 6)
            found[" ".join([passage.title, *words[start : start + 6]])] = None
    return list(found)[:number]


def measure_build(corpus: Corpus, folder: Path, console: Console) -> None:
    """Build the index from nothing and report it."""
    started, cpu = time.perf_counter(), time.process_time()
    meta = build_index(corpus, folder)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    console.print(
        f"build: {meta.num_passages} passages in {seconds:.1f} s ({cpu:.1f} CPU-s), "
        f"{size / 1e6:.0f} MB on disk"
    )


@contextmanager
def service(folder: Path, console: Console) -> Iterator[str]:
    """Run the server of an index, and report how long it took to start."""
    started = time.perf_counter()
    command = [sys.executable, "-c", _PROGRAM, "serve", "searchqa-retriever", "--port=0"]
    process = subprocess.Popen([*command, f"index={folder}"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        if " at http" not in line:
            raise RuntimeError("the server did not start")
        console.print(f"start of a server: {time.perf_counter() - started:.2f} s")
        yield line.split(" at ")[1].split()[0]
    finally:
        process.terminate()
        process.wait(20)


def measure_speed(
    search: Callable[[Sequence[str], int], list[list[Hit]]],
    queries: Sequence[str],
    where: str,
    console: Console,
) -> None:
    """Report single searches over half of the queries, batches over the other."""
    middle = len(queries) // 2
    search(queries[:1], TOPK)
    singles = [_seconds(search, [query]) for query in queries[1:middle]]
    batches = [
        _seconds(search, queries[start : start + BATCH]) / BATCH
        for start in range(middle, len(queries) - BATCH + 1, BATCH)
    ]
    ordered = sorted(singles)
    console.print(
        f"{where}: one search p50 {1000 * statistics.median(ordered):.2f} ms, "
        f"p95 {1000 * ordered[int(0.95 * len(ordered))]:.2f} ms; in a batch of {BATCH} "
        f"{1000 * statistics.median(batches):.2f} ms each"
    )


def measure_work(retriever: Retriever, queries: Sequence[str], console: Console) -> None:
    """Report the processor time of a search, which a busy machine alters least."""
    started = time.process_time()
    for query in queries:
        retriever.search([query], TOPK)
    milliseconds = 1000 * (time.process_time() - started) / len(queries)
    console.print(f"processor time of a search: {milliseconds:.2f} ms")


def measure_recall(
    retriever: Retriever, searches: Sequence[GoldSearch], num_misses: int, console: Console
) -> None:
    """Report how often the gold passage is among the first three, and some that are not."""
    right: Counter[str] = Counter()
    total = Counter(search.category for search in searches)
    missed: list[GoldSearch] = []
    for search in searches:
        found = {hit.passage.id for hit in retriever.search([search.query], TOPK)[0]}
        if search.passage_id in found:
            right[search.category] += 1
        else:
            missed.append(search)
    console.print(
        f"recall of the gold passage at {TOPK}: {right.total() / total.total():.4f} "
        f"({right.total()} of {total.total()} searches)"
    )
    for category, number in sorted(total.items()):
        console.print(f"  {category}: {right[category] / number:.4f} of {number}")
    for search in missed[:num_misses]:
        console.print(f"  missed {search.passage_id} by {search.query!r}", highlight=False)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench search", description="Deep search.")
    parser.add_argument("--corpus", type=Path, help="default: the embedded corpus")
    parser.add_argument("--split", default="test", help="split of the embedded questions")
    parser.add_argument("--queries", type=whole_from(1), default=1024, help="searches to time")
    parser.add_argument(
        "--misses", type=whole_from(0), default=5, help="searches without a gold passage to list"
    )
    chosen = parser.parse_args(arguments)
    console = Console()
    searches = [] if chosen.corpus else expert_searches(chosen.split)
    corpus = open_corpus(chosen.corpus or embedded_corpus_file())
    queries = list(dict.fromkeys(search.query for search in searches))
    random.Random(0).shuffle(queries)
    queries = queries[: chosen.queries] or corpus_searches(corpus, chosen.queries)
    if len(queries) < 2 * BATCH:
        raise ConfigError(
            f"{len(queries)} different searches of {corpus.name} with --queries {chosen.queries}; "
            f"{2 * BATCH} are needed: take a larger corpus (of passages over 8 words), or more "
            "--queries"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "index"
        measure_build(corpus, folder, console)
        local = Bm25Retriever(IndexFolder(folder).words)
        measure_speed(local.search, queries, "in process", console)
        measure_work(local, queries, console)
        with service(folder, console) as url, RemoteRetriever(url) as remote:
            measure_speed(remote.search, queries, "over HTTP", console)
        if searches:
            measure_recall(local, searches, chosen.misses, console)


def _seconds(
    search: Callable[[Sequence[str], int], list[list[Hit]]], queries: Sequence[str]
) -> float:
    started = time.perf_counter()
    search(queries, TOPK)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
