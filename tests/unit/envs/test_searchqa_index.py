"""Building and searching an index of words: formats, odd queries, ties, kill -9 and resume."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentgym_rl.errors import ConfigError, EnvError
from agentgym_rl.retrieval.bm25 import Bm25Retriever
from agentgym_rl.retrieval.build import build_index
from agentgym_rl.retrieval.corpus import open_corpus
from agentgym_rl.retrieval.folder import IndexFolder
from agentgym_rl.retrieval.open import RetrieverOptions, open_retriever
from agentgym_rl.retrieval.passages import Passage

PASSAGES = (
    Passage("f1", "Stalker", "Stalker is a 1979 film directed by Andrei Tarkovsky."),
    Passage("f2", "Solaris", "Solaris is a 1972 film directed by Andrei Tarkovsky."),
    Passage("f3", "Tarkovsky", "A short piece that names no film."),
    Passage("c1", "Reykjavík", "The capital of Iceland; running water is hot.\nSecond line."),
    Passage("e", "", "A text without a title about penguins."),
)


def write_corpus(path: Path, passages: Sequence[Passage] = PASSAGES) -> Path:
    rows = [json.dumps({"id": p.id, "contents": p.contents}) for p in passages]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def retriever(tmp_path_factory: pytest.TempPathFactory) -> Bm25Retriever:
    folder = tmp_path_factory.mktemp("index")
    build_index(open_corpus(write_corpus(folder / "corpus.jsonl")), folder / "index")
    return Bm25Retriever(IndexFolder(folder / "index").words)


def ids(retriever: Bm25Retriever, query: str, topk: int = 3) -> list[str]:
    return [hit.passage.id for hit in retriever.search([query], topk)[0]]


def test_it_finds_by_stems_and_without_accents(retriever: Bm25Retriever):
    assert ids(retriever, "reykjavik ran", 1) == ["c1"]
    assert ids(retriever, "RUNS", 1) == ["c1"]
    assert ids(retriever, "film directors Stalker", 1) == ["f1"]


def test_a_word_in_the_title_counts_more(retriever: Bm25Retriever):
    assert ids(retriever, "Tarkovsky")[0] == "f3"


def test_passages_come_back_as_they_were(retriever: Bm25Retriever):
    assert [retriever.get(p.id) for p in PASSAGES] == list(PASSAGES)
    assert retriever.get("F1") is None and retriever.get("") is None
    assert retriever.at_row(3) == PASSAGES[3]
    with pytest.raises(EnvError, match="no row 99"):
        retriever.at_row(99)
    assert len(retriever) == 5


@pytest.mark.parametrize("topk", [1, 2, 100, 10**12])
def test_topk_is_obeyed(retriever: Bm25Retriever, topk: int):
    hits = retriever.search(["film", "penguins", "film"], topk)
    assert [len(found) for found in hits] == [min(topk, 3), 1, min(topk, 3)]
    assert [hit.score for hit in hits[0]] == sorted((h.score for h in hits[0]), reverse=True)


@pytest.mark.parametrize(
    "query",
    [
        *("", " ", "\0", '"', "a:b", "AND OR NOT", "(((", "]^~*?", "id:f1 +x -y", "\ud800", "日本"),
        *("film:" * 20_000, "x" * 100_000, " ".join(f"w{n}" for n in range(15_000))),
    ],
    ids=lambda query: ascii(query[:12]),
)
def test_any_text_is_a_query(retriever: Bm25Retriever, query: str):
    assert len(retriever.search([query], 3)) == 1
    assert retriever.get(query) is None


def test_equal_scores_are_ordered_by_row(tmp_path: Path):
    same = [Passage(f"p{n}", "Same", "the same words") for n in range(200)]
    corpus = open_corpus(write_corpus(tmp_path / "c.jsonl", same))
    build_index(corpus, tmp_path / "index", commit_every=30)
    found = Bm25Retriever(tmp_path / "index" / "words").search(["same words"], 5)[0]
    assert [hit.passage.id for hit in found] == ["p0", "p1", "p2", "p3", "p4"]


def test_the_commonest_words_go_first_when_there_are_too_many(
    retriever: Bm25Retriever, monkeypatch: pytest.MonkeyPatch
):
    query = "1972 film by Andrei"
    assert ids(retriever, query, 5) == ["f2", "f1", "f3"]
    monkeypatch.setattr("agentgym_rl.retrieval.bm25._MAX_POSTINGS", 3)
    assert ids(retriever, query, 5) == ["f2", "f1"]  # 1972 is in one passage, Andrei and by in two
    monkeypatch.setattr("agentgym_rl.retrieval.bm25._MAX_POSTINGS", 0)
    assert ids(retriever, query, 5) == ["f2"]


def test_reading_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    corpus = write_corpus(tmp_path / "c.jsonl")
    open_retriever(RetrieverOptions(corpus=str(corpus))).close()
    for lock in (tmp_path / "cache").rglob("*lock"):
        lock.unlink()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    [index] = (tmp_path / "cache" / "searchqa").iterdir()
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    for options in (RetrieverOptions(corpus=str(corpus)), RetrieverOptions(index=str(index))):
        with open_retriever(options) as retriever:
            assert retriever.search(["penguins"], 1)[0][0].passage == PASSAGES[4]
    build_index(open_corpus(corpus), index)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*")} == before
    assert list((tmp_path / "scratch").iterdir()) == []


def test_threads_read_at_once(retriever: Bm25Retriever):
    expected = retriever.search(["film Tarkovsky"], 3)
    failures: list[object] = []

    def read() -> None:
        for _ in range(200):
            if retriever.search(["film Tarkovsky"], 3) != expected:
                failures.append("differs")

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_large_batch_is_the_same_as_its_queries(retriever: Bm25Retriever):
    queries = ["film", "penguins", "", "Tarkovsky film", "Iceland"] * 20
    assert retriever.search(queries, 2) == [retriever.search([q], 2)[0] for q in queries]


@pytest.mark.parametrize("start", [0, 1, 4, 5, 9])
def test_every_format_reads_the_same(tmp_path: Path, start: int):
    plain = write_corpus(tmp_path / "c.jsonl")
    spaced = tmp_path / "spaced.jsonl"
    spaced.write_text("\n\n" + plain.read_text().replace("\n", "\n  \n"))
    with gzip.open(tmp_path / "c.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(plain.read_text())
    (tmp_path / "c.jsonl.xz").write_bytes(lzma.compress(plain.read_bytes()))
    columns = {name: [getattr(p, name) for p in PASSAGES] for name in ("id", "title", "text")}
    pq.write_table(pa.table(columns), tmp_path / "c.parquet", row_group_size=2)
    for name in ("c.jsonl", "spaced.jsonl", "c.jsonl.gz", "c.jsonl.xz", "c.parquet"):
        assert list(open_corpus(tmp_path / name).read(start)) == list(PASSAGES[start:]), name


def test_bad_corpora_are_refused_in_words(tmp_path: Path):
    def build(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        build_index(open_corpus(tmp_path / name), tmp_path / f"{name}-index")

    with pytest.raises(ValueError, match=r"a\.jsonl, line 3: "):
        build("a.jsonl", '{"id": "1", "text": "x"}\n\n{"id": ')
    with pytest.raises(ValueError, match="list is not an object"):
        build("b.jsonl", "[1]\n")
    with pytest.raises(ValueError, match="'x2' occurs more than once"):
        build("c.jsonl", "".join(f'{{"id": "x{n % 4}", "text": "t"}}\n' for n in (0, 1, 2, 3, 6)))
    with pytest.raises(ValueError, match="no passages"):
        build("d.jsonl", "\n")
    with pytest.raises(ValueError, match=r"give a \.jsonl"):
        build("e.csv", "x")
    with pytest.raises(ValueError, match="no corpus file"):
        open_corpus(tmp_path / "missing.jsonl")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    whole = gzip.compress(write_corpus(tmp_path / "c.jsonl").read_bytes() * 50)
    table = pa.table({"id": ["a", "b"], "text": ["x", None]})
    pq.write_table(table, tmp_path / "null.parquet")
    cut = (tmp_path / "null.parquet").read_bytes()[:-9]
    for name, data in (
        ("cut.jsonl.gz", whole[: len(whole) // 2]),
        ("broken.jsonl.gz", whole[:20] + b"\xff" * 40 + whole[60:]),
        ("plain.jsonl.gz", b'{"text": "x"}'),
        ("cut.jsonl.xz", lzma.compress(b'{"text": "x"}')[:-20]),
        ("plain.jsonl.xz", b'{"text": "x"}'),
        ("cut.parquet", cut),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(
            ValueError, match=rf"cannot read .*{name}, it is damaged or not in the format"
        ):
            list(open_corpus(tmp_path / name).read())
    with pytest.raises(ValueError, match=r"null\.parquet, row 2: .*needs `contents`, or `text`"):
        list(open_corpus(tmp_path / "null.parquet").read())


def test_a_corrected_corpus_is_built_by_the_same_command(tmp_path: Path):
    path, index = tmp_path / "c.jsonl", tmp_path / "index"
    good = write_corpus(path).read_text()
    path.write_text(good + "{")
    with pytest.raises(ValueError, match="line 6"):
        build_index(open_corpus(path), index)
    write_corpus(path)
    assert build_index(open_corpus(path), index).num_passages == 5
    assert ids(Bm25Retriever(IndexFolder(index).words), "penguins") == ["e"]


def test_a_corpus_that_changed_after_a_commit_is_refused(tmp_path: Path):
    path, index = tmp_path / "c.jsonl", tmp_path / "index"
    path.write_text(write_corpus(path).read_text() + "{")
    with pytest.raises(ValueError, match="line 6"):
        build_index(open_corpus(path), index, commit_every=2)
    write_corpus(path)
    with pytest.raises(
        ValueError, match=r"4 passages of an interrupted build .* as it is now: del"
    ):
        build_index(open_corpus(path), index)


_BUILD_WITH_SMALL_FILES = """
import resource, sys
from pathlib import Path
from agentgym_rl.retrieval.build import build_index
from agentgym_rl.retrieval.corpus import open_corpus
from agentgym_rl.errors import EnvError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    build_index(open_corpus(Path(sys.argv[1])), Path(sys.argv[2]), commit_every=1000)
except EnvError as error:
    print(error)
"""


@pytest.mark.parametrize("max_bytes", [100, 20_000, 60_000])
def test_a_full_disk_is_said_and_the_build_goes_on(tmp_path: Path, max_bytes: int):
    many = [Passage(f"p{n}", f"Title {n}", f"word{n} and {n**9}") for n in range(5000)]
    corpus, index = write_corpus(tmp_path / "c.jsonl", many), tmp_path / "index"
    command = [sys.executable, "-c", _BUILD_WITH_SMALL_FILES, str(corpus), str(index)]
    output = subprocess.check_output([*command, str(max_bytes)], text=True, timeout=60)
    assert f"cannot write to {index}" in output and "perhaps the disk is full" in output
    assert build_index(open_corpus(corpus), index).num_passages == 5000


def test_folders_that_are_no_place_for_an_index_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write_corpus(tmp_path / "c.jsonl")
    with pytest.raises(ValueError, match=r"c\.jsonl is not a folder"):
        build_index(open_corpus(path), path)
    with pytest.raises(ValueError, match=r"holds other files \(c\.jsonl\): name a new"):
        build_index(open_corpus(path), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["c.jsonl"]
    with pytest.raises(ConfigError, match=r"cannot write to the folder /proc/none \(No such file"):
        build_index(open_corpus(path), Path("/proc/none"))
    monkeypatch.setenv("AGENTGYM_CACHE", str(path))
    with pytest.raises(ConfigError, match=r"AGENTGYM_CACHE=.*c\.jsonl is not a folder"):
        open_retriever(RetrieverOptions(corpus=str(path)))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', "\0"])
def test_a_damaged_index_file_is_named(tmp_path: Path, text: str):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ValueError, match=r"index\.json is damaged .* build the index again"):
        open_retriever(RetrieverOptions(index=str(tmp_path)))


def test_a_byte_order_mark_is_skipped_and_an_empty_id_is_refused(tmp_path: Path):
    path = write_corpus(tmp_path / "c.jsonl")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert list(open_corpus(path).read()) == list(PASSAGES)
    path.write_text('{"id": "a", "text": "x"}\n{"id": "", "text": "x"}\n')
    with pytest.raises(ValueError, match=r"c\.jsonl, line 2: the id is empty"):
        list(open_corpus(path).read())


def test_a_folder_of_another_corpus_is_refused(tmp_path: Path):
    first = open_corpus(write_corpus(tmp_path / "a.jsonl"))
    second = open_corpus(write_corpus(tmp_path / "b.jsonl", PASSAGES[:2]))
    build_index(first, tmp_path / "index")
    assert build_index(first, tmp_path / "index").num_passages == 5
    with pytest.raises(ValueError, match=r"another corpus \(a\.jsonl, 5"):
        build_index(second, tmp_path / "index")


_BUILD = """
import sys, time
from pathlib import Path
from agentgym_rl.retrieval.build import build_index
from agentgym_rl.retrieval.corpus import open_corpus
def report(done, expected):
    print(done, flush=True)
    time.sleep(float(sys.argv[3]))
build_index(open_corpus(Path(sys.argv[1])), Path(sys.argv[2]), wait_s=30, commit_every=500,
            report=report)
"""


def start_build(corpus: Path, index: Path, pause_s: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _BUILD, str(corpus), str(index), str(pause_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_build_goes_on(tmp_path: Path):
    many = [Passage(f"p{n}", f"Title {n}", f"word{n} and number{n % 7}") for n in range(6200)]
    corpus, index = write_corpus(tmp_path / "c.jsonl", many), tmp_path / "index"
    for seen in ("2000", "4000"):
        with start_build(corpus, index, pause_s=0.2) as process:
            assert process.stdout is not None
            while process.stdout.readline().strip() != seen:
                assert process.poll() is None
            os.kill(process.pid, signal.SIGKILL)
    assert IndexFolder(index).read_meta() is None
    with pytest.raises(ValueError, match="no finished index"):
        open_retriever(RetrieverOptions(index=str(index)))
    reports: list[int] = []
    meta = build_index(
        open_corpus(corpus), index, report=lambda done, expected: reports.append(done)
    )
    assert meta.num_passages == 6200 and reports[0] >= 4000
    retriever = Bm25Retriever(IndexFolder(index).words)
    assert len(retriever) == 6200
    for n in (0, 499, 500, 2000, 4100, 6199):
        assert ids(retriever, f"word{n}") == [f"p{n}"] and retriever.at_row(n) == many[n]
    assert not (index / "building.json").exists()


def test_two_builders_make_one_index(tmp_path: Path):
    many = [Passage(f"p{n}", f"Title {n}", f"word{n}") for n in range(3000)]
    corpus, index = write_corpus(tmp_path / "c.jsonl", many), tmp_path / "index"
    processes = [start_build(corpus, index, pause_s=0.1) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(len(output.split()) for output in outputs) == [0, 4]
    assert len(Bm25Retriever(IndexFolder(index).words)) == 3000


def test_a_builder_does_not_wait_unless_told(tmp_path: Path):
    corpus = open_corpus(write_corpus(tmp_path / "c.jsonl"))
    started = time.monotonic()
    with (
        IndexFolder(tmp_path / "index").locked(),
        pytest.raises(ValueError, match="another process builds"),
    ):
        build_index(corpus, tmp_path / "index")
    assert time.monotonic() - started < 5


def test_a_corpus_is_indexed_in_the_cache_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    corpus = write_corpus(tmp_path / "c.jsonl")
    for _ in range(2):
        with open_retriever(RetrieverOptions(corpus=str(corpus))) as retriever:
            assert retriever.search(["penguins"], 1)[0][0].passage.id == "e"
    assert len(list((tmp_path / "cache" / "searchqa").iterdir())) == 1


def test_an_index_of_another_version_is_refused(tmp_path: Path):
    build_index(open_corpus(write_corpus(tmp_path / "c.jsonl")), tmp_path / "index")
    meta = tmp_path / "index" / "index.json"
    meta.write_text(json.dumps({**json.loads(meta.read_text()), "format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        open_retriever(RetrieverOptions(index=str(tmp_path / "index")))


def test_options_that_do_not_go_together_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'bm25'"):
        RetrieverOptions(backend="bm26")  # pyrefly: ignore
    for options in (
        {"backend": "remote"},
        {"url": "http://x"},
        {"index": "a", "corpus": "b"},
        {"backend": "dense"},
        {"backend": "hybrid", "corpus": "b"},
        {"timeout_s": 0.0},
    ):
        with pytest.raises(ConfigError):
            RetrieverOptions(**options)
