"""The retrieval service: Search-R1's shapes over real HTTP, bad requests, a server that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
import requests

from agentgym_rl.errors import EnvError
from agentgym_rl.retrieval import service
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.batching import Batcher
from agentgym_rl.retrieval.cache import CachedRetriever
from agentgym_rl.retrieval.open import RetrieverOptions, open_retriever
from agentgym_rl.retrieval.passages import Passage
from agentgym_rl.retrieval.remote import RemoteRetriever
from agentgym_rl.retrieval.service import RetrieverApp
from agentgym_rl.serving.bound import Address, BoundServer
from waiting import wait_for

pytestmark = pytest.mark.slow

PASSAGES = [
    Passage(f"p/{n}", f"Film {n}", f"The film number{n} was shot in 19{n:02}.") for n in range(150)
]
_PROGRAM = "import sys; from agentgym_rl.cli.main import main; main()"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "c.jsonl"
    path.write_text("\n".join(json.dumps({"id": p.id, "contents": p.contents}) for p in PASSAGES))
    return path


@contextmanager
def service_process(corpus: Path, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `agentgym serve searchqa-retriever`; give its address."""
    command = [sys.executable, "-c", _PROGRAM, "serve", "searchqa-retriever", "--port=0"]
    process = subprocess.Popen(
        [*command, *words, f"corpus={corpus}"],
        env={**os.environ, "AGENTGYM_CACHE": str(corpus.parent / "cache")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert " at http" in line, "the service did not start"
        yield line.split(" at ")[1].split()[0], process
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture(scope="module")
def url(corpus: Path) -> Iterator[str]:
    with service_process(corpus) as (address, _):
        yield address


def ask(url: str, **body: object) -> tuple[int, dict]:
    answer = requests.post(f"{url}/retrieve", json=body, timeout=20)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("return_scores", [True, False, None])
@pytest.mark.parametrize("topk", [None, 0, 1, 2, 100, "missing"])
@pytest.mark.parametrize("num_queries", [0, 1, 2, 3, 64])
def test_every_combination_has_its_shape(url: str, num_queries: int, topk, return_scores):
    body: dict[str, object] = {"queries": [f"film number{n}" for n in range(num_queries)]}
    if topk != "missing":
        body["topk"] = topk
    if return_scores is not None:
        body["return_scores"] = return_scores
    status, answer = ask(url, **body)
    assert status == 200 and list(answer) == ["result"]
    assert len(answer["result"]) == num_queries
    expected = topk if topk in (1, 2, 100) else 3
    for n, items in enumerate(answer["result"]):
        assert len(items) == expected
        documents = [item["document"] for item in items] if return_scores else items
        assert documents[0] == {"id": f"p/{n}", "contents": PASSAGES[n].contents}
        if return_scores:
            scores = [item["score"] for item in items]
            assert scores == sorted(scores, reverse=True) and all(s > 0 for s in scores)
            assert set(items[0]) == {"document", "score"}


def test_what_matches_nothing_is_an_empty_list(url: str):
    status, answer = ask(url, queries=["zzz", '":([', "", "x" * 100_000], topk=3)
    assert (status, answer["result"]) == (200, [[], [], [], []])


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "not a JSON object"),
        (b"{}", 422, "queries: Field required"),
        (b'{"queries": "one"}', 422, "queries: Input should be a valid list"),
        (b'{"queries": [1]}', 422, "queries.0: Input should be a valid string"),
        (b'{"queries": [], "topk": -1}', 422, "topk"),
        (b'{"queries": [], "topk": 1001}', 422, "topk"),
        (b'{"queries": [], "topk": true}', 422, "topk"),
        (b'{"queries": [], "topk": 1.5}', 422, "topk"),
        (b'{"queries": [], "return_scores": "yes"}', 422, "return_scores"),
        (b'{"queries": [], "top_k": 5}', 422, "no field 'top_k' (did you mean 'topk'?); available"),
        (
            b'{"queries": [' + b'"x",' * 100 + b'"x"], "topk": 1000}',
            422,
            "101 queries with topk 1000 ask for more than 100000 passages",
        ),
        (b'{"queries": ["' + b"x" * (5 << 20) + b'"]}', 413, "larger than"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_bad_requests_are_refused_in_words(url: str, body: bytes, status: int, words: str):
    answer = requests.post(f"{url}/retrieve", data=body, timeout=20)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


def test_passages_health_and_unknown_routes(url: str):
    assert requests.get(f"{url}/passages/p%2F7", timeout=20).json() == {
        "id": "p/7",
        "contents": PASSAGES[7].contents,
    }
    for path, type_ in (("passages/p9999", "unknown_passage"), ("nothing", "unknown_route")):
        answer = requests.get(f"{url}/{path}", timeout=20)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, type_)
    slashed = requests.post(f"{url}/retrieve/", json={"queries": ["number7"]}, timeout=20)
    assert (slashed.status_code, slashed.history) == (200, [])
    assert slashed.json() == ask(url, queries=["number7"])[1]
    assert requests.get(f"{url}/retrieve", timeout=20).status_code == 405
    before = requests.get(f"{url}/health", timeout=20).json()
    for _ in range(2):
        ask(url, queries=["a query of its own"])
    after = requests.get(f"{url}/health", timeout=20).json()
    assert after["status"] == "ok" and after["num_passages"] == 150
    assert after["num_queries"] - before["num_queries"] == 2
    assert after["num_cache_hits"] - before["num_cache_hits"] == 1


def test_the_remote_back_end_is_the_local_one(url: str, corpus: Path, monkeypatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(corpus.parent / "cache"))
    queries = ["film number3", "nothing", "shot in 1942", "\ud800 film", ""]
    with (
        open_retriever(RetrieverOptions(corpus=str(corpus))) as local,
        open_retriever(RetrieverOptions(backend="remote", url=url + "/retrieve")) as remote,
    ):
        for topk in (1, 5):
            assert remote.search(queries, topk) == local.search(queries, topk)
        assert len(remote) == len(local) == 150
        assert remote.get("p/3") == local.get("p/3") == PASSAGES[3]
        assert remote.get("p/140") == PASSAGES[140] and remote.get("p 9/9?") is None
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda n: remote.search([f"number{n}"], 1), range(150)))
        assert [hits[0][0].passage.id for hits in found] == [p.id for p in PASSAGES]


def test_a_token_is_wanted(corpus: Path):
    with service_process(corpus, "--token=secret") as (url, process):
        assert ask(url, queries=["film"])[0] == 401
        assert requests.get(f"{url}/health", timeout=20).status_code == 200
        with pytest.raises(EnvError, match="401"):
            RemoteRetriever(url).search(["film"], 1)
        assert RemoteRetriever(url, token="secret").search(["film"], 1)[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_server_that_dies_is_an_error_and_one_that_returns_is_not(corpus: Path):
    with service_process(corpus) as (url, process):
        patient = RemoteRetriever(url, timeout_s=60.0)
        assert patient.search(["number5"], 1)[0][0].passage.id == "p/5"
        process.kill()
        process.wait(30)
        remote = RemoteRetriever(url, timeout_s=1.0)
        started = time.monotonic()
        with pytest.raises(EnvError, match="gave no result in 1 s"):
            remote.search(["number6"], 1)
        with pytest.raises(EnvError):
            remote.get("p/77")
        assert time.monotonic() - started < 20
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(patient.search, ["number6"], 1)
            time.sleep(0.3)
            with service_process(corpus, f"--port={url.rpartition(':')[2]}"):
                assert waiting.result(60)[0][0].passage.id == "p/6"


class _Scripted(BaseHTTPRequestHandler):
    """Answers with the next of `script`: a status and a body, or a number of seconds to hang."""

    protocol_version = "HTTP/1.1"
    script: ClassVar[list[tuple[int, bytes] | float]] = []
    num_connections: ClassVar[int] = 0

    def setup(self) -> None:
        _Scripted.num_connections += 1
        super().setup()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        step = self.script.pop(0)
        if isinstance(step, float):
            time.sleep(step)
            self.close_connection = True
            return
        self.send_response(step[0])
        is_whole = not step[1].endswith(b"BREAK")
        self.close_connection = not is_whole
        self.send_header("content-length", str(len(step[1]) + (0 if is_whole else 9)))
        self.end_headers()
        self.wfile.write(step[1])

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def scripted(*script: tuple[int, bytes] | float) -> Iterator[str]:
    _Scripted.script, _Scripted.num_connections = list(script), 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Scripted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_failures_of_a_foreign_server_are_retried():
    document = {"title": "T", "text": "x", "contents": '"T"\nx'}
    good = json.dumps({"result": [[{"document": document, "score": 2}, {"document": document}]]})
    breaks = (200, b'{"result": BREAK')
    with scripted((500, b"oops"), (429, b""), 0.0, breaks, (200, good.encode())) as url:
        remote = RemoteRetriever(url, timeout_s=20.0)
        hits = remote.search(["x"], 1)[0]
        assert [(hit.passage.title, hit.passage.text, hit.score) for hit in hits] == [("T", "x", 2)]
        assert _Scripted.script == []
        assert remote.get(hits[0].passage.id) == hits[0].passage
        assert remote.get("another") is None and len(remote) == 0


def test_searches_share_a_connection():
    with scripted(*[(200, b'{"result": [[]]}')] * 5) as url:
        remote = RemoteRetriever(url, timeout_s=20.0)
        assert [remote.search(["x"], 1) for _ in range(5)] == [[[]]] * 5
        assert _Scripted.num_connections == 1
        remote.close()


@pytest.mark.parametrize(
    "step",
    [
        (422, b"bad request"),
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"result": []}'),
        (200, b'{"result": null}'),
        (200, b'{"result": [[3]]}'),
        (200, b'{"result": [[{"document": {"id": "a"}}]]}'),
        (200, b'{"result": [[{"document": {"contents": "a"}, "score": "much"}]]}'),
        60.0,
    ],
    ids=str,
)
def test_what_is_no_result_is_an_error(step: tuple[int, bytes] | float):
    with scripted(step) as url:
        remote = RemoteRetriever(url, timeout_s=0.5)
        started = time.monotonic()
        with pytest.raises(EnvError):
            remote.search(["x"], 3)
        assert time.monotonic() - started < 30


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not the address"):
        RemoteRetriever("localhost:8000")


class _Slow(Retriever):
    """Holds calls up until `release`, whatever their size; fails for "bad"."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.release = threading.Event()

    def search(self, queries, topk):
        self.calls.append(len(queries))
        self.release.wait()
        if "bad" in queries:
            raise EnvError("the back end broke")
        return [[Hit(Passage(query, "", str(topk)), 1.0)] for query in queries]

    def get(self, passage_id):
        return None

    def __len__(self):
        return 1


def test_requests_that_wait_go_together(monkeypatch: pytest.MonkeyPatch):
    slow, ready = _Slow(), threading.Event()
    retriever = CachedRetriever(slow)
    batcher = Batcher(retriever)
    monkeypatch.setattr(service, "Batcher", lambda _: batcher)
    server = BoundServer(
        RetrieverApp(retriever),
        Address(port=0),
        max_message_bytes=None,
        on_ready=lambda url: ready.set(),
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert ready.wait(60)
        with ThreadPoolExecutor(24) as pool:
            jobs = [
                pool.submit(ask, server.url, queries=[f"q{n}"], topk=1 + n % 2) for n in range(24)
            ]
            wait_for(lambda: slow.calls == [1] and len(batcher._waiting) == 23)
            slow.release.set()
            answers = [job.result(20) for job in jobs]
        for n, (status, answer) in enumerate(answers):
            assert status == 200
            assert answer["result"] == [[{"id": f"q{n}", "contents": f'""\n{1 + n % 2}'}]]
        assert len(slow.calls) == 3 and sum(slow.calls) == 24, "one call for each topk"
        status, answer = ask(server.url, queries=["bad"])
        assert status == 500 and "the back end broke" in answer["error"]["message"]
    finally:
        slow.release.set()
        server.should_exit = True
        thread.join(60)
