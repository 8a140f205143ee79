"""Haystack's engine of the forum: topics by the words of their titles and comments (FTS5).

Spirit shows what an index has stored, without reading topics again; `search` gives it that.
"""

from __future__ import annotations

from django.db import connection
from haystack import connections
from haystack.backends import BaseEngine, BaseSearchQuery
from haystack.models import SearchResult

from agentgym_rl.envs.scenarios.web.sites.fulltext import (
    Condition,
    ReadingBackend,
    matching,
    of_node,
    rows,
)

_WRITE_DOWN = """
    DELETE FROM talk_search WHERE rowid = {topic};
    INSERT INTO talk_search(rowid, title, comments)
    SELECT t.id, t.title, (
        SELECT group_concat(c.comment, char(10)) FROM spirit_comment_comment c
        WHERE c.topic_id = t.id AND c.action = 0
    ) FROM spirit_topic_topic t WHERE t.id = {topic} AND t.category_id <> 1;
"""
"""Private topics, category 1, are not in the index."""
_INDEX = f"""
CREATE VIRTUAL TABLE talk_search USING fts5(title, comments, tokenize = 'porter unicode61');
CREATE TRIGGER talk_search_topic AFTER UPDATE OF title, category_id ON spirit_topic_topic BEGIN
    {_WRITE_DOWN.format(topic="new.id")}
END;
CREATE TRIGGER talk_search_new AFTER INSERT ON spirit_comment_comment BEGIN
    {_WRITE_DOWN.format(topic="new.topic_id")}
END;
CREATE TRIGGER talk_search_edit AFTER UPDATE OF comment, topic_id ON spirit_comment_comment BEGIN
    {_WRITE_DOWN.format(topic="old.topic_id")}
    {_WRITE_DOWN.format(topic="new.topic_id")}
END;
"""
_FROM = """
FROM spirit_topic_topic t JOIN spirit_category_category k ON k.id = t.category_id
LEFT JOIN spirit_category_category m ON m.id = k.parent_id
"""
_STORED = ("title", "slug", "comment_count", "last_active", "main_category_name")
_REMOVED = "(t.is_removed OR k.is_removed OR COALESCE(m.is_removed, 0))"


def create_index() -> None:
    """Make the index over the topics that are there, and the triggers that keep it current."""
    with connection.cursor() as cursor:
        cursor.connection.executescript(_INDEX)
    for (topic,) in rows("SELECT id FROM spirit_topic_topic ORDER BY id"):
        with connection.cursor() as cursor:
            cursor.connection.executescript(_WRITE_DOWN.format(topic=topic))


class Backend(ReadingBackend):
    """Reads the tables."""

    def search(self, query_string, **kwargs):
        """Return what matches, as Haystack wants it: results and hits."""
        found = query_string
        ((hits,),) = rows(f"SELECT count(*) {_FROM} WHERE {found.sql}", found.values)
        start = kwargs.get("start_offset") or 0
        length = max(0, (kwargs.get("end_offset") or start + 1000) - start)
        ranks = "SELECT 0 AS number, 0 AS score WHERE 0"
        values = found.values
        if found.words:
            ranks = """SELECT rowid AS number, bm25(talk_search, 10, 1) AS score
                FROM talk_search WHERE talk_search MATCH %s"""
            values = (found.words, *values)
        numbers = rows(
            f"""SELECT t.id, t.title, t.slug, t.comment_count, t.last_active,
            COALESCE(m.title, k.title) {_FROM} LEFT JOIN ({ranks}) r ON r.number = t.id
            WHERE {found.sql} ORDER BY r.score, t.id LIMIT {length} OFFSET {start}""",
            values,
        )
        return {"results": [self._result(*row) for row in numbers], "hits": hits}

    def _result(self, number, *stored):
        unified = connections[self.connection_alias].get_unified_index()
        (model,) = unified.get_indexed_models()
        index = unified.get_index(model)
        kept = dict(zip(_STORED, stored, strict=True))
        kept["last_active"] = index.fields["last_active"].convert(str(kept["last_active"]))
        return SearchResult(model._meta.app_label, model._meta.model_name, number, 0, **kept)


class Query(BaseSearchQuery):
    """Makes a condition of Haystack's filters."""

    def build_query(self):
        return of_node(self.query_filter, _of_filter)


class Engine(BaseEngine):
    """What HAYSTACK_CONNECTIONS names."""

    backend = Backend
    query = Query


def _of_filter(field: str, kind: str, value: object) -> Condition:
    if field in ("content", "text"):
        return matching(str(value), "talk_search", "t.id")
    if field == "is_removed":
        return Condition(f"{_REMOVED} = %s", (int(bool(value)),))
    if field == "category_id" and isinstance(value, (list, tuple)):
        marks = ", ".join(["%s"] * len(value))
        return Condition(f"t.category_id IN ({marks})", tuple(value))
    raise ValueError(f"the forum's search has no {field} {kind} {value!r}")
