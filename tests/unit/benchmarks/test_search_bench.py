"""The benchmark of search: it measures what it says, with no search twice."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import search_bench

from agentgym_rl.errors import ConfigError
from agentgym_rl.retrieval.corpus import open_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "c.jsonl"
    rows = [
        {"id": f"p{n}", "title": f"Title {n}", "text": " ".join(f"w{n * k % 97}" for k in range(9))}
        for n in range(400)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_searches_of_a_corpus_are_all_different(corpus: Path):
    queries = search_bench.corpus_searches(open_corpus(corpus), 100)
    assert len(set(queries)) == 100
    assert queries == search_bench.corpus_searches(open_corpus(corpus), 100)


@pytest.mark.long
def test_it_prints_every_number(corpus: Path, capsys: pytest.CaptureFixture[str]):
    search_bench.main(["--corpus", str(corpus), "--queries", "256"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "build: 400 passages" in printed
    assert re.search(r"processor time of a search: [\d.]+ ms", printed)
    assert re.search(r"start of a server: [\d.]+ s", printed)
    for where in ("in process", "over HTTP"):
        assert re.search(rf"{where}: one search p50 [\d.]+ ms, p95 [\d.]+ ms; in a batch of 64 "
                         r"[\d.]+ ms each", printed)  # fmt: skip


def test_too_few_searches_are_refused_in_words(corpus: Path):
    for words in (["--queries", "100"], []):
        with pytest.raises(
            ConfigError, match=r"\d+ different searches of c\.jsonl .* 128 are needed"
        ):
            search_bench.main(["--corpus", str(corpus), *words])
        corpus.write_text('{"text": "a b c"}')


def test_recall_is_counted_by_category(corpus: Path, tmp_path: Path, capsys):
    search_bench.build_index(open_corpus(corpus), tmp_path / "index")
    retriever = search_bench.Bm25Retriever(tmp_path / "index" / "words")
    searches = [
        search_bench.GoldSearch("Title 7", "p7", "bridge"),
        search_bench.GoldSearch("Title 8", "p9", "bridge"),
        search_bench.GoldSearch("Title 11", "p11", "single"),
    ]
    search_bench.measure_recall(retriever, searches, 5, search_bench.Console(width=200))
    printed = capsys.readouterr().out
    assert "0.6667 (2 of 3 searches)" in printed and "bridge: 0.5000 of 2" in printed
    assert "missed p9 by 'Title 8'" in printed
