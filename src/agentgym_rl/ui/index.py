"""The index of a run's episodes: three tables in memory that lists, filters and searches ask.

    episodes   one row an episode: what lists show and filters compare
    texts      the distinct texts of each part, in lower case
    mentions   which episode has which text

Reading a thousand parts takes seconds, so a request waits for at most `budget_s`; the rest is read
in the background, and answers say how many parts they rest on. Parts that appear, change or vanish
during a run are followed.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from agentgym_rl.runs.regular_files import MEGABYTE
from agentgym_rl.ui.decoders import Decoders
from agentgym_rl.ui.part_columns import EPISODES, MENTIONS, TEXTS, PartColumns, part_columns
from agentgym_rl.ui.parts import BROKEN, PartFile, list_parts

logger = logging.getLogger(__name__)

_BATCH = 32
"""Parts that are read and put into the tables together."""
_BATCH_S = 0.1
"""What the reader in the background does without a pause for requests."""
_FRESH_S = 0.5
"""How long a listing of the folder is good for."""
_MAX_HITS = 8
"""Searches whose results are kept."""
_BEFORE_HIT, _AFTER_HIT = 50, 110
"""Characters of an excerpt around what was searched for."""
_MAX_BYTES = 1000 * MEGABYTE
"""Of what is kept of all parts."""
_numbers = itertools.count(1)
_TABLES = {"episodes": EPISODES, "texts": TEXTS, "mentions": MENTIONS}


@dataclass(frozen=True, slots=True)
class IndexState:
    """How much of the folder an answer rests on."""

    parts: int
    parts_read: int
    problem: str | None


class EpisodeIndex:
    """The episodes of one folder. Thread-safe; `ask` while parts are being read is fine."""

    def __init__(self, folder: Path, decoders: Decoders, *, num_threads: int = 2) -> None:
        self._folder, self._decoders = folder, decoders
        self._num_bytes = 0
        self._base = duckdb.connect(":memory:", config={"threads": num_threads})
        self._base.execute("SET enable_external_access = false")
        for name, schema in _TABLES.items():
            self._base.register("nothing", schema.empty_table())
            self._base.execute(f"CREATE TABLE {name} AS SELECT * FROM nothing")
            self._base.unregister("nothing")
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="episode-parts")
        self._working = threading.Lock()
        self._reader: threading.Thread | None = None
        self._known: dict[PartFile, int] = {}
        self._broken: dict[PartFile, str] = {}
        self._stems: dict[int, str] = {}
        self._numbers = 0
        self._listed: tuple[float, list[PartFile]] = (-1e9, [])
        self._first = ""
        self._part_s = 0.05
        """What reading a part took lately."""
        self._is_closed = False
        self._version = 0
        """Counts the changes of the tables."""
        self._searching = threading.Lock()
        self._hits: OrderedDict[tuple[str, int], str] = OrderedDict()

    def refresh(self, *, budget_s: float = 0.25, first: str = "") -> IndexState:
        """Follow the folder for a while; what takes longer goes on in the background.

        A part of the name `first` is read before all others, and nothing after it is waited for.
        """
        deadline = time.monotonic() + budget_s
        if first:
            self._first = first
        if self._working.acquire(timeout=budget_s):
            try:
                self._list()
                while not self._has(first) and self._read_some(deadline - time.monotonic()):
                    pass
            finally:
                self._working.release()
        state = self.state()
        if state.parts_read < state.parts and (self._reader is None or not self._reader.is_alive()):
            self._reader = threading.Thread(target=self._read_all, daemon=True, name="index")
            self._reader.start()
        return state

    def state(self) -> IndexState:
        parts = self._listed[1]
        broken = [self._broken[part] for part in parts if part in self._broken]
        num_read = sum(part in self._known or part in self._broken for part in parts)
        problem = None
        if broken:
            more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
            problem = f"{broken[0]}{more}"
        return IndexState(len(parts), num_read, problem)

    def ask(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, object]]:
        """Return the rows of a query, each with its columns by name."""
        with self._base.cursor() as cursor:
            result = cursor.execute(sql, parameters)
            names = [column[0] for column in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def holding(self, text: str) -> str:
        """Return the name of a table with the keys of the episodes in which a text occurs.

        The search goes over all texts; its result is kept for pages and filters that follow.
        """
        wanted = (text.lower(), self._version)
        with self._searching:
            if wanted not in self._hits:
                while len(self._hits) >= _MAX_HITS:
                    gone = self._hits.popitem(last=False)[1]
                    self._base.execute(f"DROP TABLE {gone}; DROP TABLE {gone}_texts")
                name = f"hits_{next(_numbers)}"
                with self._base.cursor() as cursor:
                    cursor.execute(
                        f"CREATE TABLE {name}_texts AS "
                        "SELECT text_key FROM texts WHERE contains(text, ?)",
                        [wanted[0]],
                    )
                    cursor.execute(
                        f"CREATE TABLE {name} AS SELECT DISTINCT key FROM mentions "
                        f"WHERE text_key IN (SELECT text_key FROM {name}_texts)"
                    )
                self._hits[wanted] = name
            return self._hits[wanted]

    def excerpts(self, text: str, keys: Sequence[object]) -> dict[object, str]:
        """Return, by episode, the surroundings of a text that occurs in it, in lower case."""
        wanted, table = text.lower(), self.holding(text)
        # First which text of each episode it is: texts themselves are looked up for one page only.
        found = self.ask(
            f"SELECT key, min(text_key) AS text_key FROM mentions WHERE key IN (SELECT unnest(?)) "
            f"AND text_key IN (SELECT text_key FROM {table}_texts) GROUP BY key",
            [list(keys)],
        )
        rows = self.ask(
            "SELECT text_key, substr(text, greatest(1, instr(text, $1) - $2), $3) AS excerpt "
            "FROM texts WHERE text_key IN (SELECT unnest($4))",
            [
                wanted,
                _BEFORE_HIT,
                _BEFORE_HIT + len(wanted) + _AFTER_HIT,
                [row["text_key"] for row in found],
            ],
        )
        texts = {row["text_key"]: str(row["excerpt"]) for row in rows}
        return {row["key"]: texts[row["text_key"]] for row in found if row["text_key"] in texts}

    def stem(self, part: int) -> str:
        """Return the name of a part by its number."""
        return self._stems[part]

    def close(self) -> None:
        self._is_closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def join(self, timeout_s: float) -> None:
        """Wait for the thread that reads parts, after `close`."""
        if self._reader is not None:
            self._reader.join(timeout_s)

    def _read_all(self) -> None:
        """Read what is left; requests come between."""
        is_left = True
        while is_left and not self._is_closed:
            with self._working:
                is_left = self._read_some(_BATCH_S)

    def _has(self, name: str) -> bool:
        return any(part.name == name for part in (*self._known, *self._broken)) if name else False

    def _list(self) -> None:
        now = time.monotonic()
        if now - self._listed[0] > _FRESH_S:
            self._listed = (now, list_parts(self._folder))
            self._drop_missing()

    def _read_some(self, left_s: float) -> bool:
        """Take in some parts, the newest first, if there is time; return whether any was left."""
        fresh = [
            part for part in self._listed[1] if part not in self._known and part not in self._broken
        ]
        if not fresh or left_s <= 0:
            return False
        fresh.sort(key=lambda part: (part.name == self._first, part.mtime_ns), reverse=True)
        started = time.monotonic()
        size = min(_BATCH, max(1, int(left_s / self._part_s)))
        self._add(fresh[:size])
        self._part_s = max(0.001, (time.monotonic() - started) / min(size, len(fresh)))
        return True

    def _drop_missing(self) -> None:
        present = set(self._listed[1])
        gone = [number for part, number in self._known.items() if part not in present]
        self._known = {part: n for part, n in self._known.items() if part in present}
        self._broken = {part: why for part, why in self._broken.items() if part in present}
        if gone:
            with self._base.cursor() as cursor:
                cursor.execute("BEGIN")
                own = "SELECT key FROM episodes WHERE part IN (SELECT unnest(?))"
                cursor.execute(f"DELETE FROM mentions WHERE key IN ({own})", [gone])
                cursor.execute("DELETE FROM episodes WHERE part IN (SELECT unnest(?))", [gone])
                cursor.execute(
                    "DELETE FROM texts WHERE text_key NOT IN (SELECT text_key FROM mentions)"
                )
                cursor.execute("COMMIT")
            self._version += 1

    def _add(self, batch: Sequence[PartFile]) -> None:
        first = self._numbers
        self._numbers += len(batch)
        found = list(self._pool.map(self._columns, batch, range(first, first + len(batch))))
        # Names first: whoever asks meanwhile may meet rows as soon as they are in.
        self._stems |= {number: part.stem for number, part in enumerate(batch, start=first)}
        columns = [item for item in found if isinstance(item, PartColumns)]
        if columns:
            self._insert(columns)
        for number, (part, item) in enumerate(zip(batch, found, strict=True), start=first):
            if isinstance(item, PartColumns):
                self._known[part] = number
            else:
                self._broken[part] = item

    def _insert(self, columns: Sequence[PartColumns]) -> None:
        with self._base.cursor() as cursor:
            cursor.execute("BEGIN")
            for name in _TABLES:
                rows = pa.concat_tables([getattr(item, name) for item in columns])
                cursor.register("rows", rows)
                cursor.execute(f"INSERT INTO {name} SELECT * FROM rows")
                cursor.unregister("rows")
            cursor.execute("COMMIT")
        self._num_bytes += sum(item.num_bytes for item in columns)
        self._version += 1

    def _columns(self, part: PartFile, number: int) -> PartColumns | str:
        """Return what is kept of a part, or why nothing is."""
        if self._num_bytes > _MAX_BYTES:
            return f"{part.name} is left out: the index holds {_MAX_BYTES // MEGABYTE} MB already"
        try:
            return self._decoders.call(part_columns, self._folder / part.name, number)
        except BROKEN as error:
            return f"{part.name} cannot be read: {str(error).splitlines()[0]}"
