"""A `/retrieve` server that runs elsewhere: ours, or Search-R1's.

A call has one deadline, retries included. A server that cannot be reached, breaks off, is busy
(429) or answers 5xx is asked again until then. A failure is an EnvError, never an empty result.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote, urlsplit

import orjson

from agentgym_rl.errors import EnvError, EnvTimeoutError
from agentgym_rl.retrieval.base import Hit, Retriever
from agentgym_rl.retrieval.bm25 import clean
from agentgym_rl.retrieval.passages import Passage, passage_from_row

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 2.0
_READ_BYTES = 65_536
_MAX_SEEN = 10_000


class RemoteRetriever(Retriever):
    """Asks the server at `url`, such as "http://127.0.0.1:8000" (with or without "/retrieve").

    Search-R1's server cannot look a passage up by its id; `get` then knows only those that this
    object found lately. Raises ValueError for an address that is not one.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 30.0) -> None:
        parts = urlsplit(url.rstrip("/").removesuffix("/retrieve"))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the address of a server: give http://HOST:PORT")
        self._parts, self._timeout_s = parts, timeout_s
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._local = threading.local()
        self._seen: OrderedDict[str, Passage] = OrderedDict()
        self._lock = threading.Lock()

    def search(self, queries: Sequence[str], topk: int) -> list[list[Hit]]:
        if not queries:
            return []
        # Search-R1's server breaks on requests without scores.
        wanted = {"queries": [clean(q) for q in queries], "topk": topk, "return_scores": True}
        status, body = self._call("POST", "/retrieve", orjson.dumps(wanted))
        if status != HTTPStatus.OK:
            raise EnvError(f"{self._where} refused the search: {status} {_excerpt(body)}")
        try:
            results = _decode(body, len(queries))
        except (ValueError, KeyError, TypeError) as error:
            raise EnvError(
                f"{self._where} did not answer with a result: {error!r} in {_excerpt(body)}"
            ) from error
        with self._lock:
            for hit in (hit for hits in results for hit in hits):
                self._seen[hit.passage.id] = hit.passage
            while len(self._seen) > _MAX_SEEN:
                self._seen.popitem(last=False)
        return [hits[:topk] for hits in results]

    def get(self, passage_id: str) -> Passage | None:
        with self._lock:
            if (seen := self._seen.get(passage_id)) is not None:
                return seen
        status, body = self._call("GET", f"/passages/{quote(clean(passage_id), safe='')}", None)
        if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return None
        try:
            return passage_from_row(orjson.loads(body))
        except (ValueError, AttributeError) as error:
            raise EnvError(
                f"{self._where} did not answer with a passage: {_excerpt(body)}"
            ) from error

    def __len__(self) -> int:
        status, body = self._call("GET", "/health", None)
        if status != HTTPStatus.OK:
            return 0
        try:
            number = orjson.loads(body)["num_passages"]
        except (ValueError, KeyError, TypeError):
            return 0
        return number if isinstance(number, int) else 0

    def close(self) -> None:
        """Close the connection of this thread; others close with their threads."""
        self._hang_up()

    @property
    def _where(self) -> str:
        return f"the retrieval server at {self._parts.scheme}://{self._parts.netloc}"

    def _call(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Return the status and body of the first answer that needs no retry."""
        deadline = time.monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                status, answer = self._exchange(method, path, body, deadline)
                is_busy = status == HTTPStatus.TOO_MANY_REQUESTS
                if status < HTTPStatus.INTERNAL_SERVER_ERROR and not is_busy:
                    return status, answer
                failure: Exception | str = f"{status} {_excerpt(answer)}"
            except (OSError, http.client.HTTPException) as error:
                self._hang_up()
                failure = error
            if time.monotonic() + pause_s >= deadline:
                raise EnvTimeoutError(
                    f"{self._where} gave no result in {self._timeout_s:g} s: {failure!r}"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    def _exchange(
        self, method: str, path: str, body: bytes | None, deadline: float
    ) -> tuple[int, bytes]:
        connection = self._connection()
        _set_timeout(connection, deadline)
        if connection.sock is None:
            connection.connect()
        connection.request(method, self._parts.path + path, body=body, headers=self._headers)
        response = connection.getresponse()
        chunks = []
        # In pieces: the timeout of a socket is for one piece, the deadline for all of them.
        while chunk := response.read1(_READ_BYTES):
            chunks.append(chunk)
            _set_timeout(connection, deadline)
        if response.length:  # read1 does not report that the rest is missing
            raise http.client.IncompleteRead(b"".join(chunks), response.length)
        response.close()  # nor does read1, and without it the connection cannot be reused
        return response.status, b"".join(chunks)

    def _connection(self) -> http.client.HTTPConnection:
        """Return this thread's connection."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            is_safe = self._parts.scheme == "https"
            kind = http.client.HTTPSConnection if is_safe else http.client.HTTPConnection
            connection = kind(self._parts.hostname or "", self._parts.port)
            self._local.connection = connection
        return connection

    def _hang_up(self) -> None:
        if (connection := getattr(self._local, "connection", None)) is not None:
            connection.close()
            del self._local.connection


def _set_timeout(connection: http.client.HTTPConnection, deadline: float) -> None:
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError("the deadline has passed")
    connection.timeout = remaining_s
    if isinstance(connection.sock, socket.socket):
        connection.sock.settimeout(remaining_s)


def _decode(body: bytes, num_queries: int) -> list[list[Hit]]:
    results = orjson.loads(body)["result"]
    if not isinstance(results, list) or len(results) != num_queries:
        raise ValueError(f"not {num_queries} lists of documents")
    return [[_hit(item, rank) for rank, item in enumerate(items)] for items in results]


def _hit(item: object, rank: int) -> Hit:
    """Return one hit. The rank replaces a missing score, a digest of the text a missing id."""
    document = item.get("document", item) if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or not isinstance(document, Mapping):
        raise ValueError("a document is not an object")
    score = item.get("score", 1.0 / (1 + rank))
    digest = hashlib.blake2b(orjson.dumps(document), digest_size=6).hexdigest()
    return Hit(passage_from_row(document, fallback_id=digest), float(str(score)))


def _excerpt(body: bytes) -> str:
    return body[:200].decode(errors="replace")
